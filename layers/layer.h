// Layer types: their declared parameters, facts (shapes, weights), and mathematics as sequences of
// operations. Nothing here knows about devices, replicas or memory; the plan builder does.
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
#include "layers/facts.h"
#include "layers/lowering.h"

namespace convnet {

/// The shape of one image's features between two layers: maps (C,H,W), or a flat vector of `c` numbers.
struct FeatureShape {
  std::int64_t c = 0, h = 1, w = 1;
  bool image = false;  ///< the features are maps; else a flat vector
  std::int64_t size() const { return element_count({c, h, w}); }
  Dims dims(std::int64_t n) const { return image ? Dims{n, c, h, w} : Dims{n, c}; }
  std::string str() const;  ///< "64x27x27" or "4096"
  bool operator==(const FeatureShape&) const = default;
};

/// The optimiser: an UpdateRule, or momentum with a learning rate for every matrix (LARS).
enum class Optimizer { sgd, nesterov, adamw, rmsprop, lars };

/// Learning parameters of one weight matrix or bias vector.
struct LearningParams {
  Schedule epsilon;
  double momentum = 0, decay = 0;
  Optimizer optimizer = Optimizer::sgd;
  double beta2 = 0, adam_epsilon = 0;  ///< adamw, rmsprop
  double trust = 0;                    ///< lars: the trust coefficient; 0: the rate is not scaled

  UpdateRule rule() const {
    if (optimizer == Optimizer::adamw) return UpdateRule::adamw;
    if (optimizer == Optimizer::rmsprop) return UpdateRule::rmsprop;
    return optimizer == Optimizer::nesterov ? UpdateRule::nesterov : UpdateRule::momentum;
  }
};

/// A call of a function in initWFunc= or initBFunc=, like "winitfuncs.makew(old.safetensors)". The name of
/// the module is ignored.
struct InitFunction {
  std::string name;  ///< "makew"; empty: no function
  std::vector<std::string> args;
  SourceLocation where;
};
/// Returns why initWFunc or initBFunc cannot make values by this call: there is no such function, or it takes
/// other arguments; "" if it can.
std::string wrong_call(const InitFunction& f);

/// Bounds of the norms of a matrix's rows after each update; see Constrain.
struct WeightConstraint {
  std::int64_t outer = 1, groups = 1, inner = 1;  ///< the division of `dims` into rows
  double norm_min = 0, norm_max = 0, ball = 0;
  bool shrink = false;
  bool acts() const { return norm_max > 0 || ball > 0; }
};

/// A weight matrix or bias vector of a layer.
struct WeightSpec {
  /// The name within the layer: "weights.<input>" ("weights.<input>.1" if a layer reads the input twice),
  /// "biases"; for bnorm "scale", "shift", "runningMean", ...
  std::string name;
  /// The canonical dims: conv (O,I/groups,H,W), fc (out,in), sfc (parts,out,in), local (Y,X,O,I/groups,H,W);
  /// biases (O), unshared biases (O,Y,X), biases of local (Y,X,O).
  Dims dims;
  int output_axis = 0;                    ///< index of the dimension of `dims` that counts the outputs
  double init_stdev = 0, init_value = 0;  ///< N(init_value, init_stdev^2)
  LearningParams learning;
  bool state = false;  ///< running statistics: stored in checkpoints, but not learned, and without increments
  InitFunction init;
  WeightConstraint constraint;
  /// The layer that weightSource names: these weights are its matrix number `source_index`. Empty: own
  /// weights.
  std::string source_layer;
  int source_index = 0;

