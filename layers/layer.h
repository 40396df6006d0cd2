// What a layer type is: declared parameters, pure facts (shapes, weights), and its mathematics as a sequence
// of backend operations. Nothing here knows of devices, replicas or memory: the plan builder does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convnet/config/diagnostics.h"
#include "convnet/config/params.h"
#include "kernels/ops.h"

namespace convnet {

/// One image's features between two layers: maps (C,H,W), or a flat vector of `c` numbers.
struct FeatureShape {
  std::int64_t c = 0, h = 1, w = 1;
  bool image = false;  ///< whether H and W have a meaning
  std::int64_t size() const { return element_count({c, h, w}); }
  Dims dims(std::int64_t n) const { return image ? Dims{n, c, h, w} : Dims{n, c}; }
  std::string str() const;  ///< "64x27x27" or "4096"
  bool operator==(const FeatureShape&) const = default;
};

/// Learning parameters of one weight matrix or bias vector.
struct LearningParams {
  Schedule epsilon;
  double momentum = 0, decay = 0;
};

/// initWFunc or initBFunc: a call like "winitfuncs.makew(old.safetensors)". The module's name has no meaning.
struct InitFunction {
  std::string name;  ///< "makew", empty: none
  std::vector<std::string> args;
  SourceLocation where;
};
/// The functions there are; others are refused when weights are made from them.
bool is_init_function(std::string_view name);

/// The rules a matrix is brought under after each update; see Constrain.
struct WeightConstraint {
  std::int64_t outer = 1, groups = 1, inner = 1;  ///< how `dims` divides into rows
  double norm_min = 0, norm_max = 0, ball = 0;
  bool shrink = false;
  bool acts() const { return norm_max > 0 || ball > 0; }
};

/// A weight matrix or bias vector of a layer.
struct WeightSpec {
  std::string
      name;  ///< within the layer: "weights.<input>", "biases"; bnorm "scale", "shift", "runningMean", ...
  /// Canonical: conv (O,I/groups,H,W), fc (out,in), sfc (parts,out,in), local (Y,X,O,I/groups,H,W); biases
  /// (O), of unshared ones (O,Y,X), local (Y,X,O).
  Dims dims;
  int output_axis = 0;                    ///< which of `dims` counts the outputs
  double init_stdev = 0, init_value = 0;  ///< N(init_value, init_stdev^2)
  LearningParams learning;
  bool state = false;  ///< not learned but kept: running statistics. Has no increment.
  /// Of a part of a layer (Layer::part): the dims of the whole matrix, which lies under its name in
  /// checkpoints and has these rows of output_axis from `first_output`. Empty: this is the whole.
  Dims whole;
  std::int64_t first_output = 0;
  InitFunction init;
  WeightConstraint constraint;
  /// weightSource: these are the weights `source_index` of layer `source_layer`; empty: own ones.
  std::string source_layer;
  int source_index = 0;

  bool learned() const { return !state && !learning.epsilon.frozen(); }
  const Dims& whole_dims() const { return whole.empty() ? dims : whole; }
};

/// A tensor of the plan under construction; made by Lowering, meaningless elsewhere.
struct Value {
  int id = -1;
  bool exists() const { return id >= 0; }
};

/// Where a layer writes down its operations: one replica, one microbatch. Implemented by the plan builder,
/// which chooses buffers and layouts, adds reorders, and sums gradients that arrive from several users.
class Lowering {
 public:
  Lowering() = default;
  Lowering(const Lowering&) = delete;
  Lowering& operator=(const Lowering&) = delete;
  virtual ~Lowering() = default;

  virtual std::int64_t images() const = 0;       ///< N of this microbatch
  virtual std::int64_t first_image() const = 0;  ///< its first image's index in the minibatch
  virtual bool training() const = 0;
  /// Of each image in a test: so many neighbours are views of one, whose probabilities are averaged; else 1.
  virtual std::int64_t views() const = 0;
  /// Whether masks and noise act: in training, but not while gradients are checked.
  virtual bool random() const = 0;
  /// Whether a graph rewrite (Graph::rewrites) applies to this layer; what it means is the layer type's
  /// matter.
  virtual bool fused() const = 0;
  /// Of a relu that the layer below applies: whether that layer's backward does its part, too.
  virtual bool input_masks_gradient() const = 0;
  virtual std::uint64_t random_key() const = 0;  ///< of the seed and the layer's name
  /// Of a part of a layer: the index of an image's first element among those of the whole layer; else 0.
  virtual std::int64_t first_element() const = 0;

