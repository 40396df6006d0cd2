#include "convnet/runtime/worker_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "convnet/base/clock.h"
#include "convnet/base/error.h"
#include "convnet/base/exit.h"
#include "convnet/config/diagnostics.h"

namespace convnet {

/// One execution of a plan, shared by the workers. A worker that never comes back and messages that have not
/// ended keep it alive. Then the plan may be gone, and nothing may use it once `failed_` is set.
class WorkerRunner::Step : public std::enable_shared_from_this<Step> {
 public:
  Step(std::shared_ptr<const BoundPlan> bound, Table<BufferId, std::byte*> addresses,
       std::function<void(TaskId)> after_task, Processes* processes)
      : bound_(std::move(bound)),
        plan_(&bound_->plan()),
        addresses_(std::move(addresses)),
        after_task_(std::move(after_task)),
        processes_(processes),
        transport_(processes == nullptr ? nullptr : &processes->transport()),
        process_(processes == nullptr ? 0 : processes->rank()),
        times_(plan_->tasks.size()),
        devices_(plan_->memory.size()),
        done_(plan_->tasks.size()) {}

  /// Runs the tasks of one device. Returns early if another device failed.
  void follow(DeviceId index) {
    Device& device = devices_[index];
    bool left = true;
    while (!failed_) {
      const std::uint32_t news = device.news;
      const bool messages_left = transport_ != nullptr && begin_messages(index);
      const TaskId next = choose(index, left);
      left = left || messages_left;
      if (next.exists()) {
        run(device, next);
      } else if (left) {
        device.news.wait(news);
      } else {
        return;
      }
    }
  }

  /// Lets all workers come back.
  void fail() {
    failed_ = true;
    for (Device& device : devices_) wake(device);
  }

  std::size_t ended_tasks() const { return ended_; }
  bool has_messages_in_flight() const { return messages_in_flight_ > 0; }
  TaskTimes take_times() { return std::move(times_); }

  /// Says who waits for whom, and what was done last. `why` is what happened; "" for a stall.
  std::string report(const Table<DeviceId, int>& physical, double stalled, const std::string& why) const {
    std::size_t tasks_here = 0;
    for (const TaskId t : plan_->tasks.ids()) tasks_here += is_here(t) ? 1U : 0U;
    std::string text = fmt::format(
        "{}; {} of {} tasks are done",
        why.empty() ? fmt::format("the step has stalled: no task has ended for {:.1f} s", stalled) : why,
        ended_.load(), tasks_here);
    for (const DeviceId d : devices_.ids()) {
      if (plan_->topology.process(d) == process_)
        text += fmt::format("\ndevice {} (physical {}) {}\n  last done:{}", d.value(), physical[d],
                            device_text(d), last_done(d));
    }
    return text;
  }

 private:
  /// How far a device is. Only its worker writes, and the transport where a message has ended.
  struct Device {
    std::array<std::atomic<std::size_t>, kStreams> next = {};
    std::array<std::atomic<bool>, kStreams> in_flight = {};  ///< the next message has begun
    std::atomic<TaskId> running = TaskId();                  ///< none while it waits
    std::atomic<std::uint32_t> news = 0;                     ///< counts the ends of tasks that it waits for
  };

  double seconds() const { return seconds_since(start_); }
  bool is_done(TaskId task) const { return done_[task].load(std::memory_order_acquire); }
  bool is_here(TaskId task) const { return plan_->topology.process(plan_->tasks[task].device) == process_; }

  /// The first task that this one still waits for, or none. Tasks of other processes are waited for by the
  /// messages that these send.
  TaskId blocker(TaskId task) const {
    for (const TaskId after : plan_->tasks[task].after) {
      if (!is_done(after) && is_here(after)) return after;
    }
    return {};
  }

  static void wake(Device& device) {
    ++device.news;
    device.news.notify_all();
  }

  /// Returns one of the streams' next tasks that can start, or none; `left` says whether there are any.
  TaskId choose(DeviceId index, bool& left) const {
    const Device& device = devices_[index];
    left = false;
    for (const Stream stream : kStreamOrder) {
      const auto s = static_cast<std::size_t>(stream);
      const std::size_t next = device.next[s].load(std::memory_order_relaxed);
      const std::vector<TaskId>& tasks = bound_->queue(index, s);
      if (next == tasks.size()) continue;
      left = true;
      if (!blocker(tasks[next]).exists()) return tasks[next];
    }
    return {};
  }

