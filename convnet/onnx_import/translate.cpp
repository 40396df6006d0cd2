#include "convnet/onnx_import/translate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "convnet/base/error.h"
#include "convnet/base/names.h"
#include "convnet/base/printable.h"
#include "convnet/onnx_import/operators.h"

namespace convnet {
namespace {

/// Returns the operator for messages: "node 'conv1' (Conv)".
std::string node_text(const SourceNode& node) {
  const std::string name = !node.name.empty() ? node.name : !node.outputs.empty() ? node.outputs[0] : "";
  return fmt::format("node {} ({})", excerpt(name), printable(node.op));
}

/// Marks the nodes that a tensor is computed from.
std::vector<bool> needed_for(const SourceModel& model, const std::string& output) {
  std::set<std::string> wanted = {output};
  std::vector<bool> needed(model.nodes.size(), false);
  for (std::size_t i = model.nodes.size(); i-- > 0;) {
    const SourceNode& node = model.nodes[i];
    needed[i] = std::ranges::any_of(node.outputs, [&](const std::string& o) { return wanted.contains(o); });
    if (needed[i]) wanted.insert(node.inputs.begin(), node.inputs.end());
  }
  return needed;
}

/// Returns the names of the tensors that the needed nodes read.
std::set<std::string> tensors_read(const SourceModel& model, const std::vector<bool>& needed) {
  std::set<std::string> read;
  for (std::size_t i = 0; i < needed.size(); ++i)
    if (needed[i]) read.insert(model.nodes[i].inputs.begin(), model.nodes[i].inputs.end());
  return read;
}

/// Returns the only input of a model that the needed nodes read.
const SourceInput& find_input(const SourceModel& model, const std::vector<bool>& needed) {
  const std::set<std::string> read = tensors_read(model, needed);
  const SourceInput* found = nullptr;
  for (const SourceInput& input : model.inputs) {
    if (!read.contains(input.name)) continue;
    if (found != nullptr)
      throw InputError(
          fmt::format("{}: reads several inputs, {} and {}; a net that is imported reads images "
                      "alone",
                      model.file, excerpt(found->name), excerpt(input.name)));
    found = &input;
  }
  if (found == nullptr) throw InputError(model.file + ": its output depends on no input");
  return *found;
}

/// Returns whether images have their channels last: as the operators that read them say, else as the sizes
/// do.
bool channels_last(const SourceModel& model, const SourceInput& input, const Dims& image) {
  for (const SourceNode& node : model.nodes) {
    if (node.inputs.empty() || node.inputs[0] != input.name) continue;
    if (node.op == "Conv" || node.op.ends_with("Pool") || node.op == "BatchNormalization") return false;
    // TensorFlow's models begin with an exchange of the axes.
    const auto perm = node.attributes.find("perm");
    if (node.op != "Transpose" || perm == node.attributes.end()) continue;
    const auto* axes = std::get_if<std::vector<std::int64_t>>(&perm->second);
    return axes != nullptr && *axes == std::vector<std::int64_t>{0, 3, 1, 2};
  }
  const auto channels = [](std::int64_t side) { return side == 1 || side == 3; };
  return channels(image[2]) && !channels(image[0]);
}

/// Adds the data layer. Returns its activation.
Activation add_input(NetSketch& net, const SourceModel& model, const SourceInput& input,
                     const TranslateOptions& options) {
  Dims dims = input.dims;
  if (!options.input_dims.empty()) {
    dims = {dims.empty() ? 0 : dims[0]};
    dims.insert(dims.end(), options.input_dims.begin(), options.input_dims.end());
  }
  const auto fail = [&](const std::string& why) {
    return InputError(fmt::format("{}: input {}: {}", model.file, excerpt(input.name), why));
  };
  if (dims.size() != 4 && dims.size() != 2)
    throw fail(fmt::format("has {} axes; nets read images (N,C,H,W) or vectors (N,C)", dims.size()));
  const Dims image(dims.begin() + 1, dims.end());
  constexpr std::int64_t kMostSide = 1 << 16, kMostNumbers = 1 << 25;
  if (std::ranges::count(image, 0) > 0)
    throw fail("the file leaves its size open; --input-dims says it, like --input-dims 3x224x224");
  if (std::ranges::any_of(image, [](std::int64_t side) { return side > kMostSide * 256; }) ||
      element_count(image) > kMostNumbers)
    throw fail("is too large, " + to_string(dims));
  const std::int64_t images = dims[0] == 0 ? 1 : dims[0];
  if (images > kMostSide) throw fail("has too many images, " + to_string(dims));
  FeatureShape shape{image[0], 1, 1, false};
  const bool last = image.size() == 3 && channels_last(model, input, image);
  if (image.size() == 3)
    shape = last ? FeatureShape{image[2], image[0], image[1], true}
                 : FeatureShape{image[0], image[1], image[2], true};
  SketchLayer layer{"data", {}, shape, {{"dataIdx", "0"}}, {}, {}, {}};
  const SketchId id = net.add(std::move(layer));
  const Activation stored = stored_activation(id, shape, images);
  return last ? transposed(stored, {0, 2, 3, 1}) : stored;
}

/// The translation of one model.
class Translation {
 public:
  /// `needed` says which nodes are translated.
  Translation(const SourceModel& model, const std::vector<bool>& needed, TranslatedNet& result)
      : model_(model), result_(result), read_(tensors_read(model, needed)) {
    read_.insert(result.output_name);
    std::int64_t stored = 0;
    for (const auto& [name, tensor] : model.tensors)
      if (tensor.constant) stored += tensor.constant->count();
    constexpr std::int64_t kAlways = 1 << 22;
    numbers_left_ = kAlways + 8 * stored;
  }

