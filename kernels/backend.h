// The one interface to compute. A backend turns an operation and the form that a plan gives it into a
// prepared operation, once; running it is then a call with pointers.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "convnet/base/core_groups.h"
#include "convnet/base/tensor.h"
#include "kernels/ops.h"
#include "kernels/target.h"

namespace convnet {

/// A point in a queue (a CUDA event). It is reached when all work that was put into the queue before it is
/// done. Immutable; whoever waits for it keeps it alive.
class Mark {
 public:
  Mark() = default;
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  virtual ~Mark() = default;
  /// Returns whether all earlier work of the queue is done. Throws DeviceError if it failed.
  virtual bool reached() const = 0;
  /// Lets the calling thread sleep for a moment, no longer than until the mark is reached.
  virtual void rest() const;
  /// Returns the seconds from `earlier`, a mark of the same device, to this one. Both must have been reached.
  /// Devices of the host have one clock.
  virtual double seconds_since(const Mark& earlier) const = 0;
};

/// A queue of work for one device (a CUDA stream, or a list of calls for the thread of a CPU device). The
/// device does the work in order, asynchronously to the host. Used by one thread at a time.
class Queue {
 public:
  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  virtual ~Queue() = default;

  /// Returns a mark at the present end of the queue.
  virtual std::shared_ptr<const Mark> mark() = 0;
  /// Returns a mark that is reached when the work that is put in next begins.
  virtual std::shared_ptr<const Mark> mark_begin() { return mark(); }
  /// Makes work that is put in from now on wait for `mark`, which may be of any queue of the backend.
  virtual void wait(const Mark& mark) = 0;
  /// Puts in a copy between memories of any devices and the host. Both are in use until a later mark is
  /// reached.
  virtual void copy(std::byte* dst, const std::byte* src, std::int64_t bytes) = 0;

  /// Puts in a call, which must not throw. Only devices of the host have this and start().
  virtual void call(std::function<void()> work);
  /// Puts in a call of `begin`, whose work goes on until its argument is called, by any thread. Returns a
  /// mark that is reached then, and not before those of earlier calls of start(). Work that is put in later
  /// waits for that, but for further calls of start(): they begin while the work of earlier ones goes on.
  virtual std::shared_ptr<const Mark> start(std::function<void(std::function<void()> ended)> begin);
};

/// Recorded work of several queues, which can be started again as a whole (a CUDA graph).
class Recording {
 public:
  Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  virtual ~Recording() = default;
  /// Puts all of the recorded work into `queue`, the first that was recorded. What was played before must
  /// have ended.
  virtual void play(Queue& queue) const = 0;
};

/// Sends messages between devices of several processes, one device of each, without passing through the hosts
/// (NCCL). Used by one thread at a time.
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

  /// Puts the pieces into `queue`. They are sent and received concurrently, and work that is put in later
  /// waits for all of them. Two processes must give the pieces between them in the same order and with the
  /// same sizes. The first messages between two devices connect them, which waits for the other process and
  /// cannot be recorded. Throws DeviceError.
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

  /// Returns the tensors, with layouts, that this operation reads or writes, in the order of arguments(op).
  const std::vector<TensorDesc>& args() const { return args_; }
  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Returns the algorithm that the library chose, like "jit:avx512_core"; "own" for our own kernels.
  const std::string& algorithm() const { return algorithm_; }
  OpForm form() const { return {args_, workspace_bytes_, algorithm_}; }

  /// Computes. `pointers` are the memory of the arguments, in the layouts of args(); `workspace` has
  /// workspace_bytes() and is aligned to kMemoryAlignment. So are arguments, except those that are parts of
  /// buffers: a part of a matrix is aligned to 64 bytes, a part of the host's data only to its elements. On
  /// devices of the host `queue` is null, and this blocks until the work is done; else it puts the work into
  /// `queue`.
  virtual void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const = 0;

 protected:
  std::vector<TensorDesc> args_;
  std::int64_t workspace_bytes_ = 0;
  std::string algorithm_ = "own";
};

/// Throws DeviceError if `prepared`, which was made for `op` in `form`, has other layouts or more workspace
/// than the form.
void check_form(const OpDesc& op, const OpForm& form, const PreparedOp& prepared);

/// Owns a block of memory of a device, or of the host.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() = 0;  ///< null if there are no bytes
  virtual std::int64_t bytes() const = 0;
};

