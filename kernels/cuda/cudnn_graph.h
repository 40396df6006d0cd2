// Convolutions in the terms of cuDNN's graph interface: descriptors, the graph of a convolution with what is
// fused, the engines that the library proposes for it, and plans, which run.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "kernels/cuda/form.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/prepare.h"
#include "kernels/cuda/sizes.h"

namespace convnet::cuda {

/// A descriptor of the library: set attributes, finalize, use.
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

/// The library gets the images in one of these forms.
enum class ConvImages {
  given,   ///< the argument
  padded,  ///< a copy with all padding
  blocks   ///< a copy as blocks of stride x stride pixels, with channels as engines like them
};

/// One way to do an operation.
struct ConvVariant {
  /// Bias and relu are part of the graph; in bf16 runs the bias is then rounded to bf16 before, which engines
  /// that are not compiled at run time ask for.
  bool fused = false;
  ConvImages images = ConvImages::given;
  bool narrow = false;  ///< the weights' gradient is made as bf16, and widened after
  std::string name() const {
    static constexpr std::array kImages = {"", "+padded", "+blocks"};
    return std::string(fused ? "fused" : "plain") + kImages.at(static_cast<std::size_t>(images)) +
           (narrow ? "+narrow" : "");
  }
};

/// Describes what is computed: a pass of a convolution, and what the operation does besides.
struct ConvProblem {
  ConvPass pass = ConvPass::forward;
  ConvGeometry g;
  bool bias = false, relu = false, accumulate = false;
  bool plain_images = false;  ///< a flat vector that is read as maps lies plain
  Precision precision = Precision::tf32;

  /// The type of the activations and of the weights.
  DataType type() const { return product_type(precision); }
  /// The convolution that the library does.
  ConvGeometry geometry(const ConvVariant& variant) const {
    constexpr std::int64_t kLoad = 16;  // bytes
    switch (variant.images) {
      case ConvImages::given: return g;
      case ConvImages::padded: return with_padding(g);
      case ConvImages::blocks: break;
    }
    return over_blocks(g, g.stride, kLoad / size_of(type()));
  }
  /// The library gets a copy of the bias.
  bool rounds_bias(const ConvVariant& variant) const {
    return variant.fused && bias && type() == DataType::bf16;
  }
  std::string name() const {
    static constexpr std::array kPasses = {"forward", "backward_data", "backward_weights"};
    return std::string("conv.") + kPasses.at(static_cast<std::size_t>(pass)) + " " + to_string(g.src()) +
           " * " + to_string(g.weights()) + " -> " + to_string(g.dst()) + " stride " +
           std::to_string(g.stride) + " pad " + std::to_string(g.pad) + (bias ? " bias" : "") +
           (relu ? " relu" : "") + (accumulate ? " accumulate" : "") + (plain_images ? " plain images" : "") +
           " " + to_string(precision);
  }
};

/// Returns the graph of a variant: the convolution, then bias and relu if they are fused. Throws DeviceError.
Descriptor graph_of(const ConvProblem& p, const ConvVariant& variant, cudnnHandle_t handle);

/// Returns the engines that the library's heuristics propose, the best first; none where it knows nothing.
std::vector<Descriptor> proposals(const Descriptor& graph, cudnnBackendHeurMode_t mode);

/// Returns whether an engine gives the same bits every time, in the precision that was asked for, and is
/// there in every process at once: compiling one takes more than a second, and a library that may be missing.
bool acceptable(const Descriptor& config, Precision precision);

/// An engine with its settings, ready to run.
struct ConvPlan {
  Descriptor descriptor;
  std::int64_t workspace = 0;
};

/// Throws DeviceError where the engine turns out not to support the problem, or wants more than `most` bytes.
ConvPlan finalized(const Descriptor& config, cudnnHandle_t handle, std::int64_t most);

/// Memory of the tensors of a graph; bias: null unless it is fused.
struct ConvPointers {
  const std::byte *images = nullptr, *weights = nullptr, *output = nullptr, *bias = nullptr;
};

/// Puts a run into the queue. Throws DeviceError, which names `what`.
void execute(const ConvPlan& plan, Queue* queue, const ConvPointers& p, std::byte* workspace,
             const std::string& what);

}  // namespace convnet::cuda
