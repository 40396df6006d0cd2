#include "convnet/runtime/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "convnet/base/clock.h"
#include "convnet/base/error.h"
#include "convnet/base/median.h"
#include "kernels/delay.h"

namespace convnet {
namespace {

/// Scratch memory is cleaned in pieces of this size, a multiple of the alignment.
constexpr std::int64_t kPiece = 1 << 18;
/// Bytes of memory that no processor's caches hold; larger working sets are equally cold.
constexpr std::int64_t kLargeScratch = 1 << 29;
/// Bytes that the delay before each operation in a queue copies. The delay hides the time of launches, which
/// a recorded step does not have either.
constexpr std::int64_t kDelayBytes = 1 << 27;
/// Seconds for which an operation is repeated, and the bounds of the number of repetitions.
constexpr double kRepeatSeconds = 0.02;
constexpr int kFewestRepeats = 2, kMostRepeats = 8;
/// Nets that take longer for a step have their operations repeated once.
constexpr double kLongStepSeconds = 10;

std::int64_t round_up(std::int64_t bytes, std::int64_t unit) { return (bytes + unit - 1) / unit * unit; }

/// A piece of memory that holds one or several arguments of an operation.
struct Chunk {
  std::int64_t bytes = 0;
  bool written = false;
};

/// An operation of the plan, as often as it occurs.
struct Operation {
  std::shared_ptr<const PreparedOp> prepared;
  std::vector<Chunk> chunks;
  std::vector<std::size_t> chunk_of;  ///< by argument
  std::int64_t workspace = 0;
  std::vector<double> seconds;  ///< measured

  std::int64_t bytes(bool written) const {
    std::int64_t sum = written ? aligned(workspace) : 0;
    for (const Chunk& chunk : chunks) sum += chunk.written == written ? chunk.bytes : 0;
    return sum;
  }
};

/// Bytes that argument `k` may touch.
std::int64_t argument_bytes(const Plan& plan, const Task& task, std::size_t k) {
  const std::vector<TensorDesc>& args = task.form->args;
  // Step block and costs are sized by the plan, not by the operation.
  return std::max(bytes_of(plan, task.uses[k]), k < args.size() ? args[k].bytes() : 0);
}

Operation operation_of(const Plan& plan, const Task& task) {
  Operation op;
  op.workspace = task.form->workspace_bytes;
  // Arguments that share memory in the plan share it here, too, because an operation in place is faster.
  std::map<std::tuple<BufferId, std::int64_t, std::int64_t>, std::size_t> known;
  for (std::size_t k = 0; k < task.uses.size(); ++k) {
    const BufferUse& use = task.uses[k];
    const auto found = known.try_emplace({use.buffer, use.begin, use.bytes}, op.chunks.size());
    if (found.second) op.chunks.emplace_back();
    op.chunk_of.push_back(found.first->second);
    Chunk& chunk = op.chunks[found.first->second];
    chunk.bytes = std::max(chunk.bytes, aligned(argument_bytes(plan, task, k)));
    chunk.written = chunk.written || use.access != Access::read;
  }
  return op;
}

/// Returns a text that is equal for tasks that take the same time.
std::string signature(const Task& task, const Operation& op) {
  std::string text = fmt::format("{} {} {} {}", op_name(*task.op), fmt::join(op_settings(*task.op), " "),
                                 task.form->algorithm, op.workspace);
  for (const TensorDesc& arg : task.form->args)
    text += fmt::format(", {} {} {}", to_string(arg.dims), to_string(arg.type), arg.layout_name());
  for (const std::size_t chunk : op.chunk_of)
    text += fmt::format(", {} {} {}", chunk, op.chunks[chunk].bytes, op.chunks[chunk].written);
  return text;
}

/// The distinct operations that are to be measured, and which one each task is.
struct Operations {
  std::vector<Operation> all;
  std::vector<std::string> signatures;  ///< of `all`
  Table<TaskId, std::string> of_task;   ///< the signature of its operation
};

Operations distinct_operations(const Plan& plan, const Backend& backend, int device,
                               const MeasuredOperations& measured) {
  Operations ops;
  std::set<std::string> met;
  for (const Task& task : plan.tasks) {
    if (is_message(task.kind)) throw std::logic_error("measure: the plan is for several processes");
    Operation op = operation_of(plan, task);
    ops.of_task.push_back(signature(task, op));
    const std::string& text = ops.of_task.back();
    if (measured.contains(text) || !met.insert(text).second) continue;
    op.prepared = backend.bind(*task.op, *task.form, device);
    ops.all.push_back(std::move(op));
    ops.signatures.push_back(text);
  }
  return ops;
}

/// Memory that is handed out in a ring, so that the least recently used part is used next.
class Ring {
 public:
  Ring(const Backend& backend, int device, Queue* queue, std::int64_t bytes)
      : queue_(queue), memory_(backend.allocate(device, round_up(bytes, kPiece))) {
    const TensorDesc piece{{kPiece / size_of(DataType::f32)}, DataType::f32, nullptr};
    zero_ = backend.prepare(FillZero{piece}, {piece});
    // Pages that nobody has written are all the same page of zeros, which lies in the cache.
    clean(0, memory_->bytes());
  }

