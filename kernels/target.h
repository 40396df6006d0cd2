// The kind of device that a plan is made for: the layouts and workspaces of operations, and which operations
// it can run. A target needs no device: a plan for GPUs can be made, and is the same, on a machine without
// one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convnet/base/tensor.h"
#include "kernels/ops.h"

namespace convnet {

/// Alignment in bytes of every allocation, buffer and workspace; GPU libraries require it of workspaces. An
/// argument that is a part of a buffer may have less; see PreparedOp::run().
constexpr std::int64_t kMemoryAlignment = 256;
/// Rounds a number of bytes up to a multiple of kMemoryAlignment.
constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
}

/// The layouts that the arguments of an operation have already, by argument; `nullopt` leaves the choice to
/// the operation.
using LayoutHints = std::vector<std::optional<TensorDesc>>;

/// The form in which an operation reads and writes memory: all that a plan knows of its implementation.
struct OpForm {
  /// The tensors, with layouts, that the operation reads or writes, in the order of arguments(op).
  std::vector<TensorDesc> args;
  /// The size of the workspace that the operation gets. The implementation, which may be chosen later, needs
  /// no more.
  std::int64_t workspace_bytes = 0;
  /// The algorithm that the library will run, like "jit:avx512_core", if it is known during planning; else
  /// empty.
  std::string algorithm;
};

/// The precision of convolutions and matrix products; sums are always fp32. tf32: numbers are stored as fp32,
/// but only 10 bits of the mantissa of factors count. bf16: factors are bf16, and activations and their
/// gradients are stored as bf16 if the operations that read them support it. Weights, increments, statistics
/// and costs stay fp32. So do gradients of weights, except for those of convolutions on GPUs, each of which
/// is rounded once.
enum class Precision { fp32, tf32, bf16 };
const char* to_string(Precision precision);

/// A kind of device that plans are made for. Immutable: its answers depend only on its constructor's
/// arguments.
class Target {
 public:
  Target() = default;
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  virtual ~Target() = default;

  virtual std::string name() const = 0;       ///< "cpu", "cuda"
  virtual std::string precision() const = 0;  ///< precision of products: "fp32", "tf32", "bf16"

  /// Returns the form in which `op` runs. `hints` has an entry for each argument: its present layout, if it
  /// has one. The form may want another layout for an argument; the plan then adds a reorder. Throws
  /// DeviceError, naming the operation and its shapes, if only a slow fallback could run it.
  virtual OpForm form(const OpDesc& op, const LayoutHints& hints) const = 0;

  /// Returns whether the device can run `op`, into which another operation is fused (is_fused()), in one
  /// pass over its tensors. form() takes fused operations only if this returns true.
  virtual bool fuses(const OpDesc& op) const = 0;

  /// Returns whether a device runs several streams at the same time.
  virtual bool runs_streams_together() const = 0;
  /// Returns the bytes of weights whose updates are joined in one task: enough to be worth a launch, but few
  /// enough that the task overlaps with the backward tasks that follow.
  virtual std::int64_t joined_update_bytes() const = 0;
  /// Returns the number of bytes that a link moves in the time that a copy takes to begin. The default is
  /// between those of PCI Express and of NVLink. Smaller tensors are not relayed.
  virtual std::int64_t link_delay_bytes() const { return 256 << 10; }
};

/// Makes the target of CPU devices that use `threads` cores each. tf32 computes as fp32 does. The layouts are
/// those that the library chooses for this machine's instruction set.
std::unique_ptr<const Target> make_cpu_target(int threads, Precision precision = Precision::fp32);
/// Makes the target of NVIDIA GPUs. It is the same on every machine, with or without a GPU.
std::unique_ptr<const Target> make_cuda_target(Precision precision);

}  // namespace convnet
