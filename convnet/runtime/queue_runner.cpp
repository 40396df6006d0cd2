#include "convnet/runtime/queue_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <thread>

#include "convnet/base/clock.h"
#include "convnet/base/cores.h"
#include "convnet/base/error.h"
#include "convnet/runtime/parallel_copy.h"

namespace convnet {
namespace {

/// Memory of a device for recordings, and for kernels that are loaded when they first run.
constexpr std::int64_t kLoadedBytes = std::int64_t{256} << 20;

/// Returns the pieces of a message that lies at `place`, one after the other.
std::vector<Transport::Piece> pieces_of(const Plan& plan, const Task& task, std::byte* place) {
  std::vector<Transport::Piece> pieces;
  for (const BufferUse& use : task.uses) {
    pieces.push_back({place, bytes_of(plan, use)});
    place += bytes_of(plan, use);
  }
  return pieces;
}

/// Joins this process's device to those of the others, if every process has one of its own and uses it for
/// the plans: a process with several would need a thread for each, and steps could not be recorded.
std::unique_ptr<Communicator> make_communicator(const PlanSet& plans, const Backend& backend,
                                                const Table<DeviceId, int>& physical, Processes& processes) {
  if (plans.devices() != processes.count()) return nullptr;
  for (const DeviceId device : plans.device_ids()) {
    if (plans.topology().process(device) != device.value()) return nullptr;
  }
  const int own = physical[DeviceId(processes.rank())];
  std::string key;
  processes.run_collectively([&] { key = processes.uses_nccl() ? backend.communicator_key(own) : ""; });
  const std::vector<std::string> keys = processes.exchange(key);
  const std::set<std::string> different(keys.begin(), keys.end());
  if (different.size() < keys.size() || different.count("") > 0) return nullptr;
  std::string name;
  processes.run_collectively([&] { name = processes.rank() == 0 ? backend.new_communicator() : ""; });
  name = processes.exchange(name)[0];
  std::unique_ptr<Communicator> communicator;
  processes.run_collectively([&] {
    communicator =
        backend.join_communicator(own, name, processes.rank(), processes.count(), processes.stall_seconds());
  });
  return communicator;
}

}  // namespace

QueueRunner::QueueRunner(const PlanSet& plans, const Backend& backend, const Table<DeviceId, int>& physical,
                         Address address, double stall_seconds, Processes* processes)
    : plans_(plans),
      backend_(backend),
      physical_(physical),
      address_(std::move(address)),
      stall_seconds_(stall_seconds),
      processes_(processes),
      process_(processes == nullptr ? 0 : processes->rank()),
      copy_threads_(std::min(usable_cores(), 8)) {  // more help little
  if (processes != nullptr) communicator_ = make_communicator(plans, backend, physical, *processes);
  for (const DeviceId device : plans_.device_ids()) {
    const bool here = is_here(device);
    if (here) here_.push_back(device);
    const auto make = [&](bool needed) {
      return here && needed ? backend_.make_queue(physical_[device]) : nullptr;
    };
    for (int stream = 0; stream < kStreams; ++stream)
      queues_.push_back(make(stream < kWorkStreams || processes != nullptr));
    input_queues_.push_back(make(true));
  }
  for (const DeviceId device : plans_.device_ids()) {
    reaches_.emplace_back();
    for (const DeviceId other : plans_.device_ids())
      reaches_.back().push_back(other == device || !is_here(device) || !is_here(other) ||
                                backend_.reaches(physical_[device], physical_[other]));
  }
}

QueueRunner::~QueueRunner() = default;

bool QueueRunner::unreachable(const Task& task, const Buffer& buffer) const {
  return buffer.kind != BufferKind::input && !reaches_[task.device][buffer.device];
}

/// Returns the bytes of the copies that a task needs of other devices' memory.
std::int64_t QueueRunner::unreachable_bytes(const Plan& plan, const Task& task) const {
  std::int64_t bytes = 0;
  for (const BufferUse& use : task.uses) {
    if (unreachable(task, plan.buffers[use.buffer])) bytes += aligned(bytes_of(plan, use));
  }
  return bytes;
}

std::int64_t QueueRunner::costs_bytes(const Plan& plan) const {
  std::int64_t bytes = 0;
  for (const DeviceId device : here_) bytes += plan.buffers[plans_.costs_buffer(device)].bytes;
  return bytes;
}

std::int64_t QueueRunner::bytes_beside(const Plan& plan) {
  std::int64_t bytes = kLoadedBytes;
  for (const BufferId input : plan.inputs) {
    if (input.exists()) bytes += kInputs * aligned(plan.buffers[input].bytes);
  }
  return bytes;
}

QueueRunner::Prepared& QueueRunner::prepared(const BoundPlan& bound) {
  const Plan& plan = bound.plan();
  std::unique_ptr<Prepared>& entry = recorded_[&plan];
  if (entry) return *entry;
  auto ready = std::make_unique<Prepared>();
  for (Inputs& inputs : ready->inputs) {
    inputs.block = backend_.allocate_staging(plan.buffers[plans_.step_buffer(DeviceId(0))].bytes);
    inputs.costs = backend_.allocate_staging(costs_bytes(plan));
    inputs.device.resize(static_cast<std::size_t>(plans_.devices()));
    for (auto& of_device : inputs.device) of_device.resize(plan.inputs.size());
    inputs.copied.resize(inputs.device.size());
    inputs.host.resize(plan.inputs.size());
  }
  std::vector<std::int64_t> fetched(queues_.size(), 0);
  for (const TaskId t : plan.tasks.ids()) {
    const Task& task = plan.tasks[t];
    if (!is_here(task.device)) continue;
    if (is_message(task.kind)) {
      if (communicator_) continue;
      std::int64_t bytes = 0;
      for (const BufferUse& use : task.uses) bytes += bytes_of(plan, use);
      ready->messages[t].staging = backend_.allocate_staging(bytes);
      ready->recordable = false;  // the host takes part
      continue;
    }
    std::int64_t& most = fetched[queue_of(task)];
    most = std::max(most, unreachable_bytes(plan, task));
    for (const BufferUse& use : task.uses) {
      const auto input = std::find(plan.inputs.begin(), plan.inputs.end(), use.buffer);
      if (input == plan.inputs.end()) continue;
      const auto matrix = static_cast<std::size_t>(input - plan.inputs.begin());
      ready->loads.push_back({task.device, matrix, use.begin, bytes_of(plan, use)});
      const std::int64_t bytes = plan.buffers[use.buffer].bytes;
      for (Inputs& inputs : ready->inputs) {
        auto& memory = inputs.device[task.device][matrix];
        if (!memory) memory = backend_.allocate(physical_[task.device], bytes);
        if (!inputs.host[matrix]) inputs.host[matrix] = backend_.allocate_staging(bytes);
      }
    }
  }
  for (std::size_t q = 0; q < queues_.size(); ++q) {
    ready->fetched.push_back(
        fetched[q] == 0 ? nullptr : backend_.allocate(physical_[DeviceId(q / kStreams)], fetched[q]));
    // Copies between devices that do not reach each other go through the host, which cannot be recorded.
    if (fetched[q] > 0) ready->recordable = false;
  }
  entry = std::move(ready);
  return *entry;
}

/// Copies what the devices load of `matrices` to them, in queues of its own.
void QueueRunner::fill(const Plan& plan, const std::vector<Load>& loads, const Matrices& matrices,
                       Inputs& inputs) {
  for (const auto& copied : inputs.copied) {
    // The step that was expected has not come, so nobody has waited for these copies.
    if (copied) wait_for(*copied, [] { return std::string("in copies of a minibatch"); });
  }
  inputs.holds.clear();
  for (std::size_t m = 0; m < plan.inputs.size(); ++m) {
    if (inputs.host[m])
      copy_in_threads(inputs.host[m]->data(), matrices[m], inputs.host[m]->bytes(),
                      {.most_threads = copy_threads_});
  }
  for (const Load& load : loads)
    input_queues_[load.device]->copy(inputs.device[load.device][load.matrix]->data() + load.begin,
                                     inputs.host[load.matrix]->data() + load.begin, load.bytes);
  for (const DeviceId device : here_) inputs.copied[device] = input_queues_[device]->mark();
  inputs.holds = matrices;
}

void QueueRunner::enqueue_task(const BoundPlan& bound, TaskId t, const Prepared& ready,
                               const Inputs& inputs) {
  const Plan& plan = bound.plan();
  const Task& task = plan.tasks[t];
  const std::size_t q = queue_of(task);
  Queue& queue = *queues_[q];
  std::vector<std::byte*> pointers;
  std::int64_t fetched = 0;
  for (const BufferUse& use : task.uses) {
    const Buffer& buffer = plan.buffers[use.buffer];
    if (buffer.kind == BufferKind::input) {
      const auto m = static_cast<std::size_t>(std::find(plan.inputs.begin(), plan.inputs.end(), use.buffer) -
                                              plan.inputs.begin());
      pointers.push_back(inputs.device[task.device][m]->data() + use.begin);
    } else if (unreachable(task, buffer)) {
      if (use.access != Access::read)
        throw std::logic_error("executor: " + describe(plan, task, plans_.graph()) +
                               " writes to another device");
      std::byte* here = ready.fetched[q]->data() + fetched;
      queue.copy(here, address_(buffer) + use.begin, bytes_of(plan, use));
      fetched += aligned(bytes_of(plan, use));
      pointers.push_back(here);
    } else {
      pointers.push_back(address_(buffer) + use.begin);
    }
  }
  std::byte* workspace = task.workspace.exists() ? address_(plan.buffers[task.workspace]) : nullptr;
  bound.op(t).run(pointers, workspace, &queue);
}

Queue& QueueRunner::queue_for(const Task& task) const { return *queues_[queue_of(task)]; }

/// Lets the transport receive all messages of a step into the host's memory, which the step before has left.
void QueueRunner::begin_receiving(const Plan& plan, Prepared& ready) {
  for (auto& [t, message] : ready.messages) {
    const Task& task = plan.tasks[t];
    if (task.kind != TaskKind::receive) continue;
    if (message.copied) wait_for(*message.copied, [] { return std::string("in copies of messages"); });
    *message.ended = false;
    processes_->transport().receive(plan.topology.process(plan.tasks[task.partner].device),
                                    message_channel(plan, t), pieces_of(plan, task, message.staging->data()),
                                    [ended = message.ended] { *ended = true; });
  }
}

/// Puts the copies of a message between the device and the host into the device's queue.
void QueueRunner::enqueue_message(const Plan& plan, TaskId t, Message& message) {
  const Task& task = plan.tasks[t];
  Queue& queue = queue_for(task);
  std::byte* host = message.staging->data();
  for (const BufferUse& use : task.uses) {
    std::byte* device = address_(plan.buffers[use.buffer]) + use.begin;
    const bool sends = task.kind == TaskKind::send;
    queue.copy(sends ? host : device, sends ? device : host, bytes_of(plan, use));
    host += bytes_of(plan, use);
  }
  message.copied = queue.mark();
  if (task.kind == TaskKind::send) to_send_.push_back(t);
}

/// Puts messages that go on at the same time into the queue of messages.
void QueueRunner::enqueue_group(const Plan& plan, const std::vector<TaskId>& group) {
  std::vector<Communicator::Piece> pieces;
  for (const TaskId t : group) {
    const Task& task = plan.tasks[t];
    const int peer = plan.topology.process(plan.tasks[task.partner].device);
    for (const BufferUse& use : task.uses)
      pieces.push_back({task.kind == TaskKind::send, peer, address_(plan.buffers[use.buffer]) + use.begin,
                        bytes_of(plan, use)});
  }
  communicator_->exchange(queue_for(plan.tasks[group[0]]), pieces);
}

/// Gives the messages that the host has to the transport, in order. Returns whether it has sent all.
bool QueueRunner::send_what_is_ready(const Plan& plan, Prepared& ready) {
  while (!to_send_.empty()) {
    const TaskId t = to_send_.front();
    const Task& task = plan.tasks[t];
    Message& message = ready.messages.at(t);
    if (!message.copied->reached()) return false;
    to_send_.pop_front();
    const DeviceId to = plan.tasks[task.partner].device;
    *message.ended = false;
    processes_->transport().send(plan.topology.process(to), message_channel(plan, t),
                                 pieces_of(plan, task, message.staging->data()),
                                 [ended = message.ended] { *ended = true; });
  }
  return true;
}

/// Waits until `done`, and sends messages meanwhile. Throws RunError if that takes longer than a stall.
void QueueRunner::wait_for_messages(const Plan& plan, Prepared& ready, const std::function<bool()>& done,
                                    const std::string& report) {
  const auto start = Clock::now();
  while (true) {
    send_what_is_ready(plan, ready);
    if (done()) return;
    const double waited = seconds_since(start);
    const std::string why = failure();
    if (!why.empty() || waited > stall_seconds_) give_up(why, waited, report);
    if (waited > 0.001) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

/// Puts one step into the queues. The first queue begins and ends it.
class QueueRunner::Filling {
 public:
  /// `marks` (optional) receives the marks of every task; `after_task` (optional) is called when one has
  /// ended.
  Filling(QueueRunner& runner, const BoundPlan& bound, Prepared& ready, const Inputs& inputs,
          Table<TaskId, Marks>* marks, const std::function<void(TaskId)>& after_task)
      : runner_(runner),
        bound_(bound),
        plan_(bound.plan()),
        ready_(ready),
        inputs_(inputs),
        marks_(marks),
        after_task_(after_task),
        streams_(runner.processes_ != nullptr ? kStreams : kWorkStreams),
        ends_(plan_.tasks.size()) {}

  /// Puts everything into the queues, from the copies of the step block to those of the costs.
  void fill() {
    runner_.to_send_.clear();  // of a step that has failed
    if (runner_.processes_ != nullptr) runner_.begin_receiving(plan_, ready_);
    copy_step_block();
    for (const TaskId t : plan_.tasks.ids()) {
      if (runner_.is_here(plan_.tasks[t].device)) add(t);
    }
    add_group();
    if (runner_.processes_ != nullptr)
      runner_.wait_for_messages(
          plan_, ready_, [&] { return runner_.to_send_.empty(); }, "until all messages are on the host");
    copy_costs();
  }

 private:
  Queue& queue(DeviceId device, std::size_t stream) {
    return *runner_.queues_[device.index() * kStreams + stream];
  }
  std::byte* on_device(BufferId buffer) { return runner_.address_(plan_.buffers[buffer]); }

  /// Lets all queues of all devices wait for the step's beginning and their step block.
  void copy_step_block() {
    const DeviceId first = runner_.here_[0];
    const auto begin = queue(first, 0).mark();
    for (const DeviceId device : runner_.here_) {
      if (device != first) queue(device, 0).wait(*begin);
    }
    for (const DeviceId device : runner_.here_) {
      queue(device, 0).copy(on_device(runner_.plans_.step_buffer(device)), inputs_.block->data(),
                            inputs_.block->bytes());
      const auto has_block = queue(device, 0).mark();
      for (std::size_t stream = 1; stream < streams_; ++stream) queue(device, stream).wait(*has_block);
    }
  }

  /// Puts a task into its queue. Messages of a communicator are collected in groups, which begin as a whole:
  /// consecutive messages of this process, without another of its tasks between them, of which none waits for
  /// another. A group begins once all messages of this process before it have ended. So the first message of
  /// the plan that has not ended is free to go on at both of its ends, and no two processes wait for each
  /// other.
  void add(TaskId t) {
    const Task& task = plan_.tasks[t];
    if (runner_.communicator_ && is_message(task.kind)) {
      const bool waits = std::any_of(task.after.begin(), task.after.end(), [&](TaskId after) {
        return std::find(group_.begin(), group_.end(), after) != group_.end();
      });
      if (waits) add_group();
      group_.push_back(t);
      return;
    }
    add_group();
    if (is_message(task.kind)) await_host_end(t);
    enqueue({t});
  }
  void add_group() {
    if (!group_.empty()) enqueue(std::exchange(group_, {}));
  }

  /// Waits until the host has a message, or has sent the one that lay in its place before. What this host has
  /// to send first may be what the other end waits for.
  void await_host_end(TaskId t) {
    const Task& task = plan_.tasks[t];
    const Message& message = ready_.messages.at(t);
    const DeviceId other = plan_.tasks[task.partner].device;
    runner_.wait_for_messages(
        plan_, ready_, [&] { return message.ended->load(); },
        fmt::format("in {}, for device {} of {}", describe(plan_, task, runner_.plans_.graph()),
                    other.value(), runner_.processes_->name(plan_.topology.process(other))));
  }

  /// Puts tasks into the queue of the first: one, or messages that go on at the same time.
  void enqueue(const std::vector<TaskId>& group) {
    const Task& task = plan_.tasks[group[0]];
    Queue& queue = runner_.queue_for(task);
    bool is_waited_for = marks_ != nullptr;
    for (const TaskId t : group) {
      is_waited_for = is_waited_for || bound_.is_waited_for(t);
      for (const TaskId after : plan_.tasks[t].after) {
        const auto& other = ends_[after];
        if (other && &runner_.queue_for(plan_.tasks[after]) != &queue) queue.wait(*other);
      }
    }
    const auto begins = marks_ != nullptr ? queue.mark() : nullptr;
    if (!is_message(task.kind))
      runner_.enqueue_task(bound_, group[0], ready_, inputs_);
    else if (runner_.communicator_)
      runner_.enqueue_group(plan_, group);
    else
      runner_.enqueue_message(plan_, group[0], ready_.messages.at(group[0]));
    const auto ended = is_waited_for ? queue.mark() : nullptr;
    for (const TaskId t : group) {
      ends_[t] = ended;
      if (marks_ != nullptr) (*marks_)[t] = {begins, ended};
    }
    if (!after_task_) return;
    runner_.wait_for(*queue.mark(), [&] { return "in " + describe(plan_, task, runner_.plans_.graph()); });
    for (const TaskId t : group) after_task_(t);
  }

  /// Copies the costs of all devices to the host once all their queues have come to an end.
  void copy_costs() {
    const DeviceId first = runner_.here_[0];
    std::int64_t place = 0;
    for (const DeviceId device : runner_.here_) {
      Queue& last = queue(device, 0);
      for (std::size_t stream = 1; stream < streams_; ++stream) last.wait(*queue(device, stream).mark());
      const Buffer& costs = plan_.buffers[runner_.plans_.costs_buffer(device)];
      last.copy(inputs_.costs->data() + place, runner_.address_(costs), costs.bytes);
      place += costs.bytes;
      if (device != first) queue(first, 0).wait(*last.mark());
    }
  }

  QueueRunner& runner_;
  const BoundPlan& bound_;
  const Plan& plan_;
  Prepared& ready_;
  const Inputs& inputs_;
  Table<TaskId, Marks>* const marks_;
  const std::function<void(TaskId)>& after_task_;
  const std::size_t streams_;
  Table<TaskId, std::shared_ptr<const Mark>> ends_;  ///< of tasks that others wait for
  std::vector<TaskId> group_;                        ///< messages that are not yet in a queue
};

void QueueRunner::wait_for(const Mark& mark, const std::function<std::string()>& report) {
  // Waking a thread takes the system longer than many a step does. Several processes may have to share the
  // processors.
  const double looks_on = processes_ == nullptr ? 0.05 : 0.005;  // seconds
  const auto start = Clock::now();
  while (!mark.reached()) {
    const double waited = seconds_since(start);
    if (waited <= looks_on) continue;
    const std::string why = failure();
    if (!why.empty() || waited > stall_seconds_) give_up(why, waited, report());
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

/// Returns why messages no longer arrive, or "".
std::string QueueRunner::failure() const {
  std::string why = processes_ == nullptr ? "" : processes_->transport().failure();
  if (why.empty() && communicator_) why = communicator_->failure();
  return why;
}

void QueueRunner::give_up(const std::string& why, double waited, const std::string& report) {
  stalled_ = true;
  throw RunError((why.empty() ? fmt::format("the step has stalled: nothing has ended for {:.0f} s ", waited)
                              : why + "; it waits ") +
                 report);
}

/// Returns the memory of the plan's next step, in which `matrices` are.
QueueRunner::Inputs& QueueRunner::filled(const Plan& plan, Prepared& ready, const Matrices& matrices) {
  const bool busy =
      std::any_of(line_.begin(), line_.end(), [&](const InFlight& step) { return step.ready == &ready; });
  const std::optional<std::size_t> expected = std::exchange(ready.expected, std::nullopt);
  const bool here =
      expected && ready.inputs.at(*expected).holds == matrices && !(busy && *expected == ready.current);
  const std::size_t place = here ? *expected : busy ? 1 - ready.current : ready.current;
  Inputs& inputs = ready.inputs.at(place);
  if (!here) fill(plan, ready.loads, matrices, inputs);
  ready.current = place;
  return inputs;
}

/// Puts a step into the queues, whose matrices and step block are there.
void QueueRunner::begin(InFlight& step) {
  const BoundPlan& bound = *step.bound;
  Prepared& ready = *step.ready;
  Inputs& inputs = *step.inputs;
  const bool plainly = !step.watch.any();
  try {
    Queue& first = *queues_[here_[0].index() * kStreams];
    if (step.watch.times != nullptr) step.start = first.mark();
    for (const auto& copied : inputs.copied) {
      if (copied) first.wait(*copied);
    }
    // The first run makes what libraries make at their first call, which cannot be recorded.
    if (plainly && ready.recordable && ready.runs > 0 && !inputs.recording) {
      std::vector<Queue*> all = {&first};  // a play begins and ends in the first one
      for (const auto& queue : queues_) {
        if (queue && queue.get() != &first) all.push_back(queue.get());
      }
      // Emulated devices call this again when they play.
      const auto all_of_it = [this, &bound, &ready, &inputs] {
        Filling(*this, bound, ready, inputs, nullptr, {}).fill();
      };
      try {
        inputs.recording = backend_.record(all, all_of_it);
      } catch (const DeviceError& e) {
        fmt::print(stderr,
                   "warning: a step cannot be recorded, so its operations are started one by one: {}\n",
                   e.what());
        ready.recordable = false;
      }
    }
    if (plainly && inputs.recording)
      inputs.recording->play(first);
    else
      Filling(*this, bound, ready, inputs, plainly ? nullptr : &step.marks, step.watch.after_task).fill();
    step.end = first.mark();
    if (plainly) ++ready.runs;
  } catch (...) {
    step.error = std::current_exception();
  }
}

void QueueRunner::begin_oldest() {
  if (!line_.empty() && !line_.front().begun()) begin(line_.front());
}

void QueueRunner::submit(const BoundPlan& bound, const Matrices& matrices,
                         const std::vector<std::byte>& block, Watch watch) {
  begin_oldest();  // copies of the matrices shall not delay it
  Prepared& ready = prepared(bound);
  InFlight step;
  step.bound = &bound;
  step.ready = &ready;
  step.inputs = &filled(bound.plan(), ready, matrices);
  if (watch.any()) step.marks.resize(bound.plan().tasks.size());
  step.watch = std::move(watch);
  std::memcpy(step.inputs->block->data(), block.data(), block.size());
  const bool both_recorded = !line_.empty() && line_.front().end && line_.front().inputs->recording &&
                             step.inputs->recording && !step.watch.any();
  if (line_.empty() || both_recorded) begin(step);
  line_.push_back(std::move(step));
}

std::vector<double> QueueRunner::wait() {
  begin_oldest();
  const InFlight step = std::move(line_.front());
  line_.pop_front();
  if (step.error) std::rethrow_exception(step.error);
  wait_for(*step.end, [&] {
    const Plan& plan = step.bound->plan();
    std::string report = "in a step of " + std::to_string(plan.tasks.size()) + " tasks";
    for (const TaskId t : step.marks.ids()) {
      if (!step.marks[t].end || step.marks[t].end->reached()) continue;
      report += "; the first that is not done is task " + std::to_string(t.value()) + " (" +
                describe(plan, plan.tasks[t], plans_.graph()) + ")";
      break;
    }
    return report;
  });
  if (step.watch.times != nullptr) *step.watch.times = times_of(step);
  std::vector<double> costs(static_cast<std::size_t>(step.inputs->costs->bytes()) / sizeof(double));
  std::memcpy(costs.data(), step.inputs->costs->data(), costs.size() * sizeof(double));
  return costs;
}

TaskTimes QueueRunner::times_of(const InFlight& step) const {
  const Plan& plan = step.bound->plan();
  // Marks of one device can be compared: each device's times begin with its own first task.
  Table<DeviceId, std::shared_ptr<const Mark>> first(static_cast<std::size_t>(plans_.devices()));
  first[here_[0]] = step.start;
  TaskTimes times;
  for (const TaskId t : plan.tasks.ids()) {
    if (!is_here(plan.tasks[t].device)) {
      times.emplace_back();
      continue;
    }
    auto& begun = first[plan.tasks[t].device];
    if (!begun) begun = step.marks[t].begin;
    times.push_back({step.marks[t].begin->seconds_since(*begun), step.marks[t].end->seconds_since(*begun)});
  }
  return times;
}

void QueueRunner::expect(const BoundPlan& bound, const Matrices& matrices) {
  Prepared& ready = prepared(bound);
  std::size_t place = ready.current;
  if (ready.inputs.at(place).holds != matrices) {
    place = 1 - place;
    fill(bound.plan(), ready.loads, matrices, ready.inputs.at(place));
  }
  ready.expected = place;
}

void QueueRunner::settle() {
  for (const InFlight& step : line_) {
    if (step.end && !stalled_)
      wait_for(*step.end, [] { return std::string("in a step whose costs were not read"); });
  }
}

bool QueueRunner::uses_memory() const {
  const auto has_messages = [](const auto& entry) {
    const auto& messages = entry.second->messages;
    return std::any_of(messages.begin(), messages.end(),
                       [](const auto& message) { return !message.second.ended->load(); });
  };
  return stalled_ || std::any_of(recorded_.begin(), recorded_.end(), has_messages);
}

bool QueueRunner::is_recorded(const Plan& plan) const {
  const auto found = recorded_.find(&plan);
  return found != recorded_.end() && found->second->inputs.at(found->second->current).recording != nullptr;
}

void QueueRunner::forget() { recorded_.clear(); }

}  // namespace convnet