  /// Begins the messages of a device that can begin. Returns whether any has not ended.
  bool begin_messages(DeviceId index) {
    Device& device = devices_[index];
    bool left = false;
    for (std::size_t s = kWorkStreams; s < kStreams; ++s) {
      const std::vector<TaskId>& tasks = bound_->queue(index, s);
      if (device.in_flight[s]) {
        left = true;
        continue;
      }
      const std::size_t next = device.next[s];
      if (next == tasks.size()) continue;
      left = true;
      if (!blocker(tasks[next]).exists()) begin_message(index, tasks[next]);
    }
    return left;
  }

  void begin_message(DeviceId index, TaskId t) {
    const Task& task = plan_->tasks[t];
    std::vector<Transport::Piece> pieces;
    for (const BufferUse& use : task.uses)
      pieces.push_back({addresses_[use.buffer] + use.begin, bytes_of(*plan_, use)});
    const auto stream = static_cast<std::size_t>(task.stream);
    devices_[index].in_flight[stream] = true;
    ++messages_in_flight_;
    const auto when_ended = [step = shared_from_this(), index, t, stream, begin = seconds()] {
      step->end_message(index, t, stream, begin);
    };
    const int channel = message_channel(*plan_, t);
    const int process_there = plan_->topology.process(plan_->tasks[task.partner].device);
    if (task.kind == TaskKind::send)
      transport_->send(process_there, channel, std::move(pieces), when_ended);
    else
      transport_->receive(process_there, channel, std::move(pieces), when_ended);
  }

  /// Called by the transport, perhaps long after the step has failed.
  void end_message(DeviceId index, TaskId t, std::size_t stream, double begin) {
    Device& device = devices_[index];
    times_[t] = {begin, seconds()};
    ++device.next[stream];
    device.in_flight[stream] = false;
    end_task(t);
    wake(device);
    --messages_in_flight_;
  }

  void run(Device& device, TaskId t) {
    const Task& task = plan_->tasks[t];
    std::vector<std::byte*> pointers;
    for (const BufferUse& use : task.uses) pointers.push_back(addresses_[use.buffer] + use.begin);
    std::byte* workspace = task.workspace.exists() ? addresses_[task.workspace] : nullptr;
    const auto stream = static_cast<std::size_t>(task.stream);
    device.running = t;
    const double begin = seconds();
    bound_->op(t).run(pointers, workspace, nullptr);
    const double end = seconds();
    if (failed_) return;
    if (after_task_) after_task_(t);
    times_[t] = {begin, end};
    device.running = TaskId();
    ++device.next[stream];
    end_task(t);
  }

  /// Lets the devices that wait for a task go on.
  void end_task(TaskId t) {
    done_[t].store(true, std::memory_order_release);
    ++ended_;
    for (const DeviceId other : bound_->waiting_devices(t)) wake(devices_[other]);
  }

  std::string name(TaskId task) const {
    return fmt::format("task {} ({})", task.value(), describe(*plan_, plan_->tasks[task], bound_->graph()));
  }

  /// "runs task 7 (…); waits in task 9 (…) for task 3 (…)"
  std::string device_text(DeviceId d) const {
    const Device& device = devices_[d];
    const TaskId running = device.running;
    std::vector<std::string> does;
    if (running.exists()) does.push_back("runs " + name(running));
    std::vector<std::string> waits;
    for (std::size_t s = 0; s < kStreams; ++s) {
      const std::size_t next = device.next[s];
      const std::vector<TaskId>& tasks = bound_->queue(d, s);
      if (next == tasks.size()) continue;
      const TaskId task = tasks[next], other_task = blocker(task);
      if (device.in_flight[s]) {
        const DeviceId other = plan_->tasks[plan_->tasks[task].partner].device;
        waits.push_back(fmt::format("waits in {} for device {} of {}", name(task), other.value(),
                                    processes_->name(plan_->topology.process(other))));
      } else if (task != running && other_task.exists()) {
        waits.push_back(fmt::format("waits in {} for {}", name(task), name(other_task)));
      }
    }
    if (!waits.empty()) does.push_back(join(waits));
    return does.empty() ? "has nothing to do" : join(does, "; ");
  }

  /// The last tasks of a device that have ended, a line each.
  std::string last_done(DeviceId d) const {
    constexpr std::ptrdiff_t kMost = 5;
    std::vector<TaskId> last;
    for (std::size_t s = 0; s < kStreams; ++s) {
      const std::vector<TaskId>& tasks = bound_->queue(d, s);
      last.insert(last.end(), tasks.begin(),
                  tasks.begin() + static_cast<std::ptrdiff_t>(devices_[d].next[s].load()));
    }
    std::sort(last.begin(), last.end());
    if (std::ssize(last) > kMost) last.erase(last.begin(), last.end() - kMost);
    std::string text;
    for (const TaskId task : last) text += "\n    " + name(task);
    return last.empty() ? " nothing" : text;
  }

