// The one interface to compute. A backend turns an operation and the form that a plan gives it into a
// prepared operation, once; running it is then a call with pointers.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convnet/base/tensor.h"
#include "kernels/ops.h"
#include "kernels/target.h"

namespace convnet {

/// A point in a queue: everything that was put into it before. Immutable; kept alive by whoever waits for it.
class Mark {
 public:
  Mark() = default;
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  virtual ~Mark() = default;
  /// Whether all that came before is done. Throws DeviceError where it failed.
  virtual bool reached() const = 0;
  /// Seconds from `earlier`, a mark of the same device, to this one; both reached.
  virtual double seconds_since(const Mark& earlier) const = 0;
};

/// Work of one device, done in the order in which it was put in, while the host goes on. Used by one thread
/// at a time.
class Queue {
 public:
  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  virtual ~Queue() = default;

  virtual std::shared_ptr<const Mark> mark() = 0;
  /// Work that is put in from now on starts after `mark`, of any queue of the backend.
  virtual void wait(const Mark& mark) = 0;
  /// Copies between memories of any devices and the host. Host memory is in use until a later mark is
  /// reached, unless it is pageable `src`, which is read at once.
  virtual void copy(std::byte* dst, const std::byte* src, std::int64_t bytes) = 0;
};

/// Work that was put into queues once, and can be started again as a whole.
class Recording {
 public:
  Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  virtual ~Recording() = default;
  /// Puts all of it into `queue`.
  virtual void play(Queue& queue) const = 0;
};

/// Messages between the devices of several processes, one device of each, that do not pass through the hosts.
/// Used by one thread at a time.
class Communicator {
 public:
  /// One end of a message.
  struct Piece {
    bool sends = false;
    int peer = 0;  ///< the process at the other end
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };

  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  /// Puts the pieces into `queue`. They go on at the same time, and what is put in later waits for all of
  /// them. Two processes must bring the pieces between them in the same order, and of the same sizes. The
  /// first messages between two devices connect them, which waits for the other process and cannot be
  /// recorded. Throws DeviceError.
  virtual void exchange(Queue& queue, std::span<const Piece> pieces) = 0;
  /// Returns why messages no longer arrive, or "" while nothing is wrong.
  virtual std::string failure() const = 0;
};

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
  /// The algorithm that the library chose, like "jit:avx512_core"; "own" for our kernels.
  const std::string& algorithm() const { return algorithm_; }
  OpForm form() const { return {args_, workspace_bytes_, algorithm_}; }

  /// Computes. `pointers` are the arguments' memory, 64-byte aligned, in the layouts of args(); `workspace`
  /// has workspace_bytes(), aligned to kMemoryAlignment. Blocks until done where the backend has no queues
  /// (then `queue` is null); else puts the work into `queue`.
  virtual void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const = 0;

 protected:
  std::vector<TensorDesc> args_;
  std::int64_t workspace_bytes_ = 0;
  std::string algorithm_ = "own";
};

/// Throws std::logic_error where `prepared`, made for `op` in `form`, does not read and write memory as the
/// form says, or wants more workspace.
void check_form(const OpDesc& op, const OpForm& form, const PreparedOp& prepared);

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

/// A kind of device that can be used now.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// The target that plans for this backend's devices are made with.
  virtual const Target& target() const = 0;

  /// Prepares `op` to run on physical device `device` in `form`, which this backend's target or an equal one
  /// has given: the layouts are those of the form, the workspace is enough. Libraries that choose an
  /// algorithm by timing do so on that device. Throws DeviceError where the library cannot do it.
  virtual std::shared_ptr<const PreparedOp> bind(const OpDesc& op, const OpForm& form, int device) const = 0;
  /// bind() for the first device, in the form that the target gives for `hints`.
  std::shared_ptr<const PreparedOp> prepare(const OpDesc& op, const LayoutHints& hints) const {
    return bind(op, target().form(op, hints), 0);
  }

  /// Zeroed memory on physical device `device`, aligned to kMemoryAlignment. Throws DeviceError when there is
  /// not enough.
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

  /// A new queue on a device. Null: operations block, and every device has a thread of its own instead.
  virtual std::unique_ptr<Queue> make_queue(int /*device*/) const { return nullptr; }
  /// Calls `submit`, which puts work into `queues` and waits for nothing, and keeps that work instead of
  /// starting it. The first queue is where a play begins and ends. Null: such work cannot be kept.
  virtual std::unique_ptr<Recording> record(std::span<Queue* const> /*queues*/,
                                            const std::function<void()>& /*submit*/) const {
    return nullptr;
  }
  /// Returns what tells a device from all others, also of other hosts; "" where there are no communicators.
  virtual std::string communicator_key(int /*device*/) const { return ""; }
  /// Returns the name of a new communicator, which one process makes and all join.
  virtual std::string new_communicator() const { return ""; }
  /// Joins `device` to a communicator of `size` processes as that of process `rank`; waits for the others, no
  /// longer than `seconds`. Throws DeviceError. Null where communicator_key() is "".
  virtual std::unique_ptr<Communicator> join_communicator(int /*device*/, const std::string& /*name*/,
                                                          int /*rank*/, int /*size*/,
                                                          double /*seconds*/) const {
    return nullptr;
  }
  /// Host memory that copies from and to devices are fastest with.
  virtual std::unique_ptr<DeviceMemory> allocate_staging(std::int64_t bytes) const = 0;
  /// Whether operations on `device` can reach the memory of `other`.
  virtual bool reaches(int device, int other) const = 0;
  /// Copies between device and host memory, and waits for it.
  virtual void copy(std::byte* dst, const std::byte* src, std::int64_t bytes) const = 0;
  /// Copies between two layouts of a tensor, both in the host's memory; bf16 numbers may become f32.
  virtual void relay(const TensorDesc& from, const std::byte* src, const TensorDesc& to,
                     std::byte* dst) const = 0;
};

/// CPU devices: each uses `threads_per_device` cores. tf32 computes as fp32 does.
std::unique_ptr<Backend> make_cpu_backend(int threads_per_device, Precision precision = Precision::fp32);
/// Whether this processor multiplies bf16 numbers; where it does not, they are slower than fp32.
bool cpu_multiplies_bf16();

/// NVIDIA GPUs. Throws DeviceError where there are none, or the program was built without CUDA.
std::unique_ptr<Backend> make_cuda_backend(Precision precision);
/// GPUs that make_cuda_backend() would find; 0 if it would throw, and then why in `reason`.
int cuda_devices(std::string& reason);

}  // namespace convnet