  /// Returns contiguous memory, the least recently used part of the ring.
  std::byte* take(std::int64_t bytes) {
    if (cursor_ + bytes > memory_->bytes()) first_ = cursor_ = 0;
    std::byte* place = memory_->data() + cursor_;
    cursor_ += bytes;
    return place;
  }

  /// Zeroes what take() returned since the last call.
  void clean() {
    clean(first_, cursor_);
    // The part that was just zeroed is in the cache, so it comes last.
    first_ = cursor_ = round_up(cursor_, kPiece);
  }

 private:
  void clean(std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += kPiece) {
      std::byte* place = memory_->data() + begin;
      zero_->run({&place, 1}, nullptr, queue_);
    }
  }

  Queue* queue_;
  std::unique_ptr<DeviceMemory> memory_;
  std::shared_ptr<const PreparedOp> zero_;
  std::int64_t first_ = 0, cursor_ = 0;
};

/// Bytes of the two rings of a device.
struct ScratchSize {
  std::int64_t read = 0, written = 0;
};

/// Returns as many bytes as a device of the plan uses in a step, so that operations find their arguments as
/// cold as there.
std::int64_t working_set(const Plan& plan) {
  std::map<DeviceId, std::int64_t> needs;
  for (const Buffer& b : plan.buffers) {
    if (plan.memory.empty() || b.kind == BufferKind::input) needs[b.device] += b.bytes;
  }
  for (const DeviceId d : plan.memory.ids()) needs[d] += plan.memory[d].persistent + plan.memory[d].transient;
  std::int64_t most = 0;
  for (const auto& [device, bytes] : needs) most = std::max(most, bytes);
  return std::min(most, kLargeScratch);
}

ScratchSize scratch_size(const Plan& plan, const std::vector<Operation>& ops, const Backend& backend,
                         int first_device, int devices) {
  ScratchSize least;
  for (const Operation& op : ops) {
    least.read = std::max(least.read, round_up(op.bytes(false), kPiece));
    least.written = std::max(least.written, round_up(op.bytes(true), kPiece));
  }
  // The devices may all be parts of the same machine.
  const std::int64_t delays = backend.on_host() ? 0 : kDelayBytes;
  const std::int64_t available = backend.memory_available(first_device) / devices - delays;
  if (least.read + least.written > available)
    throw DeviceError(
        fmt::format("{}: to measure this net's operations takes {} MiB for each of {} devices, but "
                    "only {} MiB are free; use a smaller --mini or a device model",
                    backend.target().name(), (least.read + least.written) >> 20, devices, available >> 20));
  const std::int64_t wanted = round_up(std::min(working_set(plan), available / 2) / 2, kPiece);
  return {std::max(least.read, wanted), std::max(least.written, wanted)};
}

/// How often each operation is run again, from the seconds of its first run.
std::vector<int> repeats(const std::vector<double>& seconds) {
  const bool long_step = std::accumulate(seconds.begin(), seconds.end(), 0.0) > kLongStepSeconds;
  std::vector<int> counts;
  for (const double once : seconds) {
    const double wanted = std::min<double>(kMostRepeats, kRepeatSeconds / std::max(once, 1e-9));
    counts.push_back(long_step ? 1 : std::max(kFewestRepeats, static_cast<int>(wanted)));
  }
  return counts;
}

/// Runs the operations on all devices, each on every device at the same time.
class Calibration {
 public:
  Calibration(std::vector<Operation>& ops, const Backend& backend, int first_device, int devices,
              ScratchSize size)
      : ops_(ops),
        backend_(backend),
        first_device_(first_device),
        devices_(devices),
        size_(size),
        first_(ops.size()),
        together_(devices) {}