  virtual Value input(std::size_t i) = 0;
  virtual Value output() = 0;
  virtual Value output_gradient() = 0;  ///< backward only
  /// Whether anything below input i learns.
  virtual bool wants_input_gradient(std::size_t i) const = 0;
  /// To be written once; the builder adds it to what other users of the input contribute.
  virtual Value input_gradient(std::size_t i) = 0;
  virtual Value weights(std::size_t i) = 0;  ///< by index into Layer::weights
  virtual bool wants_weights_gradient(std::size_t i) const = 0;
  /// d(cost)/dw summed over the images; an unwanted one may be written and is dropped.
  virtual Value weights_gradient(std::size_t i) = 0;
  /// A tensor that forward writes and backward of the same microbatch may read under the same name.
  virtual Value kept(const std::string& name, const Dims& dims, DataType type) = 0;
  /// Gives an existing tensor a name for kept_by_replicas().
  virtual void keep(const std::string& name, Value value) = 0;
  /// The replicas of this layer that work in the same pass and have images: the tensors they keep under
  /// `name`, and how many images each has. In order of the replicas.
  virtual std::vector<Value> kept_by_replicas(const std::string& name) = 0;
  virtual std::vector<std::int64_t> images_of_replicas() const = 0;
  virtual bool first_replica() const = 0;
  virtual Value source(std::size_t matrix) = 0;  ///< the provider's matrix, on the host; data layers only
  /// MatrixInfo::whole of it.
  virtual Dims whole_image(std::size_t matrix) const = 0;
  virtual Value mean_image() = 0;              ///< does not exist if nothing is subtracted
  virtual Value step() = 0;                    ///< the step block
  virtual Value costs() = 0;                   ///< the device's cost accumulators
  virtual std::int64_t cost_slot() const = 0;  ///< this cost layer's first accumulator

  /// Adds an operation; `values` are its arguments in the order of arguments(op).
  virtual void run(const OpDesc& op, const std::vector<Value>& values) = 0;
  /// The same where the values may lie on several devices: it runs on that of the result and reads the others
  /// where they are.
  virtual void run_across(const OpDesc& op, const std::vector<Value>& values) = 0;
  /// input_gradient() on the device of the input instead of this layer's.
  virtual Value input_gradient_there(std::size_t i) = 0;
  /// The output is the input, without a copy.
  virtual void forward_unchanged() = 0;
  /// Input i's gradient is the output's, without a copy.
  virtual void backward_unchanged(std::size_t i = 0) = 0;
};

/// A layer of a net: its checked parameters, shapes and mathematics. Immutable after creation.
class Layer {
 public:
  Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  /// What all replicas of a pass do before one of them runs forward (or backward).
  virtual void before_forward(Lowering&) const {}
  virtual void before_backward(Lowering&) const {}
  virtual void forward(Lowering& l) const = 0;
  /// Called only where a gradient arrives and something at or below this layer learns.
  virtual void backward(Lowering& l) const = 0;
  /// Makes the output of a training forward again, without what that changed besides.
  virtual void recompute(Lowering& l) const { forward(l); }

  /// The layer that computes the outputs [first, first + count) of this one, from all of its inputs, or for
  /// element-wise layers from the same elements of each. Null: it cannot be divided.
  virtual std::shared_ptr<const Layer> part(std::int64_t, std::int64_t) const { return nullptr; }
  bool element_wise = false;
  bool model_parallel = false;  ///< parallel=model: divided over the devices of its gpu= line

  FeatureShape output;
  std::vector<WeightSpec> weights;
  int update_period = 0;  ///< backward passes per update; 0: as often as possible

  // Facts the planner uses to share memory.
  bool in_place = false;              ///< output may be written over input 0
  bool backward_reads_input = false;  ///< of any input
  bool backward_reads_output = false;
  bool backward_in_place = false;  ///< input_gradient(0) may be written over output_gradient
  bool cheap = false;  ///< --conserve-mem may recompute the output in backward instead of keeping it

  // Facts the graph's rewrites use.
  bool relu = false;            ///< computes max(0,x): the layer below may do it itself
  bool applies_relu = false;    ///< that layer below can
  bool masks_gradient = false;  ///< its backward then knows where the relu was 0: that has none of its own
  bool logistic = false;   ///< computes 1/(1+exp(-x)): a binary cost above may differentiate both at once
  bool unchanged = false;  ///< the output is the input, without a copy

  bool differentiable = true;  ///< false: no weights may lie below

