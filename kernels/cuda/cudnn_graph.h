// Convolutions by cuDNN's graph interface: descriptors, the graph of a convolution and the operations fused
// with it, the engines that the library proposes for a graph, and execution plans.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "kernels/cuda/form.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/prepare.h"
#include "kernels/cuda/sizes.h"

namespace convnet::cuda {

/// Owns a descriptor of the library. Set its attributes, then finalize() it, then use it.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    check(cudnnBackendCreateDescriptor(type, handle_.put()), "making a descriptor");
  }
  cudnnBackendDescriptor_t get() const { return handle_.get(); }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values) const {
    check(cudnnBackendSetAttribute(get(), name, type, count, values), "attribute " + std::to_string(name));
  }
  void set(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values) const {
    set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, std::int64_t value) const {
    set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, float value) const { set(name, CUDNN_TYPE_FLOAT, 1, &value); }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) const {
    cudnnBackendDescriptor_t handle = value.get();
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
  }
  void set(cudnnBackendAttributeName_t name, cudnnHandle_t value) const {
    set(name, CUDNN_TYPE_HANDLE, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) const {
    set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  void finalize(const char* what = "describing a convolution") const {
    check(cudnnBackendFinalize(get()), what);
  }

 private:
  Owned<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor> handle_;
};

enum class ConvPass { forward, backward_data, backward_weights };

/// The form in which the library gets the images.
enum class ConvImages {
  given,   ///< the argument itself
  padded,  ///< a copy with all padding
  blocks   ///< a copy as blocks of stride x stride pixels, with a number of channels that suits engines
};

/// One way to compute a convolution.
struct ConvVariant {
  /// Bias and relu are part of the graph. The bias has the type of the activations, because engines that are
  /// not compiled at run time require it.
  bool fused = false;
  ConvImages images = ConvImages::given;
  std::string name() const {
    static constexpr std::array kImages = {"", "+padded", "+blocks"};
    return std::string(fused ? "fused" : "plain") + kImages.at(static_cast<std::size_t>(images));
  }
};

/// A pass of a convolution, with the other work of its operation.
struct ConvProblem {
  ConvPass pass = ConvPass::forward;
  ConvGeometry g;
  bool bias = false, relu = false, accumulate = false;
  bool plain_images = false;  ///< the images are plain, because they are a flat vector that is read as maps
  Precision precision = Precision::tf32;

  /// Returns the type of the activations, of the weights and of their gradients.
  DataType type() const { return product_type(precision); }
  /// Returns the geometry of the convolution that the library does.
  ConvGeometry geometry(const ConvVariant& variant) const {
    switch (variant.images) {
      case ConvImages::given: return g;
      case ConvImages::padded: return with_padding(g);
      case ConvImages::blocks: break;
    }
    return over_blocks(g, g.stride.x, kLoadBytes / size_of(type()));
  }
  std::string name() const {
    static constexpr std::array kPasses = {"forward", "backward_data", "backward_weights"};
    return std::string("conv.") + kPasses.at(static_cast<std::size_t>(pass)) + " " + to_string(g.src()) +
           " * " + to_string(g.weights()) + " -> " + to_string(g.dst()) + " stride " + to_string(g.stride) +
           " pad " + to_string(g.pad) + (g.dilation == Sides(1) ? "" : " dilation " + to_string(g.dilation)) +
           (bias ? " bias" : "") + (relu ? " relu" : "") + (accumulate ? " accumulate" : "") +
           (plain_images ? " plain images" : "") + " " + to_string(precision);
  }
};

/// Returns the graph of a variant: the convolution, then bias and relu if they are fused. Throws DeviceError.
Descriptor graph_of(const ConvProblem& p, const ConvVariant& variant, cudnnHandle_t handle);

/// Returns the engine configurations that the library's heuristics propose, the best first; perhaps none.
std::vector<Descriptor> proposals(const Descriptor& graph, cudnnBackendHeurMode_t mode);

/// Returns whether an engine is deterministic, computes in `precision`, and is not compiled at run time:
/// compiling takes more than a second, and needs a library that may be missing.
bool acceptable(const Descriptor& config, Precision precision);

/// An engine with its settings, ready to run.
struct ConvPlan {
  Descriptor descriptor;
  std::int64_t workspace = 0;
};

/// Makes the plan of an engine configuration. Throws DeviceError if the engine does not support the problem
/// after all, or needs a workspace of more than `most` bytes.
ConvPlan finalized(const Descriptor& config, cudnnHandle_t handle, std::int64_t most);

/// The memory of the tensors of a graph. `bias` is null unless it is fused.
struct ConvPointers {
  const std::byte *images = nullptr, *weights = nullptr, *output = nullptr, *bias = nullptr;
};

/// Puts a run of the plan into the queue. Throws DeviceError, whose message names `what`.
void execute(const ConvPlan& plan, Queue* queue, const ConvPointers& p, std::byte* workspace,
             const std::string& what);

}  // namespace convnet::cuda
