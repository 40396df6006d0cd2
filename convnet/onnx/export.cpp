#include "convnet/onnx/export.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>

#include "convnet/base/error.h"
#include "convnet/net/net_weights.h"
#include "convnet/net/outputs.h"
#include "convnet/onnx/operators.h"

namespace convnet {
namespace {

/// A tensor of the model, with the dims in which it was made. For an activation these are the dims of one
/// image.
struct Tensor {
  std::string name;
  Dims dims;
  bool constant = false;
};

Dims image_dims(const FeatureShape& shape) { return args::one_image(shape.dims(1)); }

/// The model under construction, and the tensors that layers share.
class ModelTensors {
 public:
  ModelTensors(const Graph& graph, const Checkpoint& checkpoint, const PixelStatistics& statistics,
               const std::vector<std::string>& outputs, OnnxModel& model)
      : sections_(names_of_sections(graph)),
        reserved_(names_of_inputs(graph, checkpoint, outputs)),
        builder_(model, sections_),
        graph_(graph),
        checkpoint_(checkpoint),
        statistics_(statistics),
        model_(model) {}

  /// The provider's matrix: images with what the provider and a step do to their pixels.
  const Tensor& source(std::size_t matrix) {
    const auto [found, is_new] = sources_.try_emplace(matrix);
    Tensor& tensor = found->second;
    if (!is_new) return tensor;
    const MatrixInfo& info = checkpoint_.matrices.at(matrix);
    const std::string wanted = wanted_name(checkpoint_, matrix);
    tensor = {reserved_.contains(wanted) ? wanted : builder_.unique(wanted), info.dims};
    model_.inputs.push_back({tensor.name, tensor.dims});
    if (matrix > 0) return tensor;
    builder_.begin_layer(tensor.name);
    if (!statistics_.deviations.empty()) {
      Dims of_channels(info.dims.size(), 1);
      of_channels[0] = info.dims[0];
      tensor.name = builder_.add(
          "Div", {tensor.name, builder_.numbers("deviations", of_channels, statistics_.deviations)});
    }
    if (!statistics_.mean.empty())
      tensor.name = builder_.add("Sub", {tensor.name, builder_.numbers("mean", info.dims, statistics_.mean)});
    return tensor;
  }

  /// A weight matrix, under the name that it has in checkpoints.
  Tensor weights(const WeightOwner& owner) {
    const WeightSpec& spec = graph_.weight(owner);
    const std::string& layer = graph_.nodes[owner.node].layer_name;
    const std::string name = layer + "." + spec.name;
    const auto [found, is_new] = weights_.try_emplace(name);
    if (is_new) {
      found->second = builder_.unique(name);
      model_.constants.push_back({found->second, spec.dims, tested_matrix(checkpoint_, layer, spec)});
    }
    return {found->second, spec.dims, true};
  }

  /// Adds the operators of a layer. The tensor that the users of a section read gets the section's name.
  void add_layer(const Node& node);
  /// Notes the output of a layer without operators for the layers above it.
  void leave_out(const Node& node) { outputs_[node.id] = {node.section, image_dims(node.layer->output)}; }
  /// Makes a tensor an output of the model, under this name.
  void add_output(const std::string& name, const Tensor& tensor) {
    if (tensor.name != name) {
      builder_.begin_layer(name);
      builder_.rename(builder_.add("Identity", {tensor.name}), name);
    }
    model_.outputs.push_back({name, tensor.dims});
  }

  /// The output of a layer that is there already.
  const Tensor& output_of(NodeId id) const { return outputs_.at(id); }
  OnnxBuilder& builder() { return builder_; }

 private:
  /// Returns the name that programs expect of the input for a matrix.
  static std::string wanted_name(const Checkpoint& checkpoint, std::size_t matrix) {
    return matrix == 0 ? "images" : checkpoint.matrices.at(matrix).name;
  }
  /// Returns the names of layers that are inputs' names instead: those of data layers, and those of layers
  /// that are no outputs.
  static std::set<std::string> names_of_inputs(const Graph& graph, const Checkpoint& checkpoint,
                                               const std::vector<std::string>& outputs) {
    std::set<std::string> names;
    for (std::size_t matrix = 0; matrix < checkpoint.matrices.size(); ++matrix) {
      const std::string name = wanted_name(checkpoint, matrix);
      const Node* layer = graph.find(name);
      const bool is_output = std::find(outputs.begin(), outputs.end(), name) != outputs.end();
      if (layer != nullptr && (layer->role == LayerRole::data || !is_output)) names.insert(name);
    }
    return names;
  }

  static std::set<std::string> names_of_sections(const Graph& graph) {
    std::set<std::string> names;
    for (const Node& node : graph.nodes) names.insert(node.section);
    return names;
  }

  const std::set<std::string> sections_;
  const std::set<std::string> reserved_;  ///< names of layers that inputs have
  OnnxBuilder builder_;
  const Graph& graph_;
  const Checkpoint& checkpoint_;
  const PixelStatistics& statistics_;
  OnnxModel& model_;
  std::map<NodeId, Tensor> outputs_;
  std::map<std::size_t, Tensor> sources_;
  std::map<std::string, std::string> weights_;  ///< names in the model by names in the checkpoint
};

/// Turns the operations that a layer writes down for a test of one image into operators.
class LayerWriter : public Lowering {
 public:
  LayerWriter(const Node& node, ModelTensors& model) : node_(node), model_(model) { microbatch_.images = 1; }

  /// Writes the layer. Returns its output.
  Tensor write() {
    node_.layer->forward(*this);
    return tensors_[static_cast<std::size_t>(output().id)];
  }

