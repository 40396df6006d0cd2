// The one interface to compute. A backend turns an operation's description into a prepared operation, once,
// while planning; running it is then a call with pointers.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "kernels/tensor.h"

namespace convnet {

/// An operation ready to run: layouts, algorithm and workspace are decided. Immutable; may be run from
/// several threads at once as long as each call has its own workspace.
class PreparedOp {
 public:
  PreparedOp() = default;
  PreparedOp(const PreparedOp&) = delete;
  PreparedOp& operator=(const PreparedOp&) = delete;
  virtual ~PreparedOp() = default;

  /// One entry per argument of arguments(op), in that order: the layout this operation reads or writes.
  const std::vector<TensorDesc>& args() const { return args_; }
  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  /// What the library chose, like "jit:avx512_core"; "own" for our kernels.
  const std::string& algorithm() const { return algorithm_; }

  /// Computes. `pointers` are the arguments' memory, 64-byte aligned, in the layouts of args(); `workspace`
  /// has workspace_bytes(). Blocks until done on CPU devices.
  virtual void run(std::span<std::byte* const> pointers, std::byte* workspace) const = 0;

 protected:
  std::vector<TensorDesc> args_;
  std::int64_t workspace_bytes_ = 0;
  std::string algorithm_ = "own";
};

/// Device memory with one owner.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() = 0;
  virtual std::int64_t bytes() const = 0;
};

/// Argument layouts known before preparing: `nullopt` leaves the choice to the operation.
using LayoutHints = std::vector<std::optional<TensorDesc>>;

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  ///< "cpu", "cuda"

  /// Prepares `op`. `hints` has an entry per argument: how its memory lies now, where that is decided. The
  /// result may want another layout for an argument (the planner then adds a reorder). Throws DeviceError,
  /// naming the operation and its shapes, where it would only run on a slow fallback.
  virtual std::shared_ptr<const PreparedOp> prepare(const OpDesc& op, const LayoutHints& hints) const = 0;

  /// Zeroed memory on physical device `device`, 64-byte aligned. Throws DeviceError when there is not enough.
  virtual std::unique_ptr<DeviceMemory> allocate(int device, std::int64_t bytes) const = 0;

  /// Bytes a device can give; what a plan needs is compared with it before anything is allocated.
  virtual std::int64_t memory_available(int device) const = 0;

  /// Whether all devices take from the same memory.
  virtual bool shares_memory() const = 0;

  /// FLOP/s of fp32 multiply-adds the device can do, measured now.
  virtual double measure_peak_flops(int device) const = 0;
  /// Bytes a second, read and written together, of a copy too large for caches, measured now.
  virtual double measure_copy_bandwidth(int device) const = 0;

  /// Called once on a device's worker thread before it runs operations.
  virtual void enter_worker(int device) const = 0;
};

/// CPU devices: each uses `threads_per_device` cores.
std::unique_ptr<Backend> make_cpu_backend(int threads_per_device);

}  // namespace convnet
