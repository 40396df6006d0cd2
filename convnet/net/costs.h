// Costs of batches and tests: their sums, and the values that cost layers report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/graph/graph.h"
#include "convnet/plan/plan.h"

namespace convnet {

/// Returns sums that are zero for every cost of a plan.
CostSums no_costs(const Plan& plan, const Graph& graph);
/// Returns whether both have the same cost layers with the same numbers of values.
bool same_layers(const CostSums& a, const CostSums& b);
/// Adds the costs of a step over `images` rows. All views of an image have the costs of their mean, and the
/// image counts once.
void add_costs(CostSums& into, const Plan& plan, const Graph& graph, const std::vector<double>& costs,
               std::int64_t images);
/// Adds the sums of `from`.
void pool(CostSums& into, const CostSums& from);

/// The values that a cost layer reports for a batch or a test, per image.
struct CostReport {
  const Node* node = nullptr;
  std::vector<double> values;  ///< as printed, those of its children added
};
/// Returns a report for each cost layer that is not another one's child, in order of the file.
std::vector<CostReport> cost_reports(const CostSums& costs, const Graph& graph);
/// Returns the error of the first cost: its second value, or its first if it reports no error.
double first_error(const CostSums& costs, const Graph& graph);
/// Returns whether an earlier name equals names[i]: with topk=1 the top-k error repeats the top-1 error.
bool repeats_earlier(const std::vector<std::string>& names, std::size_t i);
/// Returns whether a value of this name is an error, a fraction of the images, which people read in percent.
bool is_error(const std::string& name);
/// Returns one value of a report: an error in percent, another cost as a number.
std::string value_text(const std::string& name, double value);
/// Returns "logprob: -log p 0.2213, top-1 error 7.98 %", with the first `most` values of each cost.
std::string labelled_cost_text(const CostSums& costs, const Graph& graph, std::size_t most = 3);
/// Returns "logprob 0.221, 8.0 %", the first two values of the first cost, for where there is little room.
std::string short_cost_text(const CostSums& costs, const Graph& graph);
/// Returns the text that cuda-convnet2 prints: "logprob:  7.156030, 1.000000, 0.995768".
std::string cost_text(const CostSums& costs, const Graph& graph);

}  // namespace convnet