/// The devices of one kind on this machine: memory, queues and prepared operations. Devices are numbered as
/// the system numbers them ("physical" numbers).
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// Returns the target with which plans for these devices are made.
  virtual const Target& target() const = 0;

  /// Prepares `op` to run on physical device `device` in `form`, which must come from this backend's target
  /// or an equal one. The result has the layouts of the form and needs no more than its workspace. Libraries
  /// that choose an algorithm by timing do so on that device. Throws DeviceError if the library cannot do it.
  virtual std::shared_ptr<const PreparedOp> bind(const OpDesc& op, const OpForm& form, int device) const = 0;
  /// Calls bind() for device 0 with the form that the target gives for `hints`.
  std::shared_ptr<const PreparedOp> prepare(const OpDesc& op, const LayoutHints& hints) const {
    return bind(op, target().form(op, hints), 0);
  }

  /// Returns zeroed memory on a device, aligned to kMemoryAlignment. Throws DeviceError if there is not
  /// enough.
  virtual std::unique_ptr<DeviceMemory> allocate(int device, std::int64_t bytes) const = 0;

  /// Returns the bytes that can be allocated on a device. They are compared with what a plan needs before
  /// anything is allocated.
  virtual std::int64_t memory_available(int device) const = 0;

  /// Returns whether the devices belong to the host: all of them use its memory, and their operations block
  /// the thread that runs them, which their queues call.
  virtual bool on_host() const = 0;

  /// Measures the FLOP/s of the device in products of the backend's precision. A CPU without products of bf16
  /// numbers is measured in fp32.
  virtual double measure_peak_flops(int device) const = 0;
  /// Measures the bytes a second, read and written together, of a copy that is too large for caches.
  virtual double measure_copy_bandwidth(int device) const = 0;

  /// Prepares the calling thread for running operations of a device outside of its queues.
  virtual void enter_worker(int device) const = 0;

  /// Makes queues on a device. Work of several queues runs at the same time, or one piece after the other:
  /// then the device prefers the first queue whose next piece can begin.
  virtual std::vector<std::unique_ptr<Queue>> make_queues(int device, std::size_t count) const = 0;
  std::unique_ptr<Queue> make_queue(int device) const { return std::move(make_queues(device, 1)[0]); }
  /// Calls `submit`, which puts work into `queues` and must not wait for any, and records that work instead
  /// of starting it. A recording begins and ends in the first queue. Throws DeviceError if the work cannot be
  /// recorded.
  virtual std::unique_ptr<Recording> record(std::span<Queue* const> queues,
                                            const std::function<void()>& submit) const = 0;
  /// Returns a text that identifies a device among those of all hosts; "" if there are no communicators.
  virtual std::string communicator_key(int /*device*/) const { return ""; }
  /// Returns the name of a new communicator. One process makes the name, and all processes join with it.
  virtual std::string new_communicator() const { return ""; }
  /// Joins a communicator of `size` processes with `device` as the device of process `rank`. Waits for the
  /// others, but no longer than `seconds`. Throws DeviceError. Returns null if communicator_key() is "".
  virtual std::unique_ptr<Communicator> join_communicator(int /*device*/, const std::string& /*name*/,
                                                          int /*rank*/, int /*size*/,
                                                          double /*seconds*/) const {
    return nullptr;
  }
  /// Returns host memory for the fastest copies from and to devices (pinned memory).
  virtual std::unique_ptr<DeviceMemory> allocate_staging(std::int64_t bytes) const = 0;
  /// Returns whether operations on `device` can access the memory of `other`.
  virtual bool reaches(int device, int other) const = 0;
  /// Copies between device and host memory, and waits until the copy is done.
  virtual void copy(std::byte* dst, const std::byte* src, std::int64_t bytes) const = 0;
  /// Converts a tensor in the host's memory to another layout; bf16 may become f32, and f32 bf16.
  virtual void relay(const TensorDesc& from, const std::byte* src, const TensorDesc& to,
                     std::byte* dst) const = 0;
};

/// Makes the backend of CPU devices, each of which uses `threads_per_device` cores. tf32 computes as fp32
/// does. `places` has the numbers of devices whose threads and memory are bound.
std::unique_ptr<Backend> make_cpu_backend(int threads_per_device, Precision precision = Precision::fp32,
                                          std::map<int, CorePlace> places = {});
/// Returns whether this processor has instructions for products of bf16 numbers; without them, products in
/// bf16 are those of f32 numbers, with rounded factors.
bool cpu_multiplies_bf16();

/// Makes the backend of NVIDIA GPUs. Throws DeviceError if there are none, or if the program was built
/// without CUDA.
std::unique_ptr<Backend> make_cuda_backend(Precision precision);
/// Returns the number of GPUs that make_cuda_backend() would find. If it would throw, returns 0 and sets
/// `reason`.
int cuda_devices(std::string& reason);

}  // namespace convnet
