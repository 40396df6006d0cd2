#include "convnet/net/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"
#include "convnet/base/utf8.h"
#include "convnet/config/text.h"
#include "convnet/net/outputs.h"

namespace convnet {
namespace {

/// Returns printable names of the classes of `outputs` outputs: those of `matrix`, or numbers.
std::vector<std::string> class_names_of(const MatrixInfo& matrix, std::int64_t outputs) {
  std::vector<std::string> names;
  for (std::int64_t c = 0; c < outputs; ++c) {
    const auto i = static_cast<std::size_t>(c);
    // Data sets name classes as they like; a terminal gets one line without control characters.
    names.push_back(i < matrix.class_names.size() ? replace_controls(matrix.class_names[i], '?')
                                                  : std::to_string(c));
  }
  return names;
}

/// Returns the layer whose outputs a cost compares with targets; null if there is none. `difference` is the
/// cost's only input, like the eltsum of outputs and targets below a cost.sum2. Layers without weights are
/// searched downwards for the one input that has weights below it; all other inputs are targets from the data
/// set.
const Node* compared_in_difference(const Graph& graph, const Node& difference) {
  if (!difference.layer->weights.empty() || difference.inputs.empty()) return nullptr;
  if (difference.inputs.size() == 1) return compared_in_difference(graph, graph.nodes[difference.inputs[0]]);
  const Node* compared = nullptr;
  for (const NodeId id : difference.inputs) {
    const Node& input = graph.nodes[id];
    if (!input.weights_below) continue;
    if (compared != nullptr) return nullptr;
    compared = &input;
  }
  return compared;
}

/// Returns the layer that a cost compares with labels or targets; null for one that compares nothing, like a
/// sum of squares that keeps outputs small.
const Node* compared_layer(const Graph& graph, const Node& cost) {
  if (cost.layer->facts.cost->labels != CostLabels::none) return &graph.nodes[cost.inputs[1]];
  return compared_in_difference(graph, graph.nodes[cost.inputs[0]]);
}

/// Returns whether a cost compares probabilities with a number for each class that the data set names.
bool has_names(const std::vector<MatrixInfo>& matrices, const Node& cost, std::int64_t outputs) {
  return cost.layer->facts.cost->differentiates != LayerFunction::other &&
         std::ranges::any_of(
             matrices, [&](const MatrixInfo& matrix) { return std::ssize(matrix.class_names) == outputs; });
}

Answer answer_of_layers(const Graph& graph, const std::vector<std::string>& layers) {
  for (auto layer = layers.begin(); layer != layers.end(); ++layer) {
    if (std::find(layers.begin(), layer, *layer) != layer)
      throw InputError("--output names '" + *layer + "' twice");
    nodes_with_features(graph, *layer);
  }
  return {layers, {}};
}

/// A cost, and the layer that it compares with labels or targets.
struct Comparison {
  const Node* cost = nullptr;
  const Node* layer = nullptr;
};

/// Returns the comparison of the first cost that makes one; null pointers if there is none.
Comparison first_comparison(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (!node.is_cost() || node.is_child) continue;
    if (const Node* layer = compared_layer(graph, node)) return {&node, layer};
  }
  return {};
}

Answer usual_answer(const Graph& graph, const std::vector<MatrixInfo>& matrices) {
  if (!logreg_costs(graph).empty()) {
    const Classifier classifier = find_classifier_of(graph, matrices, "");
    return {{classifier.softmax}, classifier.class_names};
  }
  if (const auto [cost, layer] = first_comparison(graph); cost != nullptr) {
    const std::int64_t outputs = layer->layer->output.size();
    // A data set whose labels are numbers names each of them.
    const bool numbers =
        label_kind(matrices) == LabelKind::numbers && std::ssize(matrices[1].class_names) == outputs;
    if (numbers) return {{layer->section}, {}, names_of_outputs({matrices[1]}, outputs)};
    if (!has_names(matrices, *cost, outputs)) return {{layer->section}, {}};
    return {{layer->section}, names_of_outputs(matrices, outputs)};
  }
  throw InputError(
      "no cost of the net compares a layer with labels or targets: --output must say which layers are the "
      "outputs");
}

}  // namespace

