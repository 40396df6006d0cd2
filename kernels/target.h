// The kind of device that a plan is made for, and what it says about operations. A target needs neither the
// device nor its libraries' devices: a plan for GPUs can be made, and is the same, on a machine without one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convnet/base/tensor.h"
#include "kernels/ops.h"

namespace convnet {

/// Alignment in bytes of every allocation, argument and workspace; GPU libraries require it of workspaces.
constexpr std::int64_t kMemoryAlignment = 256;
/// Rounds up to where the next piece of memory may begin.
constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
}

/// Argument layouts known before planning an operation; `nullopt` leaves the choice to the operation.
using LayoutHints = std::vector<std::optional<TensorDesc>>;

/// How an operation reads and writes memory: all that a plan knows of its implementation.
struct OpForm {
  /// One entry per argument of arguments(op), in that order: the layout this operation reads or writes.
  std::vector<TensorDesc> args;
  /// The workspace that the operation gets. An implementation that is chosen later stays within it.
  std::int64_t workspace_bytes = 0;
  /// The algorithm that the library will run, like "jit:avx512_core", where that is known while planning;
  /// else empty.
  std::string algorithm;
};

/// How convolutions and matrix products compute, always with sums in fp32. tf32: fp32 numbers, of whose
/// factors 10 bits of mantissa count. bf16: factors of type bf16; activations and their gradients are kept as
/// bf16 where the operations that read them can take it. Weights, increments, statistics and costs stay fp32,
/// gradients of weights too, but where a library only makes bf16 ones (cuDNN): each is then rounded once.
enum class Precision { fp32, tf32, bf16 };
const char* to_string(Precision precision);

/// A kind of device that plans are made for. Immutable; a pure function of its construction.
class Target {
 public:
  Target() = default;
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  virtual ~Target() = default;

  virtual std::string name() const = 0;       ///< "cpu", "cuda"
  virtual std::string precision() const = 0;  ///< of products: "fp32", "tf32", "bf16"

  /// Returns the form in which `op` runs. `hints` has an entry per argument: how its memory lies now, where
  /// that is decided. The form may want another layout for an argument (the plan then adds a reorder). Throws
  /// DeviceError, naming the operation and its shapes, where it would only run on a slow fallback.
  virtual OpForm form(const OpDesc& op, const LayoutHints& hints) const = 0;

  /// Returns whether `op`, in which another operation is fused (its fields `sum` and `moments`), runs, and
  /// in one pass over its tensors. Only such operations may be given to form().
  virtual bool fuses(const OpDesc& op) const = 0;

  /// Whether a device works in several streams at the same time.
  virtual bool runs_streams_together() const = 0;
  /// Bytes of weights whose updates are joined in one task: enough to be worth starting it, and little enough
  /// that it hides behind the backward tasks to come.
  virtual std::int64_t joined_update_bytes() const = 0;
};

/// CPU devices that use `threads` cores each. tf32 computes as fp32 does. The layouts are those that the
/// library chooses for this machine's instruction set.
std::unique_ptr<const Target> make_cpu_target(int threads, Precision precision = Precision::fp32);
/// NVIDIA GPUs, the same on every machine, with or without a GPU.
std::unique_ptr<const Target> make_cuda_target(Precision precision);

}  // namespace convnet
