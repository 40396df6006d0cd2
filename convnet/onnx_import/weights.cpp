#include "convnet/onnx_import/weights.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "convnet/base/error.h"
#include "convnet/onnx_import/import.h"

namespace convnet {
namespace {

constexpr std::array<std::string_view, 4> kParameters = {".weight", ".bias", ".running_mean", ".running_var"};
constexpr std::array<std::string_view, 5> kMatrices = {".biases", ".scale", ".shift", ".runningMean",
                                                       ".runningVar"};

bool ends_with_one_of(const std::string& name, std::span<const std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

bool is_parameter(const std::string& name) { return ends_with_one_of(name, kParameters); }
/// Returns whether a tensor has the name of a matrix in a checkpoint.
bool is_matrix(const std::string& name) {
  return name.find(".weights.") != std::string::npos || ends_with_one_of(name, kMatrices);
}

/// Returns whether this program has written the model. Its tensors have the names of checkpoints
/// ("fc1.weights.pool2"), and must not take in factors of other layers, as the matrices of an import do.
bool is_of_convnet(const SourceModel& model) { return model.producer.starts_with("convnet"); }

/// Returns the dims of an image for which a model is read that leaves some of them open; empty if it says
/// all.
Dims open_dims(const SourceModel& model, const Dims& image) {
  if (model.inputs.size() != 1) return {};
  const Dims& dims = model.inputs[0].dims;
  const bool is_open = !dims.empty() && std::find(dims.begin() + 1, dims.end(), 0) != dims.end();
  return is_open && dims.size() == image.size() + 1 ? image : Dims{};
}

}  // namespace

OnnxWeights onnx_weights(const SourceModel& model, const Dims& image) {
  OnnxWeights weights;
  const bool is_ours = is_of_convnet(model);
  for (const auto& [name, tensor] : model.tensors) {
    if ((is_ours ? is_matrix(name) : is_parameter(name)) && tensor.constant && tensor.constant->is_float())
      weights.tensors.tensors[name] = {tensor.constant->dims, tensor.constant->floats()};
  }
  // PyTorch's exporter writes tensors of equal numbers once, and passes them on under their other names.
  for (const SourceNode& node : model.nodes) {
    if (node.op != "Identity" || node.inputs.size() != 1 || node.outputs.size() != 1) continue;
    const auto same = weights.tensors.tensors.find(node.inputs[0]);
    if (same != weights.tensors.tensors.end() && is_parameter(node.outputs[0]))
      weights.tensors.tensors.try_emplace(node.outputs[0], same->second);
  }
  weights.has_batch_norms = std::ranges::any_of(
      model.nodes, [](const SourceNode& node) { return node.op == "BatchNormalization"; });
  if (is_ours) return weights;
  ImportOptions options;
  options.translate.input_dims = open_dims(model, image);
  try {
    weights.layers = import_model(model, options).text.matrices;
  } catch (const InputError& refused) {
    weights.problem = refused.what();
  }
  return weights;
}

}  // namespace convnet