  void set(const std::string& tensor, SourceValue value) { values_[tensor] = std::move(value); }
  const SourceValue& value(const std::string& tensor) { return values_[tensor]; }

  /// Translates a node, or notes why it cannot be.
  void add(const SourceNode& node) {
    const std::string text = node_text(node);
    try {
      std::vector<SourceValue> inputs;
      bool known = true;
      for (const std::string& input : node.inputs) {
        inputs.push_back(input.empty() ? SourceValue() : input_value(input));
        known = known && (input.empty() || !std::holds_alternative<std::monostate>(inputs.back()));
      }
      if (!known) {  // an operator below was refused
        if (const std::string why = why_never_imported(node); !why.empty()) throw CannotImport(why);
        return;
      }
      result_.net.begin_node(text, names_of(node));
      OperatorCall call(node, std::move(inputs), model_.opset, numbers_left_, result_.net);
      const std::vector<SourceValue> outputs = import_operator(call);
      for (std::size_t i = outputs.size(); i < node.outputs.size(); ++i) {
        if (!node.outputs[i].empty() && read_.contains(node.outputs[i]))
          throw CannotImport(fmt::format("its output {} is in use, which no layer has", i + 1));
      }
      for (std::size_t i = 0; i < std::min(outputs.size(), node.outputs.size()); ++i) {
        if (const auto* constant = std::get_if<ConstantPtr>(&outputs[i]))
          numbers_left_ -= (*constant)->count();
        if (numbers_left_ < 0) throw CannotImport("the constants that the model computes are too large");
        if (!node.outputs[i].empty()) values_[node.outputs[i]] = outputs[i];
      }
    } catch (const CannotImport& why) {
      problems.push_back(text + ": " + why.what());
    }
  }

  std::vector<std::string> problems;

 private:
  /// Returns the value of an input of a node. Throws CannotImport for a stored tensor that cannot be read.
  SourceValue input_value(const std::string& tensor) {
    const auto stored = model_.tensors.find(tensor);
    if (stored == model_.tensors.end()) return values_[tensor];
    if (!stored->second.constant)
      throw CannotImport("tensor " + excerpt(tensor) + ": " + stored->second.problem);
    return stored->second.constant;
  }

  /// Returns names from which that of a layer is made: of weights, of the node, of its output.
  std::vector<std::string> names_of(const SourceNode& node) const {
    std::vector<std::string> names(3);
    if (node.inputs.size() > 1 && model_.tensors.contains(node.inputs[1])) names[0] = node.inputs[1];
    names[1] = node.name;
    if (!node.outputs.empty()) names[2] = node.outputs[0];
    return names;
  }

  const SourceModel& model_;
  TranslatedNet& result_;
  std::set<std::string> read_;  ///< tensors that something reads
  std::map<std::string, SourceValue> values_;
  std::int64_t numbers_left_ = 0;  ///< numbers that computed constants may still have
};

}  // namespace

void refuse(const std::string& file, const std::vector<std::string>& problems) {
  constexpr std::size_t kMost = 50;
  std::vector<std::string> lines;
  for (const std::string& problem : problems) {
    if (lines.size() == kMost) {
      lines.push_back(fmt::format("{}: … and {} more", file, problems.size() - kMost));
      break;
    }
    lines.push_back(file + ": " + problem);
  }
  throw InputError(join(lines, "\n"));
}

TranslatedNet translate(const SourceModel& model, const TranslateOptions& options) {
  TranslatedNet result;
  if (model.outputs.empty()) throw InputError(model.file + ": has no output");
  result.output_name = options.output.empty() ? model.outputs[0] : options.output;
  const std::vector<bool> needed = needed_for(model, result.output_name);
  if (std::ranges::find(needed, true) == needed.end()) {
    std::vector<std::string> tensors;
    for (const SourceNode& node : model.nodes)
      tensors.insert(tensors.end(), node.outputs.begin(), node.outputs.end());
    throw InputError(fmt::format("{}: no operator makes the output {}{}", model.file,
                                 excerpt(result.output_name), did_you_mean(result.output_name, tensors)));
  }
  for (const std::string& output : model.outputs)
    if (output != result.output_name) result.other_outputs.push_back(output);
  const SourceInput& input = find_input(model, needed);
  result.input_name = input.name;
  const Activation images = add_input(result.net, model, input, options);
  result.input = images.layer;
  Translation translation(model, needed, result);
  translation.set(input.name, images);
  for (std::size_t i = 0; i < needed.size(); ++i)
    if (needed[i]) translation.add(model.nodes[i]);
  if (!translation.problems.empty()) refuse(model.file, translation.problems);
  const SourceValue& output = translation.value(result.output_name);
  const auto* found = std::get_if<Activation>(&output);
  if (found == nullptr)
    throw InputError(fmt::format("{}: the output {} does not depend on the input", model.file,
                                 excerpt(result.output_name)));
  const auto has_elements = [](const AxisDigits& axis) { return !axis.empty(); };
  if (std::ranges::count_if(found->axes, has_elements) > 1 || !found->in_order())
    throw InputError(
        fmt::format("{}: the output {} is {}, and a net ends in a vector; --output names another "
                    "tensor of the model",
                    model.file, excerpt(result.output_name), to_string(found->dims())));
  result.output = found->layer;
  return result;
}

}  // namespace convnet