  const Microbatch& microbatch() const override { return microbatch_; }
  Value input(std::size_t i) override { return value(model_.output_of(node_.inputs[i])); }
  Value output() override {
    if (!output_.exists()) output_ = value({});
    return output_;
  }
  Value weights(std::size_t i) override { return value(model_.weights(node_.owners[i])); }
  Value source(std::size_t matrix) override { return value(model_.source(matrix)); }
  Dims uncropped_image(std::size_t) const override { return {}; }
  Value mean_image() override { return {}; }  // source() has subtracted it
  Value step() override { return value({}); }
  void run(const OpDesc& op, const std::vector<Value>& values) override {
    const std::vector<Argument> arguments = convnet::arguments(op);
    OnnxArguments read;
    Tensor* written = nullptr;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      Tensor& tensor = tensors_[static_cast<std::size_t>(values[i].id)];
      if (arguments[i].access != Access::read) written = &tensor;
      if (arguments[i].access != Access::write) read.push_back(seen_as(arguments[i], tensor));
    }
    if (written == nullptr) throw std::logic_error("onnx: " + op_name(op) + " writes nothing");
    const auto dims = std::find_if(arguments.begin(), arguments.end(), [](const Argument& a) {
                        return a.access != Access::read;
                      })->dims;
    *written = {add_operation(model_.builder(), op, read), args::one_image(dims)};
  }
  void run_across(const OpDesc& op, const std::vector<Value>& values) override { run(op, values); }
  void forward_unchanged() override {
    tensors_[static_cast<std::size_t>(output().id)] = model_.output_of(node_.inputs[0]);
  }

  // Only training and costs ask for these.
  Value output_gradient() override { throw not_in_tests(); }
  bool wants_input_gradient(std::size_t) const override { throw not_in_tests(); }
  Value input_gradient(std::size_t) override { throw not_in_tests(); }
  bool wants_weights_gradient(std::size_t) const override { throw not_in_tests(); }
  Value weights_gradient(std::size_t) override { throw not_in_tests(); }
  Value kept(const std::string&, const Dims&, DataType) override { throw not_in_tests(); }
  void keep(const std::string&, Value) override { throw not_in_tests(); }
  void merge_replicas(const std::vector<std::string>&, const std::vector<std::string>&, const Dims&,
                      const Merge&) override {
    throw not_in_tests();
  }
  std::vector<std::int64_t> images_of_replicas() const override { throw not_in_tests(); }
  Value costs() override { throw not_in_tests(); }
  std::int64_t cost_slot() const override { throw not_in_tests(); }
  void backward_unchanged(std::size_t) override { throw not_in_tests(); }

 private:
  std::logic_error not_in_tests() const {
    return std::logic_error("onnx: layer '" + node_.name + "' asks for what tests do not have");
  }
  Value value(Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    return {static_cast<int>(tensors_.size()) - 1};
  }
  /// The name of a tensor with the dims that an operation sees it with.
  std::string seen_as(const Argument& argument, const Tensor& tensor) {
    if (tensor.constant || tensor.name.empty()) return tensor.name;
    const Dims image = args::one_image(argument.dims);
    return image == tensor.dims ? tensor.name : model_.builder().reshaped(tensor.name, image);
  }

  const Node& node_;
  ModelTensors& model_;
  Microbatch microbatch_;
  std::vector<Tensor> tensors_;  ///< by Value::id
  Value output_;
};

void ModelTensors::add_layer(const Node& node) {
  builder_.begin_layer(node.section);
  const std::string made = (outputs_[node.id] = LayerWriter(node, *this).write()).name;
  const bool of_section = made.starts_with(node.section + "/") && !sections_.contains(made);
  const auto above = [&](NodeId user) { return graph_.nodes[user].section == node.section; };
  const bool is_input = reserved_.contains(node.section);
  if (!of_section || is_input || std::any_of(node.users.begin(), node.users.end(), above)) return;
  builder_.rename(made, node.section);
  for (auto& [id, tensor] : outputs_) {
    if (tensor.name == made) tensor.name = node.section;
  }
}

/// Says that a layer cannot be exported, and which ones below it can.
std::string no_operator(const Graph& graph, const Node& node, const std::string& what) {
  std::string text =
      "layer '" + node.section + "' of type '" + node.type + "': ONNX has no operator for " + what;
  const Node* below = node.inputs.empty() ? nullptr : &graph.nodes[node.inputs[0]];
  if (below != nullptr && below->role != LayerRole::data)
    text += "; --output " + below->section + " exports the layers before it";
  return text;
}

}  // namespace

OnnxModel onnx_model(const Graph& graph, const Checkpoint& checkpoint, const PixelStatistics& statistics,
                     const std::vector<std::string>& outputs) {
  OnnxModel result;
  result.name = std::filesystem::path(checkpoint.definition_path).stem().string();
  std::vector<NodeId> wanted;
  for (const std::string& name : outputs) wanted.push_back(nodes_with_features(graph, name).at(0));
  const std::set<NodeId> needed = graph.needed_for(wanted);
  ModelTensors model(graph, checkpoint, statistics, outputs, result);
  Diagnostics diagnostics;
  for (const Node& node : graph.nodes) {
    if (!needed.contains(node.id)) continue;
    try {
      model.add_layer(node);
    } catch (const NotInOnnx& missing) {
      diagnostics.error(node.where, no_operator(graph, node, missing.what()));
      model.leave_out(node);
    }
  }
  diagnostics.throw_if_errors();
  for (std::size_t i = 0; i < outputs.size(); ++i) model.add_output(outputs[i], model.output_of(wanted[i]));
  return result;
}

}  // namespace convnet