std::vector<std::string> names_of_outputs(const std::vector<MatrixInfo>& matrices, std::int64_t outputs) {
  const auto named = std::ranges::find_if(
      matrices, [&](const MatrixInfo& matrix) { return std::ssize(matrix.class_names) == outputs; });
  return class_names_of(named == matrices.end() ? MatrixInfo() : *named, outputs);
}

std::string csv_field(std::string text) {
  // Spreadsheets compute what begins so; after an apostrophe they show it.
  constexpr std::string_view kFormulas = "=+-@\t\r";
  if (!text.empty() && kFormulas.find(text[0]) != std::string_view::npos) text.insert(0, 1, '\'');
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::vector<std::string> logreg_costs(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    if (node.is_cost() && node.layer->facts.cost->labels == CostLabels::classes) names.push_back(node.name);
  }
  return names;
}

Classifier find_classifier(const Graph& graph, const std::vector<MatrixInfo>& matrices,
                           const std::string& name) {
  const std::vector<std::string> costs = logreg_costs(graph);
  if (costs.empty())
    throw InputError("the net has no cost.logreg layer, whose softmax says what images are taken for");
  if (name.empty() && costs.size() > 1)
    throw InputError("the net has several cost.logreg layers: --logreg-name must be one of " + join(costs));
  Classifier found;
  found.cost = name.empty() ? costs[0] : name;
  if (std::find(costs.begin(), costs.end(), found.cost) == costs.end()) {
    throw InputError("--logreg-name " + name + ": the net has no such cost.logreg layer" +
                     did_you_mean(name, costs, "there is " + join(costs)));
  }
  const Node& cost = *graph.find(found.cost);
  const Node& labels = graph.nodes[cost.inputs[0]];
  const Node& softmax = graph.nodes[cost.inputs[1]];
  found.softmax = softmax.section;
  found.labels = static_cast<std::size_t>(labels.layer->facts.data->matrix);
  found.outputs = softmax.layer->output.size();
  found.class_names = class_names_of(matrices.at(found.labels), found.outputs);
  return found;
}

Classifier find_classifier_of(const Graph& graph, const std::vector<MatrixInfo>& matrices,
                              const std::string& softmax) {
  std::vector<std::string> names;
  for (const std::string& cost : logreg_costs(graph)) {
    Classifier classifier = find_classifier(graph, matrices, cost);
    if (softmax.empty() || classifier.softmax == softmax) return classifier;
    if (std::find(names.begin(), names.end(), classifier.softmax) == names.end())
      names.push_back(classifier.softmax);
  }
  if (names.empty()) throw InputError("the net has no softmax layer that a cost.logreg compares with labels");
  throw InputError("the net has no softmax layer " + excerpt(softmax) + " below a cost.logreg" +
                   did_you_mean(softmax, names, "there is " + join(names)));
}

Answer find_answer(const Graph& graph, const std::vector<MatrixInfo>& matrices, const std::string& layers) {
  const std::vector<std::string> asked = split_list(layers);
  return asked.empty() ? usual_answer(graph, matrices) : answer_of_layers(graph, asked);
}

bool has_answer(const Graph& graph) {
  return !logreg_costs(graph).empty() || first_comparison(graph).cost != nullptr;
}

std::int64_t best_output(std::span<const float> probabilities) {
  return std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin();
}

std::vector<std::size_t> best_outputs(std::span<const float> probabilities, std::size_t count) {
  std::vector<std::size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  count = std::min(count, order.size());
  const auto better = [&](std::size_t a, std::size_t b) {
    return std::pair(-probabilities[a], a) < std::pair(-probabilities[b], b);
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), better);
  order.resize(count);
  return order;
}

