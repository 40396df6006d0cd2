// `convnet export` writes a trained net as a model for ONNX.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "convnet/base/error.h"
#include "convnet/base/output_file.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/cli/trained_net.h"
#include "convnet/net/input_data.h"
#include "convnet/net/predictions.h"
#include "convnet/onnx/export.h"
#include "providers/dummy.h"

namespace convnet {
namespace {

struct ExportOptions {
  static constexpr OptionGroup group = OptionGroup::output;
  std::string output;
};

const OptionTable<ExportOptions>& options_of_export() {
  static const auto table = OptionTable<ExportOptions>().add(
      {unsaved_option("output", &ExportOptions::output,
                      {.fallback = "",
                       .unit = "layers",
                       .doc = "comma list of the layers whose outputs are those of the model, after their "
                              "neurons; if not given, the layer whose outputs predict prints"})});
  return table;
}

std::string ports_text(const std::vector<OnnxTensor>& ports) {
  std::vector<std::string> texts;
  for (const OnnxTensor& port : ports) {
    std::vector<std::string> dims = {"N"};
    for (const std::int64_t side : port.image) dims.push_back(std::to_string(side));
    texts.push_back(port.name + " (" + join(dims) + ")");
  }
  return join(texts);
}

/// Returns what a program needs to prepare images for the model, and to name its outputs. docs/export.md
/// describes the keys.
std::vector<std::pair<std::string, std::string>> metadata_of(const TrainedNet& trained,
                                                             const PixelStatistics& statistics,
                                                             const Graph& graph,
                                                             const std::vector<std::string>& outputs) {
  const MatrixInfo& images = trained.checkpoint.matrices.at(0);
  const DataOptions& data = trained.options.data;
  std::vector<std::pair<std::string, std::string>> metadata;
  const auto add = [&](const std::string& key, const nlohmann::json& value) {
    using nlohmann::json;
    metadata.emplace_back(key, value.is_string()
                                   ? value.get<std::string>()
                                   : value.dump(-1, ' ', false, json::error_handler_t::replace));
  };
  add("checkpoint", std::filesystem::path(trained.checkpoint.file).filename().string());
  add("provider", data.provider);
  add("input_dims", images.dims);
  add("input_numbers", images.stores_floats() ? "float32 as in the data set" : "pixels from 0 to 255");
  add("mean_subtraction", statistics.mean.empty() ? "none" : "inside the model");
  add("deviation_division", statistics.deviations.empty() ? "none" : "inside the model");
  const Dims& whole = images.stored.empty() ? images.dims : images.stored;
  if (data.provider == "image")
    add("image_size", whole.back());
  else if (!images.stored.empty())
    add("image_dims", whole);
  if (data.inner_size > 0) add("crop_size", data.inner_size);
  if (!has_answer(graph)) return metadata;
  const Answer usual = find_answer(graph, trained.checkpoint.matrices, "");
  if (usual.class_names.empty() || std::ranges::find(outputs, usual.layers[0]) == outputs.end())
    return metadata;
  add("class_output", usual.layers[0]);
  add("class_names", usual.class_names);
  return metadata;
}

}  // namespace

const std::vector<OptionSpec>& export_command_options() { return options_of_export().specs(); }

void export_command(const std::vector<std::string>& args) {
  const auto [named, options] = split_words(export_command_options(), args);
  const ExportOptions asked =
      options_of_export().parse(parse_command_line(export_command_options(), options));
  if (named.size() != 2) throw InputError("usage: convnet export CHECKPOINT FILE.onnx [--output LAYER,...]");
  const TrainedNet trained = open_trained_net(named[0], {});
  check_outputs({{"FILE.onnx", named[1], "the model is to be written to", OnnxModel::begins}},
                {trained.checkpoint.file});
  const std::vector<MatrixInfo>& matrices = trained.checkpoint.matrices;
  const Graph graph = graph_of(trained, matrices);
  const std::unique_ptr<Provider> like = make_dummy_provider(matrices, trained.set.has_mean, 0);
  const PixelStatistics statistics = saved_statistics(trained.checkpoint, trained.options.data, *like);
  const std::vector<std::string> outputs = find_answer(graph, matrices, asked.output).layers;
  OnnxModel model = onnx_model(graph, trained.checkpoint, statistics, outputs);
  model.metadata = metadata_of(trained, statistics, graph, outputs);
  make_folders_of(named[1]);
  write_onnx(named[1], model);
  fmt::print("{}: from {} to {}, {} operators\n", named[1], ports_text(model.inputs),
             ports_text(model.outputs), model.nodes.size());
}

}  // namespace convnet
