// The interface that a layer writes its operations into, for one replica and one microbatch: the facts of
// the microbatch, its tensors, what its replicas have, what the step has, and where operations go. The plan
// builder implements all of it; it chooses buffers and layouts, adds reorders, and sums the gradients that
// arrive from several users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convnet/base/tensor.h"
#include "kernels/ops.h"

namespace convnet {

/// A tensor of the plan under construction; made by a Lowering, meaningless elsewhere.
struct Value {
  int id = -1;
  bool exists() const { return id >= 0; }
};

/// Facts of the microbatch and the replica that operations are written down for.
struct Microbatch {
  std::int64_t images = 0;       ///< N
  std::int64_t first_image = 0;  ///< index of its first image in the minibatch
  std::int64_t views = 1;  ///< consecutive images that are views of the same one (multiview test); else 1
  bool training = false;
  bool random = false;  ///< masks and noise act: in training, but not while gradients are checked
  bool fused = false;   ///< a rewrite (Graph::rewrites) applies to this layer, whose type knows which
  /// For a relu fused into the layer below: whether that layer's backward also masks the gradient.
  bool input_masks_gradient = false;
  std::uint64_t random_key = 0;    ///< of the seed and the layer's name
  std::int64_t first_element = 0;  ///< of a part of a layer: its first element in an image of the whole layer
  bool first_replica = true;       ///< of those that work in the same pass
};

/// The layer's own tensors in this microbatch.
class LayerTensors {
 public:
  LayerTensors() = default;
  LayerTensors(const LayerTensors&) = delete;
  LayerTensors& operator=(const LayerTensors&) = delete;
  virtual ~LayerTensors() = default;

  virtual Value input(std::size_t i) = 0;
  virtual Value output() = 0;
  virtual Value output_gradient() = 0;  ///< in backward only
  /// Returns whether anything below input i learns.
  virtual bool wants_input_gradient(std::size_t i) const = 0;
  /// The gradient of input i, which must be written once; it is added to what other users contribute.
  virtual Value input_gradient(std::size_t i) = 0;
  /// input_gradient() on the device of the input instead of this layer's.
  virtual Value input_gradient_there(std::size_t i) = 0;
  virtual Value weights(std::size_t i) = 0;  ///< by index into Layer::weights
  virtual bool wants_weights_gradient(std::size_t i) const = 0;
  /// d(cost)/dw summed over the images; an unwanted one may be written and is dropped.
  virtual Value weights_gradient(std::size_t i) = 0;
  /// A tensor that forward writes and backward of the same microbatch may read under the same name.
  virtual Value kept(const std::string& name, const Dims& dims, DataType type) = 0;
};

/// The replicas of the layer that work in the same pass and have images, in order.
class Replicas {
 public:
  Replicas() = default;
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;
  virtual ~Replicas() = default;

  /// Gives an existing tensor of this replica a name under which it is kept.
  virtual void keep(const std::string& name, Value value) = 0;
  /// Tensors that say something about so many images.
  struct Statistics {
    std::int64_t images = 0;
    std::vector<Value> values;
  };
  /// Writes down the operation that merges the statistics of several parts of the images into those of all.
  using Merge = std::function<void(const std::vector<Statistics>& parts, const std::vector<Value>& merged)>;
  /// Merges the tensors of `dims` that the replicas keep under the names `from`. This replica keeps the
  /// result under the names `into`. What is merged may have been merged before: replicas that are near each
  /// other come first. Some replicas merge, others take the results of theirs.
  virtual void merge_replicas(const std::vector<std::string>& from, const std::vector<std::string>& into,
                              const Dims& dims, const Merge& merge) = 0;
  /// Returns how many images each has.
  virtual std::vector<std::int64_t> images_of_replicas() const = 0;
};

/// The tensors of the step, which belong to no layer.
class StepTensors {
 public:
  StepTensors() = default;
  StepTensors(const StepTensors&) = delete;
  StepTensors& operator=(const StepTensors&) = delete;
  virtual ~StepTensors() = default;

  /// The provider's matrix, in the host's memory; for data layers only.
  virtual Value source(std::size_t matrix) = 0;
  virtual Dims whole_image(std::size_t matrix) const = 0;  ///< MatrixInfo::whole
  virtual Value mean_image() = 0;                          ///< does not exist if nothing is subtracted
  virtual Value step() = 0;                                ///< the step block
  virtual Value costs() = 0;                               ///< the device's cost accumulators
  virtual std::int64_t cost_slot() const = 0;              ///< this cost layer's first accumulator
};

/// Takes the operations that a layer writes down.
class OperationSink {
 public:
  OperationSink() = default;
  OperationSink(const OperationSink&) = delete;
  OperationSink& operator=(const OperationSink&) = delete;
  virtual ~OperationSink() = default;

  /// Adds an operation; `values` are its arguments in the order of arguments(op).
  virtual void run(const OpDesc& op, const std::vector<Value>& values) = 0;
  /// The same where the values may lie on several devices: the operation runs on that of the result and reads
  /// the others where they are.
  virtual void run_across(const OpDesc& op, const std::vector<Value>& values) = 0;
  /// The output is the input, without a copy.
  virtual void forward_unchanged() = 0;
  /// The gradient of input i is that of the output, without a copy.
  virtual void backward_unchanged(std::size_t i = 0) = 0;
};

/// All that a layer sees.
class Lowering : public LayerTensors, public Replicas, public StepTensors, public OperationSink {
 public:
  virtual const Microbatch& microbatch() const = 0;
};

}  // namespace convnet