  bool learned() const { return !state && !learning.epsilon.frozen(); }
  /// Returns whether these are the filters of a conv or local layer.
  bool is_filters() const { return dims.size() > 3; }
};

/// A layer of a net: its checked parameters, shapes and mathematics. Immutable. before_forward(), forward(),
/// before_backward(), backward() and recompute() write down operations for one microbatch on one replica.
class Layer {
 public:
  /// Throws std::logic_error if the facts contradict each other; see check_facts().
  Layer(FeatureShape output_shape, LayerFacts layer_facts, std::vector<WeightSpec> matrices = {},
        int passes_per_update = 0);
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  /// Write down operations that all replicas of a pass run before any of them runs forward (or backward).
  virtual void before_forward(Lowering&) const {}
  virtual void before_backward(Lowering&) const {}
  virtual void forward(Lowering& l) const = 0;
  /// Called only if the layer's output has a gradient, and this layer or one below it learns.
  virtual void backward(Lowering& l) const = 0;
  /// Computes the output of a training forward again, without forward's side effects.
  virtual void recompute(Lowering& l) const { forward(l); }
  /// An operation of forward that multiplies with matrices of the layer, and so decides in which layout they
  /// are kept. `matrices` has the index into `weights` of each argument of `op`, or -1 for what is no matrix.
  struct Product {
    OpDesc op;
    std::vector<int> matrices;
  };
  /// Returns the products of forward for a microbatch, in their order.
  virtual std::vector<Product> products(const Microbatch&) const { return {}; }

  /// Returns the layer that computes the outputs [first, first + count) of this one, from all of its inputs,
  /// or for Division::as_inputs from the same elements of each input. Its matrices have these outputs along
  /// their first dimension. Returns null if the layer cannot be divided.
  virtual std::shared_ptr<const Layer> part(std::int64_t, std::int64_t) const { return nullptr; }

  /// Returns the values that a cost prints, from the accumulators summed over `images` images.
  virtual std::vector<double> cost_report(std::span<const double> sums, double images) const;
  /// Returns the names of these values, like "-log p" and "top-1 error". Layers other than costs have none.
  virtual std::vector<std::string> cost_names() const { return {}; }

  /// Returns the number of classes, if this is a data layer of class labels; else 0.
  std::int64_t label_classes() const { return facts.data ? facts.data->label_classes : 0; }
  /// Returns the number of weight matrices that belong to an input: all of `weights` but biases and bnorm's
  /// vectors.
  std::size_t input_weights() const;

  const FeatureShape output;
  const LayerFacts facts;
  const std::vector<WeightSpec> weights;
  const int update_period;  ///< backward passes per update; 0: as often as possible
};

/// A matrix of the data provider. Matrix 0 holds the images, matrix 1 the labels.
struct SourceMatrix {
  std::string name;
  FeatureShape shape;
  DataType type = DataType::u8;
  std::int64_t classes = 0;  ///< labels lie in [0, classes); 0: not labels
};

/// A layer that another one reads.
struct LayerInput {
  std::string name;
  FeatureShape shape;
  std::string type;  ///< type of the layer
  LayerFunction function = LayerFunction::other;
  std::int64_t classes = 0;                   ///< Layer::label_classes
  std::optional<int> matrix = {};             ///< DataFacts::matrix; nullopt for other layers than data
  std::vector<std::string> class_names = {};  ///< the names of these classes, or none
  std::string flat_because = {};              ///< LayerFacts::flat_because
};

/// Everything that a layer is made from, and the diagnostics to which its mistakes are reported.
struct LayerSource {
  std::string name;
  const IniSection* definition = nullptr;
  const IniSection* parameters = nullptr;  ///< null: the parameter file has no section for it
  /// The inputs in the order of inputs=; empty if their number is not known either.
  std::vector<LayerInput> inputs;
  /// Whether all inputs are right. If not, their shapes are not known, and the layer only has its own keys
  /// checked.
  bool inputs_are_right = true;
  bool strict = false;
  std::vector<SourceMatrix> matrices;  ///< the provider's, for data layers
  Diagnostics* diagnostics = nullptr;

  /// Returns a key of the layer's own section of the parameter file; null if it is not there, or comes from
  /// [DEFAULT].
  const IniValue* own_parameter(const std::string& key) const;
  /// Reports "layer 'name': message" at the key's line (or the section's, if the key is not written).
  void error(std::string_view key, const std::string& message) const;
  void warning(std::string_view key, const std::string& message) const;
};

/// A number of outputs: a positive integer, or "classes", which is as many as the data has.
struct OutputCount {
  int number = 0;  ///< 0: classes

