// The interface to which a layer writes its operations, for one replica and one microbatch. It gives the
// layer the facts of the microbatch, its own tensors, those of other replicas and those of the step. The plan
// builder implements it with tasks: it chooses buffers and layouts, adds reorders, and sums gradients that
// arrive from several users. The ONNX export (onnx/) implements it with operators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convnet/base/tensor.h"
#include "kernels/ops.h"

namespace convnet {

/// A handle of a tensor of the plan under construction. It is valid only for the Lowering that made it.
struct Value {
  int id = -1;
  bool exists() const { return id >= 0; }
};

/// Facts of the microbatch and the replica that operations are written down for.
struct Microbatch {
  std::int64_t images = 0;       ///< N: number of rows, which are images or views of images
  std::int64_t first_image = 0;  ///< index of its first row in the minibatch
  std::int64_t views = 1;  ///< number of consecutive rows that are views of the same image; 1 in training
  bool training = false;
  bool random = false;  ///< masks and noise are on: in training, but not while gradients are checked
  bool fused = false;   ///< a rewrite (Graph::rewrites) applies to this layer; its type knows which one
  Neuron neuron = {};   ///< the neuron above that this layer applies; ident if there is none
  /// If this layer's neuron is fused into the layer below: that layer's backward also multiplies the gradient
  /// by the neuron's slope.
  bool input_differentiates = false;
  std::uint64_t random_key = 0;  ///< hash of the seed and the layer's name (philox_key())
  bool first_replica = true;     ///< the first of the replicas that work in the same pass
};

/// Everything that a layer sees.
class Lowering {
 public:
  Lowering() = default;
  Lowering(const Lowering&) = delete;
  Lowering& operator=(const Lowering&) = delete;
  virtual ~Lowering() = default;

  virtual const Microbatch& microbatch() const = 0;

  // The layer's own tensors in this microbatch. N is Microbatch::images. Inputs and outputs are (N,C,H,W), or
  // (N,C) if the FeatureShape is no image; gradients have the shapes of what they are gradients of.

  virtual Value input(std::size_t i) = 0;
  virtual Value output() = 0;
  virtual Value output_gradient() = 0;  ///< in backward only
  /// Returns whether anything at or below input i learns.
  virtual bool wants_input_gradient(std::size_t i) const = 0;
  /// Returns this layer's contribution to the gradient of input i, which backward must write exactly once. It
  /// is then added to the contributions of other users of the input.
  virtual Value input_gradient(std::size_t i) = 0;
  /// Returns matrix i of Layer::weights, in f32 and with WeightSpec::dims.
  virtual Value weights(std::size_t i) = 0;
  virtual bool wants_weights_gradient(std::size_t i) const = 0;
  /// Returns the gradient of matrix i: d(cost)/dw summed over the images. One that is not wanted may be
  /// written; it is dropped.
  virtual Value weights_gradient(std::size_t i) = 0;
  /// Returns a tensor that forward writes and that backward of the same microbatch may read under the same
  /// name.
  virtual Value kept(const std::string& name, const Dims& dims, DataType type) = 0;

  // The replicas of the layer that work in the same pass and have images, in order.

  /// Keeps an existing tensor of this replica under a name.
  virtual void keep(const std::string& name, Value value) = 0;
  /// Statistics of `images` images.
  struct Statistics {
    std::int64_t images = 0;
    std::vector<Value> values;
  };
  /// A function that writes down the operation which merges the statistics of several parts of the images
  /// into those of all of them.
  using Merge = std::function<void(const std::vector<Statistics>& parts, const std::vector<Value>& merged)>;
  /// Merges the tensors, with dims `dims`, that the replicas keep under the names `from`. This replica keeps
  /// the result under the names `into`. Replicas on one host may be merged first, so that `merge` may get
  /// merged statistics. The plan decides which replicas merge; the others copy a result.
  virtual void merge_replicas(const std::vector<std::string>& from, const std::vector<std::string>& into,
                              const Dims& dims, const Merge& merge) = 0;
  /// Returns the number of images of each replica.
  virtual std::vector<std::int64_t> images_of_replicas() const = 0;

  // The tensors of the step, which belong to no layer.

  /// Returns the microbatch's rows of a provider's matrix, in the host's memory; for data layers only.
  virtual Value source(std::size_t matrix) = 0;
  virtual Dims uncropped_image(std::size_t matrix) const = 0;  ///< MatrixInfo::uncropped
  /// Returns the mean image, (1,C,H,W) or (1,C), which does not exist if nothing is subtracted.
  virtual Value mean_image() = 0;
  virtual Value step() = 0;                    ///< the step block (StepHeader)
  virtual Value costs() = 0;                   ///< the device's cost accumulators
  virtual std::int64_t cost_slot() const = 0;  ///< index of this cost layer's first accumulator

  // The operations of the layer.

  /// Adds an operation; `values` are its arguments in the order of arguments(op).
  virtual void run(const OpDesc& op, const std::vector<Value>& values) = 0;
  /// Does the same for values on several devices: the operation runs on the device of its result and reads
  /// the other arguments where they are.
  virtual void run_across(const OpDesc& op, const std::vector<Value>& values) = 0;
  /// Makes input 0 the output, without a copy.
  virtual void forward_unchanged() = 0;
  /// Makes the gradient of the output that of input i, without a copy.
  virtual void backward_unchanged(std::size_t i = 0) = 0;
};

}  // namespace convnet