  /// Data layers: the provider's matrix index; -1 for the others.
  int data_matrix = -1;
  /// Whether a data layer gives integer labels, and of how many classes.
  std::int64_t label_classes = 0;
  /// Cost layers: number of accumulators; 0 for the others.
  int cost_values = 0;
  double cost_coeff = 0;
  std::vector<std::string> cost_children;  ///< costs whose accumulators are added to this one's, not printed
  /// The values to print, from the accumulators summed over `images` images.
  virtual std::vector<double> cost_report(std::span<const double> sums, double images) const;
};

/// A matrix of the data provider: 0 images, 1 labels, others as the provider says.
struct SourceMatrix {
  std::string name;
  FeatureShape shape;
  DataType type = DataType::u8;
  std::int64_t classes = 0;  ///< labels lie in [0, classes); 0: not labels
};

struct LayerInput {
  std::string name;
  FeatureShape shape;
  std::string type;          ///< of the layer
  std::int64_t classes = 0;  ///< if it is a data layer of labels
};

/// Everything a layer is made from, and where its mistakes are reported.
struct LayerSource {
  std::string name;
  const IniSection* definition = nullptr;
  const IniSection* parameters = nullptr;  ///< null: no section in the parameter file
  std::vector<LayerInput> inputs;
  bool strict = false;
  std::vector<SourceMatrix> matrices;  ///< what the provider has; for data layers
  Diagnostics* diagnostics = nullptr;

  /// Reports "layer 'name': message" at the key's line (or the section's, if the key is not written).
  void error(std::string_view key, const std::string& message) const;
  void warning(std::string_view key, const std::string& message) const;
};

enum class LayerRole { data, weights, neuron, cost, other };

/// A type of layer, as `type=` names it.
struct LayerType {
  std::string name;
  LayerRole role = LayerRole::other;
  std::string doc;      ///< one or two sentences
  std::string formula;  ///< shape and value formulas
  std::string example;  ///< a section of a definition file, and one of a parameter file if needed
  std::vector<ParamSpec> params;
  int min_inputs = 1, max_inputs = 1;
  /// Checks, infers the shape. Returns null after reporting errors.
  std::shared_ptr<const Layer> (*create)(const LayerType& type, const LayerSource& source) = nullptr;
};

/// All layer types, in the order of the documentation. Adding a layer is one file and one line here.
const std::vector<LayerType>& layer_types();
const LayerType* find_layer_type(std::string_view name);

/// Keys every layer may have beside its own: type, inputs, neuron, gpu, dropout.
const std::vector<ParamSpec>& common_params();
/// The keys of all layer types, and those that cuda-convnet2 reads and this program does not: on a layer
/// whose own type has no such key they are ignored with a warning.
const ForeignKeys& foreign_keys();
/// The keys of a layer of this type: one with biases=0 needs no learning parameters of biases.
std::vector<ParamSpec> params_of(const LayerType& type, const IniSection& definition);

/// Parses "relu", "tanh[1.7,0.6]". Throws std::invalid_argument saying what is wrong and listing the known
/// ones.
Neuron parse_neuron(const std::string& text);
std::string to_string(const Neuron& f);
/// A neuron layer after `input`, for `neuron=`.
std::shared_ptr<const Layer> make_neuron_layer(const Neuron& f, const FeatureShape& input);
/// The functions there are: "relu, tanh[a,b], ...".
std::string known_neurons();
/// The features of all inputs, one after the other. Maps of one size stay maps, anything else becomes a flat
/// vector.
std::shared_ptr<const Layer> make_concat_layer(const std::vector<FeatureShape>& inputs);
/// The `dropout=p` shorthand: drops with probability p in training, scales by 1-p in tests.
std::shared_ptr<const Layer> make_dropout_layer(double drop, const FeatureShape& input);

/// Reads an input as `channels` maps: an image must have that many, a flat vector becomes square maps.
/// nullopt after reporting the error on `key`.
std::optional<FeatureShape> as_maps(const LayerSource& source, std::size_t input, std::int64_t channels,
                                    std::string_view key);

/// Parses the layer's two sections into the struct at `params` by the type's table; false if there were
/// errors.
bool parse_into(const LayerType& type, const LayerSource& source, void* params);
template <class Params>
bool parse_params(const LayerType& type, const LayerSource& source, Params& params) {
  return parse_into(type, source, &params);
}

// One function per type, for the registry.
LayerType data_type();
LayerType fc_type();
LayerType sfc_type();
LayerType conv_type();
LayerType local_type();
LayerType pool_type();
LayerType cmpool_type();
LayerType rnorm_type();
LayerType cmrnorm_type();
LayerType cnorm_type();
LayerType bnorm_type();
LayerType softmax_type();
LayerType concat_type();
LayerType pass_type();
LayerType eltsum_type();
LayerType eltmax_type();
LayerType sum_type();
LayerType neuron_type();
LayerType dropout_type();
LayerType dropout2_type();
LayerType nailbed_type();
LayerType blur_type();
LayerType href_type();
LayerType crop_type();
LayerType resize_type();
LayerType rscale_type();
LayerType rgb2yuv_type();
LayerType rgb2lab_type();
LayerType logreg_type();
LayerType crossent_type();
LayerType bce_type();
LayerType dce_type();
LayerType sum2_type();

}  // namespace convnet
