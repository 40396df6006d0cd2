#include "convnet/train/class_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "convnet/base/error.h"
#include "convnet/config/ini_edit.h"

namespace convnet {
namespace {

constexpr const char* kKey = "classWeights";

/// Returns classWeights of a section; "" without it.
std::string weights_of(const IniFile& parameters, const std::string& section) {
  const IniSection* const found = parameters.find_or_default(section);
  const IniValue* const value = found == nullptr ? nullptr : found->find(kKey);
  return value == nullptr ? "" : value->text;
}

/// Returns whether a section says classWeights=balanced, without the weights.
bool asks_for_weights(const IniFile& parameters, const std::string& section) {
  return weights_of(parameters, section) == "balanced";
}

void set_weights(IniFile& parameters, const std::string& section, const std::string& text) {
  Diagnostics reported_before;
  parameters = with_value(parameters, section, kKey, text, reported_before);
}

}  // namespace

std::vector<std::int64_t> count_labels(const Provider& provider, const BatchRange& range,
                                       std::size_t matrix) {
  constexpr std::int64_t kTogether = 128;
  const MatrixInfo& labels = provider.matrices().at(matrix);
  const auto stride = labels.image_bytes() * provider.views();
  const ImageShare nobody{{}, {false}};
  std::vector<std::int64_t> counts(static_cast<std::size_t>(labels.classes));
  for (int batch = range.first; batch <= range.last; ++batch) {
    for (LoadRequest request{batch, 0, 0, kTogether, &nobody};; request.first += kTogether) {
      const DataBatch piece = provider.read(request, {});
      const std::vector<std::byte>& rows = piece.matrices.at(matrix);
      for (std::int64_t at = 0; at < std::ssize(rows); at += stride) {
        std::int32_t label = 0;
        std::memcpy(&label, rows.data() + at, sizeof label);
        if (label >= 0) ++counts.at(static_cast<std::size_t>(label));
      }
      if (piece.last) break;
    }
  }
  return counts;
}

std::vector<double> balanced_weights(const std::vector<std::int64_t>& counts) {
  const auto images = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  const auto classes =
      static_cast<double>(std::count_if(counts.begin(), counts.end(), [](std::int64_t n) { return n > 0; }));
  std::vector<double> weights;
  for (const std::int64_t count : counts)
    weights.push_back(count == 0 ? 1 : images / (classes * static_cast<double>(count)));
  return weights;
}

void keep_class_weights(IniFile& parameters, const Checkpoint& checkpoint) {
  Diagnostics reported_before;
  const IniFile saved = parse_ini("", checkpoint.parameters_text, reported_before);
  for (const IniSection& section : saved.sections) {
    const IniValue* const value = section.find(kKey);
    if (value != nullptr && value->text.starts_with("balanced[") &&
        asks_for_weights(parameters, section.name))
      set_weights(parameters, section.name, value->text);
  }
}

std::string measure_class_weights(RequestedRun& run, const Graph& graph) {
  std::string note;
  for (const Node& node : graph.nodes) {
    if (!node.is_cost() || node.layer->facts.cost->labels != CostLabels::classes) continue;
    const std::string asked = weights_of(run.files.parameters, node.section);
    if (run.options.data.balance && asked.starts_with("balanced"))
      throw InputError(
          fmt::format("'{}' has classWeights=balanced, and --balance 1 draws all classes evenly, so "
                      "rare ones would count twice as much; use one of them",
                      node.name));
    if (asked != "balanced") continue;
    const Node& labels = graph.nodes[node.inputs[0]];
    const auto matrix = static_cast<std::size_t>(labels.layer->facts.data->matrix);
    std::vector<double> weights =
        balanced_weights(count_labels(*run.provider, run.options.data.train_range, matrix));
    const auto [least, most] = std::minmax_element(weights.begin(), weights.end());
    add_note(note,
             fmt::format("classWeights=balanced of '{}': {:.4g} to {:.4g}, from the labels of batches {}",
                         node.name, *least, *most, run.options.data.train_range.str()));
    // The net may have more outputs than the data set has classes.
    weights.resize(static_cast<std::size_t>(graph.nodes[node.inputs[1]].layer->output.size()), 1);
    set_weights(run.files.parameters, node.section, fmt::format("balanced[{}]", fmt::join(weights, ",")));
  }
  return note;
}

}  // namespace convnet
