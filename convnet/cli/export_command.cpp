// `convnet export` writes a trained net as a model for ONNX, or its weights under PyTorch's names.
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
#include "convnet/net/net_weights.h"
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
  static const auto table = OptionTable<ExportOptions>().add({unsaved_option(
      "output", &ExportOptions::output,
      {.fallback = "",
       .unit = "layers",
       .doc = "comma list of the layers whose outputs are those of an ONNX model, after their "
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

using Metadata = std::vector<std::pair<std::string, std::string>>;

void add(Metadata& metadata, const std::string& key, const nlohmann::json& value) {
  using nlohmann::json;
  metadata.emplace_back(key, value.is_string() ? value.get<std::string>()
                                               : value.dump(-1, ' ', false, json::error_handler_t::replace));
}

/// Returns what a program needs to prepare images for the net. docs/export.md describes the keys.
Metadata metadata_of_images(const TrainedNet& trained) {
  const MatrixInfo& images = trained.checkpoint.matrices.at(0);
  const DataOptions& data = trained.options.data;
  Metadata metadata;
  add(metadata, "checkpoint", std::filesystem::path(trained.checkpoint.file).filename().string());
  add(metadata, "provider", data.provider);
  add(metadata, "input_dims", images.dims);
  add(metadata, "input_numbers",
      images.stores_floats() ? "float32 as in the data set" : "pixels from 0 to 255");
  const Dims& whole = images.stored.empty() ? images.dims : images.stored;
  if (data.provider == "image")
    add(metadata, "image_size", whole.back());
  else if (!images.stored.empty())
    add(metadata, "image_dims", whole);
  if (data.inner_size > 0) add(metadata, "crop_size", data.inner_size);
  return metadata;
}

/// Returns what predict prints for the net; an empty answer if there is none.
Answer usual_answer(const TrainedNet& trained, const Graph& graph) {
  return has_answer(graph) ? find_answer(graph, trained.checkpoint.matrices, "") : Answer{};
}

/// Adds the names of the classes, if the answer has a number for each, or else those of the numbers that one
/// layer predicts.
void add_names(Metadata& metadata, const Answer& answer) {
  if (!answer.class_names.empty()) {
    add(metadata, "class_output", answer.layers[0]);
    add(metadata, "class_names", answer.class_names);
  } else if (answer.layers.size() == 1) {
    add(metadata, "number_output", answer.layers[0]);
    add(metadata, "number_names", answer.number_names);
  }
}

void write_model(const std::string& file, const TrainedNet& trained, const Graph& graph,
                 const PixelStatistics& statistics, const std::string& output) {
  const std::vector<std::string> outputs = find_answer(graph, trained.checkpoint.matrices, output).layers;
  OnnxModel model = onnx_model(graph, trained.checkpoint, statistics, outputs);
  model.metadata = metadata_of_images(trained);
  add(model.metadata, "mean_subtraction", statistics.mean.empty() ? "none" : "inside the model");
  add(model.metadata, "deviation_division", statistics.deviations.empty() ? "none" : "inside the model");
  const Answer usual = usual_answer(trained, graph);
  const auto is_output = [&](const std::string& layer) { return std::ranges::count(outputs, layer) > 0; };
  if (std::ranges::all_of(usual.layers, is_output)) add_names(model.metadata, usual);
  write_onnx(file, model);
  fmt::print("{}: from {} to {}, {} operators\n", file, ports_text(model.inputs), ports_text(model.outputs),
             model.nodes.size());
  const Node* images = graph.find("images");
  if (is_output("images") && images->role != LayerRole::data)
    fmt::print("  the input is called {}, because the layer 'images' is an output\n",
               model.inputs.at(0).name);
}

/// Returns an array that NumPy broadcasts over images: for images (C,H,W) of dims (C,1,1) if all numbers of a
/// channel are equal, else (C,H,W). `numbers` has one for each channel or for each element of an image.
nlohmann::json over_image(const std::vector<float>& numbers, const Dims& image) {
  if (image.size() != 3) return numbers;
  const auto channels = static_cast<std::size_t>(image[0]), each = numbers.size() / channels;
  bool equal = true;
  for (std::size_t i = 0; i < numbers.size(); ++i) equal = equal && numbers[i] == numbers[i - i % each];
  const auto height = static_cast<std::size_t>(equal ? 1 : image[1]),
             width = static_cast<std::size_t>(equal ? 1 : image[2]);
  nlohmann::json array;
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t y = 0; y < height; ++y)
      for (std::size_t x = 0; x < width; ++x) array[c][y][x] = numbers[c * each + y * width + x];
  return array;
}

constexpr const char *kOnnx = ".onnx", *kSafetensors = ".safetensors";

/// Returns whether write_weights() has written the file. Checkpoints are safetensors files, too.
bool holds_exported_weights(const std::string& file) {
  try {
    return read_any_safetensors(file).metadata.contains("checkpoint");
  } catch (const InputError&) {  // no safetensors file
    return false;
  }
}

void write_weights(const std::string& file, const TrainedNet& trained, const Graph& graph,
                   const PixelStatistics& statistics) {
  PytorchWeights weights = pytorch_weights(graph, trained.checkpoint);
  Metadata metadata = metadata_of_images(trained);
  const Dims& image = trained.checkpoint.matrices.at(0).dims;
  if (!statistics.deviations.empty()) add(metadata, "deviations", over_image(statistics.deviations, image));
  if (!statistics.mean.empty()) add(metadata, "mean", over_image(statistics.mean, image));
  add_names(metadata, usual_answer(trained, graph));
  weights.file.metadata.insert(metadata.begin(), metadata.end());
  weights.file.metadata["format"] = "pt";  // without it, Hugging Face's libraries refuse the file
  write_safetensors(file, weights.file);
  fmt::print("{}: {} tensors\n", file, weights.file.tensors.size());
  for (const std::string& name : weights.unnamed)
    fmt::print("  {} keeps its name: PyTorch has none for it\n", name);
}

}  // namespace

const std::vector<OptionSpec>& export_command_options() { return options_of_export().specs(); }

void export_command(const std::vector<std::string>& args) {
  const auto [named, options] = split_words(export_command_options(), args);
  const ExportOptions asked =
      options_of_export().parse(parse_command_line(export_command_options(), options));
  if (named.size() != 2)
    throw InputError("usage: convnet export CHECKPOINT FILE.onnx|FILE.safetensors [--output LAYER,...]");
  const std::string& file = named[1];
  const bool weights = file.ends_with(kSafetensors);
  if (!weights && !file.ends_with(kOnnx))
    throw InputError(file +
                     ": must end with '.onnx' (a model) or '.safetensors' (weights with PyTorch's names)");
  if (weights && !asked.output.empty())
    throw InputError("--output names the outputs of an ONNX model; " + file +
                     " gets the weights of all layers");
  const TrainedNet trained = open_trained_net(named[0], {});
  check_outputs({{"convnet export:", file,
                  weights ? "the weights are to be written to" : "the model is to be written to",
                  weights ? "" : OnnxModel::begins, weights ? holds_exported_weights : nullptr}},
                {trained.checkpoint.file});
  if (weights && Position::of_file_name(std::filesystem::path(file).filename().string()))
    throw InputError("convnet export: " + file + ": is a name of checkpoints; name another file");
  const std::vector<MatrixInfo>& matrices = trained.checkpoint.matrices;
  const Graph graph = graph_of(trained, matrices);
  const std::unique_ptr<Provider> like = make_dummy_provider(matrices, trained.set.has_mean, 0);
  const PixelStatistics statistics = saved_statistics(trained.checkpoint, trained.options.data, *like);
  if (weights)
    write_weights(file, trained, graph, statistics);
  else
    write_model(file, trained, graph, statistics, asked.output);
}

}  // namespace convnet