  const std::shared_ptr<const BoundPlan> bound_;
  const Plan* const plan_;
  const Table<BufferId, std::byte*> addresses_;
  const std::function<void(TaskId)> after_task_;
  const Processes* const processes_;
  Transport* const transport_;  ///< null where there is one process
  const int process_;
  const Clock::time_point start_ = Clock::now();
  TaskTimes times_;
  Table<DeviceId, Device> devices_;
  Table<TaskId, std::atomic<bool>> done_;
  std::atomic<std::size_t> ended_ = 0;  ///< tasks
  std::atomic<int> messages_in_flight_ = 0;
  std::atomic<bool> failed_ = false;  ///< a task threw, or the step stalled: nobody starts another
};

/// A thread that serves one device until it is destroyed.
class WorkerRunner::Worker {
 public:
  Worker(const Backend& backend, DeviceId index, int physical)
      : shared_(std::make_shared<Shared>()),
        thread_([shared = shared_, &backend, index, physical] { serve(*shared, backend, index, physical); }) {
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  /// A worker that is still in a task, after a stall, is left behind. It uses libraries, so the process will
  /// end without their destructors.
  ~Worker() {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->stop = true;
    }
    shared_->changed.notify_all();
    if (busy()) {
      skip_destructors_at_exit();
      thread_.detach();
    } else {
      thread_.join();
    }
  }

  void start(std::shared_ptr<Step> step) {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->step = std::move(step);
      shared_->error = nullptr;
    }
    shared_->changed.notify_all();
  }

  /// Whether the step is over for this device; waits that long for it.
  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(shared_->mutex);
    return shared_->changed.wait_for(lock, time, [this] { return shared_->step == nullptr; });
  }
  bool busy() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->step != nullptr;
  }
  std::exception_ptr error() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->error;
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::shared_ptr<Step> step;  ///< null: idle
    std::exception_ptr error;
    bool stop = false;
  };

  static void serve(Shared& shared, const Backend& backend, DeviceId index, int physical) {
    backend.enter_worker(physical);
    std::unique_lock lock(shared.mutex);
    while (true) {
      shared.changed.wait(lock, [&] { return shared.stop || shared.step != nullptr; });
      if (shared.step == nullptr) return;
      const std::shared_ptr<Step> step = shared.step;
      lock.unlock();
      std::exception_ptr error;
      try {
        step->follow(index);
      } catch (...) {
        error = std::current_exception();
        step->fail();
      }
      lock.lock();
      shared.error = error;
      shared.step = nullptr;
      shared.changed.notify_all();
    }
  }

  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

WorkerRunner::WorkerRunner(const Backend& backend, Table<DeviceId, int> physical,
                           const std::vector<DeviceId>& here, double stall_seconds, Processes* processes)
    : physical_(std::move(physical)), stall_seconds_(stall_seconds), processes_(processes) {
  for (const DeviceId device : here)
    workers_.push_back(std::make_unique<Worker>(backend, device, physical_[device]));
}

WorkerRunner::~WorkerRunner() = default;

void WorkerRunner::run(const std::shared_ptr<const BoundPlan>& bound, Table<BufferId, std::byte*> addresses,
                       const Watch& watch) {
  const auto step = std::make_shared<Step>(bound, std::move(addresses), watch.after_task, processes_);
  unfinished_ = step;
  for (auto& worker : workers_) worker->start(step);
  std::size_t ended = 0;
  auto progress = Clock::now();
  for (auto& worker : workers_) {
    while (!worker->wait_for(std::chrono::milliseconds(200))) {
      if (std::exchange(ended, step->ended_tasks()) != step->ended_tasks()) progress = Clock::now();
      const std::string why = processes_ == nullptr ? "" : processes_->transport().failure();
      if (!why.empty() || seconds_since(progress) > stall_seconds_) give_up(*step, why);
    }
  }
  for (const auto& worker : workers_) {
    if (const std::exception_ptr error = worker->error()) std::rethrow_exception(error);
  }
  unfinished_ = nullptr;
  if (watch.times != nullptr) *watch.times = step->take_times();
}

/// Workers that only wait come back; one that is in a task that never ends is left behind.
void WorkerRunner::give_up(Step& step, const std::string& why) {
  const std::string report = step.report(physical_, stall_seconds_, why);
  step.fail();
  for (auto& worker : workers_) worker->wait_for(std::chrono::milliseconds(1000));
  throw RunError(report);
}

bool WorkerRunner::uses_memory() const {
  const bool lost = std::any_of(workers_.begin(), workers_.end(), [](const auto& w) { return w->busy(); });
  return lost || (unfinished_ && unfinished_->has_messages_in_flight());
}

}  // namespace convnet