Confusion::Confusion(std::vector<std::string> names) : names_(std::move(names)) {}

void Confusion::add(std::int64_t label, std::int64_t predicted) {
  if (label < 0 || label >= static_cast<std::int64_t>(names_.size())) return;
  ++counts_[{label, predicted}];
  ++images_;
}

std::int64_t Confusion::count(std::int64_t label, std::int64_t predicted) const {
  const auto found = counts_.find({label, predicted});
  return found == counts_.end() ? 0 : found->second;
}

std::vector<ClassErrors> Confusion::by_class() const {
  std::vector<ClassErrors> rows;
  for (const auto& [pair, count] : counts_) {
    const auto& [label, predicted] = pair;
    if (rows.empty() || rows.back().label != static_cast<std::size_t>(label))
      rows.push_back({static_cast<std::size_t>(label)});
    ClassErrors& row = rows.back();
    row.images += count;
    if (label == predicted) continue;
    row.wrong += count;
    if (count <= row.taken) continue;
    row.taken = count;
    row.taken_for = predicted;
  }
  const std::map<std::int64_t, std::int64_t> predicted = by_prediction();
  for (ClassErrors& row : rows) {
    const auto found = predicted.find(static_cast<std::int64_t>(row.label));
    row.predicted = found == predicted.end() ? 0 : found->second;
  }
  return rows;
}

std::map<std::int64_t, std::int64_t> Confusion::by_prediction() const {
  std::map<std::int64_t, std::int64_t> predicted;
  for (const auto& [pair, count] : counts_) predicted[pair.second] += count;
  return predicted;
}

MacroAverages Confusion::macro_averages() const {
  MacroAverages means;
  std::map<std::int64_t, std::int64_t> classes = by_prediction();
  for (const ClassErrors& row : by_class()) {
    classes[static_cast<std::int64_t>(row.label)] += row.images;
    means.precision += row.precision();
    means.recall += row.recall();
    means.f1 += row.f1();
  }
  means.classes = static_cast<std::int64_t>(classes.size());
  const double count = std::max(1.0, static_cast<double>(means.classes));
  for (double* sum : {&means.precision, &means.recall, &means.f1}) *sum /= count;
  return means;
}

std::string Confusion::table(std::size_t most) const {
  std::vector<ClassErrors> rows = by_class();
  std::stable_sort(rows.begin(), rows.end(),
                   [](const ClassErrors& a, const ClassErrors& b) { return a.error() > b.error(); });
  const std::size_t left = rows.size() > most ? rows.size() - most : 0;
  rows.resize(rows.size() - left);
  std::size_t width = 0;
  for (const ClassErrors& row : rows) width = std::max(width, character_count(names_[row.label]));
  std::string text;
  for (const ClassErrors& row : rows) {
    const std::string& name = names_[row.label];
    text += fmt::format("  {}{}  {:.4f}  {:>6} of {:>6}", name,
                        std::string(width - character_count(name), ' '), row.error(), row.wrong, row.images);
    if (row.wrong > 0)
      text += fmt::format("  {} taken for {}", row.taken, names_[static_cast<std::size_t>(row.taken_for)]);
    text += '\n';
  }
  if (left > 0) text += fmt::format("  and {} more classes; --confusion FILE.csv has all\n", left);
  return text;
}

std::string Confusion::csv() const {
  std::string text = begins;
  for (const std::string& name : names_) text += "," + csv_field(name);
  text += "\r\n";
  for (std::size_t label = 0; label < names_.size(); ++label) {
    text += csv_field(names_[label]);
    for (std::size_t predicted = 0; predicted < names_.size(); ++predicted)
      text +=
          fmt::format(",{}", count(static_cast<std::int64_t>(label), static_cast<std::int64_t>(predicted)));
    text += "\r\n";
  }
  return text;
}

}  // namespace convnet