  /// Returns the number for a layer. For "classes" that is the number of classes of the data's labels, or the
  /// length of a vector of labels. Returns nullopt after reporting on `key` that the data has no labels.
  std::optional<std::int64_t> of(const LayerSource& source, std::string_view key) const;
};
/// Parses an integer of the spec's range or "classes". Returns what is wrong, or "".
std::string parse_value(const std::string& text, const ParamSpec& spec, OutputCount& out);

namespace detail {
template <>
struct TypeName<OutputCount> {
  static constexpr const char* value = "integer or classes";
};
}  // namespace detail

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
  /// Checks the parameters, infers the shapes and makes the layer. Returns null after reporting errors, and
  /// if an input is wrong (LayerSource::inputs_are_right).
  std::shared_ptr<const Layer> (*create)(const LayerType& type, const LayerSource& source) = nullptr;
};

/// Returns all layer types, in the order of the documentation.
const std::vector<LayerType>& layer_types();
/// Returns the layer type of this name, or null.
const LayerType* find_layer_type(std::string_view name);
/// Returns the layer type that is nearest to `name` within `max_edits` edits (see nearest()), where "logreg"
/// stands for "cost.logreg"; "" if there is none.
std::string nearest_layer_type(const std::string& name, int max_edits = 2);
/// Returns the message for a name that no layer type has, with the nearest one and all that there are.
std::string unknown_layer_type(const std::string& name);

/// Returns the keys that every layer may have besides its own: type, inputs, neuron, gpu, dropout.
const std::vector<ParamSpec>& common_params();
/// Returns the keys of all layer types, and those that only cuda-convnet2 reads. A layer whose own type has
/// no such key ignores it with a warning.
const ForeignKeys& foreign_keys();
/// Returns the keys of the layer of this type with this section. With biases=0 it needs no learning
/// parameters of biases.
std::vector<ParamSpec> params_of(const LayerType& type, const IniSection& definition);

/// Parses "relu", "tanh[1.7,0.6]". Throws std::invalid_argument saying what is wrong and listing the known
/// neurons.
Neuron parse_neuron(const std::string& text);
/// Makes a neuron layer above `input`, for `neuron=`.
std::shared_ptr<const Layer> make_neuron_layer(const Neuron& f, const FeatureShape& input);
/// A neuron, for help.
struct NeuronDoc {
  std::string name, usage, formula;  ///< "tanh", "tanh[a,b]", "a*tanh(b*x)"
};
std::vector<NeuronDoc> neuron_docs();
/// Returns the known neurons: "relu, tanh[a,b], ...".
std::string known_neurons();
/// Makes a layer that concatenates the features of all inputs. Maps of one size stay maps; anything else
/// becomes a flat vector.
std::shared_ptr<const Layer> make_concat_layer(const std::vector<FeatureShape>& inputs);
/// Makes the layer of the key `dropout=p`: it drops elements with probability p in training and scales by 1-p
/// in tests.
std::shared_ptr<const Layer> make_dropout_layer(double drop, const FeatureShape& input);

/// The documentation of the key `channels`.
inline constexpr const char* kChannelsDoc =
    "maps of the input; 0: as many as it has; must be given for a vector, which is read as square maps";

/// Returns the shape of an input as `channels` maps: maps must have that many channels (0: any), a flat
/// vector becomes square maps. Returns nullopt after reporting an error on `key`.
std::optional<FeatureShape> as_maps(const LayerSource& source, std::size_t input, std::int64_t channels,
                                    std::string_view key);

/// Parses the layer's two sections into the struct at `params` by the type's table. Returns false after
/// errors. The caller may check the keys further, but before it looks at a shape, it must see whether
/// LayerSource::inputs_are_right.
bool parse_into(const LayerType& type, const LayerSource& source, void* params);
template <class Params>
bool parse_own_keys(const LayerType& type, const LayerSource& source, Params& params) {
  return parse_into(type, source, &params);
}
/// Does the same, but returns false also if the layer cannot be made because an input is wrong.
template <class Params>
bool parse_params(const LayerType& type, const LayerSource& source, Params& params) {
  return parse_into(type, source, &params) && source.inputs_are_right;
}

// One function for each type, for registry.cpp.
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
LayerType slice_type();
LayerType shuffle_type();
LayerType eltsum_type();
LayerType eltmax_type();
LayerType eltmul_type();
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
