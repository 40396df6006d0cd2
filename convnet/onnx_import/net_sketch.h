// The net that an import makes, before it is written: layers that grow with each operator of the model, and
// that are simplified when all are there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convnet/onnx_import/activation.h"

namespace convnet {

/// The numbers of a weight matrix, as checkpoints have them.
struct SketchMatrix {
  Dims dims;
  std::shared_ptr<const std::vector<float>> values;
};
inline SketchMatrix make_matrix(Dims dims, std::vector<float> values) {
  return {std::move(dims), std::make_shared<const std::vector<float>>(std::move(values))};
}

/// An element-wise function. Two names are none of the program's: "erf" is erf(x*a), and "erf1" is 1 +
/// erf(x*a). They are parts of gelu, and cannot be written alone.
struct SketchNeuron {
  std::string name;
  double a = 1, b = 0;
  /// Returns whether it is linear[a,b].
  bool is_linear() const { return name == "linear"; }
  std::string text() const;  ///< "tanh[1,0.5]"
};

/// A layer. Besides the types of the program there are three that only pass through a sketch:
/// - "pad" puts zeros around maps; `border` says how many. A layer with windows takes it in; it is a conv
///   layer if none does.
/// - "affine" multiplies each map by a number and adds one; it is a conv layer if no other takes it in.
/// - "shift" adds a number to each element; the data layer or a conv layer takes it in.
struct SketchLayer {
  std::string type;
  std::vector<SketchId> inputs;
  FeatureShape shape;
  std::vector<std::pair<std::string, std::string>> keys;        ///< of the definition file, without inputs
  std::vector<std::pair<std::string, std::string>> parameters;  ///< of the parameter file
  SketchNeuron neuron;                                          ///< of type "neuron"
  std::map<std::string, SketchMatrix> matrices;                 ///< by name, without the name of the input
  struct Border {
    std::int64_t top = 0, left = 0, bottom = 0, right = 0;
    float value = 0;
    bool is_even() const { return top == left && bottom == left && right == left; }
  } border = {};
  std::vector<double> coeffs = {};  ///< of type "eltsum", by input
  std::int64_t first_map = -1;      ///< of a "slice"
  std::string comment = {};         ///< a line above the section
  bool positive = false;            ///< no number of the output is below 0, as far as the type tells
  /// Where it comes from: the operator for messages, and names in the model from which its own is made, the
  /// best first.
  std::string node = {};
  std::vector<std::string> names = {};
  std::string suffix = {};  ///< what is appended to the name, if the operator's own layer is another one
};

/// The layers, each after those that it reads.
class NetSketch {
 public:
  /// Layers that are added from now on come from an operator with these names.
  void begin_node(std::string node, std::vector<std::string> names) {
    node_ = std::move(node);
    names_ = std::move(names);
  }

  SketchId add(SketchLayer layer);
  /// Counts numbers that an operator makes of others. Throws CannotImport if the model makes too many: a
  /// small file could repeat a large constant, or parts of many maps, without end.
  void charge(std::int64_t numbers);
  /// Adds an element-wise function, or changes one below it so that there is one function instead of two
  /// where the program has it: linear functions of linear ones, tanh[a,b], hsigmoid. Returns the layer with
  /// the result, which may be an older one.
  SketchId add_neuron(SketchId input, const SketchNeuron& neuron);
  /// Adds x * a + b.
  SketchId add_linear(SketchId input, double a, double b);
  /// Adds an affine function of each map; the vectors have a number for each.
  SketchId add_affine(SketchId input, std::vector<float> scale, std::vector<float> shift);
  /// Adds the sum of layers with these factors.
  SketchId add_sum(std::vector<SketchId> inputs, std::vector<double> coeffs);
  /// Adds the product of two layers. Products that are silu, mish, gelu or hswish become these.
  SketchId add_product(SketchId a, SketchId b);
  /// Returns a layer with these maps of another one, at least one, in this order. It is added only once.
  SketchId add_selection(SketchId input, const std::vector<std::int64_t>& maps);

  const SketchLayer& operator[](SketchId id) const { return layers_[id]; }
  SketchLayer& operator[](SketchId id) { return layers_[id]; }
  std::size_t size() const { return layers_.size(); }
  const FeatureShape& shape(SketchId id) const { return layers_[id].shape; }

 private:
  /// Returns the neuron of a layer, if it is one with this name; else null.
  const SketchNeuron* neuron_called(SketchId id, const char* name) const;
  bool is_positive(const SketchLayer& layer) const;
  /// Adds the function x * f(x) if `gate` is an f(x) that makes it one of the program's; else nullopt.
  std::optional<SketchId> gated(SketchId x, SketchId gate);

  std::vector<SketchLayer> layers_;
  /// Returns the input of a concatenation that some of its maps are; nullopt if there is none.
  std::optional<SketchId> part_of_concat(SketchId layer, std::int64_t start, std::int64_t maps) const;
  /// Add layers with the maps from `start` on, and with any maps in any order.
  SketchId add_slice(SketchId input, std::int64_t start, std::int64_t maps);
  SketchId add_convolution_of_ones(SketchId input, const std::vector<std::int64_t>& maps);

  std::map<std::pair<SketchId, std::vector<std::int64_t>>, SketchId> selections_;
  std::map<std::pair<SketchId, std::int64_t>, SketchId> shuffles_;  ///< by input and groups
  std::int64_t numbers_left_ = std::int64_t{1} << 26;               ///< that charge() takes
  std::string node_;
  std::vector<std::string> names_;
};

}  // namespace convnet
