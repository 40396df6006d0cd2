// Costs of batches and tests: their sums, and what cost layers report of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/graph/graph.h"
#include "convnet/plan/plan.h"

namespace convnet {

/// Zeros for every cost of a plan.
CostSums no_costs(const Plan& plan, const Graph& graph);
bool same_layers(const CostSums& a, const CostSums& b);
/// Adds a step's costs. Views of an image all have the same costs, those of the mean: each image counts once.
void add_costs(CostSums& into, const Plan& plan, const Graph& graph, const std::vector<double>& costs,
               std::int64_t images);
void pool(CostSums& into, const CostSums& from);

/// The values that a cost layer reports for a batch or a test, per image.
struct CostReport {
  const Node* node = nullptr;
  std::vector<double> values;  ///< as printed; the children's are added
};
/// Returns a report for each cost layer that is not another one's child, in order of the file.
std::vector<CostReport> cost_reports(const CostSums& costs, const Graph& graph);
/// Returns the error of the first cost: its second value, or its first if it reports no error.
double first_error(const CostSums& costs, const Graph& graph);
/// Returns whether names[i] is there before: with topk=1 the top-k error is the top-1 error once more.
bool repeats_earlier(const std::vector<std::string>& names, std::size_t i);
/// Returns one value of a report: an error in percent, another cost as a number.
std::string value_text(const std::string& name, double value);
/// Returns "logprob: -log p 0.2213, top-1 error 7.98 %", with the first `most` values of each cost.
std::string labelled_cost_text(const CostSums& costs, const Graph& graph, std::size_t most = 3);
/// Returns the original's "logprob:  7.156030, 1.000000, 0.995768".
std::string cost_text(const CostSums& costs, const Graph& graph);

}  // namespace convnet