  void run() {
    std::vector<std::thread> threads;
    for (int device = 0; device < devices_; ++device) {
      const auto measure = [this, device] {
        guarded([&] { measure_all(first_device_ + device); });
        together_.arrive_and_drop();  // the others must not wait for one that is done or has failed
      };
      if (!guarded([&] { threads.emplace_back(measure); })) together_.arrive_and_drop();
    }
    for (std::thread& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  /// Calls `work`, and keeps the first error of all calls. Returns whether `work` threw nothing.
  template <class Work>
  bool guarded(const Work& work) {
    try {
      work();
      return true;
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
      return false;
    }
  }

  /// Runs all operations one after the other, and repeats that several times: a short disturbance of the
  /// machine then affects one run of many operations, not all runs of one.
  void measure_all(int device) {
    backend_.enter_worker(device);
    const std::unique_ptr<Queue> queue = backend_.on_host() ? nullptr : backend_.make_queue(device);
    Ring read(backend_, device, queue.get(), size_.read);
    Ring written(backend_, device, queue.get(), size_.written);
    const Delay delay(queue ? backend_.allocate(device, kDelayBytes) : nullptr);
    const auto run_next = [&](const Operation& op) {
      if (queue) delay.put_into(*queue);
      return run_once(op, queue.get(), read, written);
    };
    // The first run may be far slower than the others: libraries then finish what they put off.
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      together_.arrive_and_wait();
      if (failed_) return;
      const double seconds = run_next(ops_[i]);
      const std::lock_guard lock(mutex_);
      first_[i] = std::max(first_[i], seconds);
    }
    together_.arrive_and_wait();
    const std::vector<int> counts = repeats(first_);
    for (int round = 0; round < kMostRepeats; ++round) {
      for (std::size_t i = 0; i < ops_.size(); ++i) {
        if (round >= counts[i]) continue;
        together_.arrive_and_wait();
        if (failed_) return;
        const double seconds = run_next(ops_[i]);
        const std::lock_guard lock(mutex_);
        ops_[i].seconds.push_back(seconds);
      }
    }
  }

  /// Arguments that are only read come from memory that nobody writes: all zeros.
  static double run_once(const Operation& op, Queue* queue, Ring& read, Ring& written) {
    std::byte* from = read.take(op.bytes(false));
    std::byte* to = written.take(op.bytes(true));
    std::vector<std::byte*> places;
    for (const Chunk& chunk : op.chunks) {
      std::byte*& place = chunk.written ? to : from;
      places.push_back(place);
      place += chunk.bytes;
    }
    std::vector<std::byte*> pointers;
    for (const std::size_t chunk : op.chunk_of) pointers.push_back(places[chunk]);
    const auto start = Clock::now();
    const auto begin = queue == nullptr ? nullptr : queue->mark();
    op.prepared->run(pointers, op.workspace > 0 ? to : nullptr, queue);
    double seconds = seconds_since(start);
    if (queue != nullptr) {
      const auto end = queue->mark();
      while (!end->reached()) std::this_thread::yield();
      seconds = end->seconds_since(*begin);
    }
    // The next operation must not find old results as its sums, or as flags that make it do nothing.
    written.clean();
    return seconds;
  }

  std::vector<Operation>& ops_;
  const Backend& backend_;
  const int first_device_, devices_;
  const ScratchSize size_;
  std::mutex mutex_;           ///< guards the next two and the operations' seconds
  std::vector<double> first_;  ///< by operation: seconds of its first run, of the slowest device
  std::exception_ptr error_;
  std::atomic<bool> failed_ = false;
  std::barrier<> together_;
};

}  // namespace

Table<TaskId, double> measure_seconds(const Plan& plan, const Backend& backend, int devices,
                                      MeasuredOperations* known, int first_device) {
  if (devices < 1) throw std::logic_error("measure: no devices");
  MeasuredOperations own;
  MeasuredOperations& measured = known == nullptr ? own : *known;
  Operations ops = distinct_operations(plan, backend, first_device, measured);
  if (!ops.all.empty())
    Calibration(ops.all, backend, first_device, devices,
                scratch_size(plan, ops.all, backend, first_device, devices))
        .run();
  for (std::size_t i = 0; i < ops.all.size(); ++i)
    measured[ops.signatures[i]] = median(std::move(ops.all[i].seconds));
  Table<TaskId, double> seconds;
  for (const std::string& op : ops.of_task) seconds.push_back(measured.at(op));
  return seconds;
}

}  // namespace convnet
