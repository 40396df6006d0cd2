#include "convnet/runtime/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

#include "convnet/base/clock.h"
#include "convnet/base/cores.h"
#include "convnet/base/error.h"
#include "convnet/config/diagnostics.h"
#include "convnet/plan/message_groups.h"
#include "convnet/runtime/filling.h"
#include "convnet/runtime/parallel_copy.h"

namespace convnet {
namespace {

/// Memory of a GPU for recordings, and for kernels that are loaded when they first run.
constexpr std::int64_t kLoadedBytes = std::int64_t{256} << 20;

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

/// Returns the streams in the order in which a device that does one piece of work at a time looks at them.
/// Messages come first: to begin them takes no time.
std::vector<Stream> streams_in_order(bool with_messages) {
  std::vector<Stream> streams;
  for (int s = kWorkStreams; with_messages && s < kStreams; ++s) streams.push_back(static_cast<Stream>(s));
  streams.insert(streams.end(), kStreamOrder.begin(), kStreamOrder.end());
  return streams;
}

}  // namespace

Runner::Runner(const PlanSet& plans, const Backend& backend, const Table<DeviceId, int>& physical,
               Address address, double stall_seconds, Processes* processes)
    : plans_(plans),
      backend_(backend),
      physical_(physical),
      address_(std::move(address)),
      stall_seconds_(stall_seconds),
      processes_(processes),
      process_(processes == nullptr ? 0 : processes->rank()),
      on_host_(backend.on_host()),
      copy_threads_(std::min(usable_cores(), 8)),  // more help little
      queues_(static_cast<std::size_t>(plans.devices()) * kStreams),
      input_queues_(static_cast<std::size_t>(plans.devices())) {
  if (processes != nullptr && !on_host_)
    communicator_ = make_communicator(plans, backend, physical, *processes);
  const std::vector<Stream> streams = streams_in_order(processes != nullptr);
  for (const DeviceId device : plans_.device_ids()) {
    const auto reaches = [&](DeviceId other) {
      return !is_here(device) || !is_here(other) || backend_.reaches(physical_[device], physical_[other]);
    };
    reaches_.emplace_back();
    for (const DeviceId other : plans_.device_ids()) reaches_.back().push_back(reaches(other));
    if (!is_here(device)) continue;
    here_.push_back(device);
    auto queues = backend_.make_queues(physical_[device], streams.size());
    for (std::size_t i = 0; i < streams.size(); ++i)
      queues_[device.index() * kStreams + static_cast<std::size_t>(streams[i])] = std::move(queues[i]);
    if (!on_host_) input_queues_[device] = backend_.make_queue(physical_[device]);
  }
}

Runner::~Runner() {
  if (on_host_) queues_.clear();  // their threads end before what they use
}

/// Messages through a communicator are one sequence, the same for all processes: the plan's.
std::size_t Runner::queue_of(const Task& task) const {
  const Stream stream = communicator_ && is_message(task.kind) ? Stream::send : task.stream;
  return task.device.index() * kStreams + static_cast<std::size_t>(stream);
}

/// Whether operations of the task's device can access the buffer.
bool Runner::reaches(const Task& task, const Buffer& buffer) const {
  return buffer.kind == BufferKind::input || reaches_[task.device][buffer.device];
}

std::int64_t Runner::bytes_beside(const Plan& plan) const {
  if (on_host_) return 0;
  std::int64_t bytes = kLoadedBytes;
  for (const BufferId input : plan.inputs) {
    if (input.exists()) bytes += static_cast<std::int64_t>(kSlots) * aligned(plan.buffers[input].bytes);
  }
  return bytes;
}

Runner::Prepared& Runner::prepared(const std::shared_ptr<const BoundPlan>& bound) {
  const Plan& plan = bound->plan();
  if (const auto known = prepared_.find(&plan); known != prepared_.end()) return *known->second;
  auto ready = std::make_unique<Prepared>();
  ready->bound = bound;
  if (communicator_) ready->begins_of_groups = begins_of_groups(plan);
  std::vector<std::int64_t> fetched(queues_.size(), 0);
  for (const TaskId t : plan.tasks.ids()) {
    const Task& task = plan.tasks[t];
    if (!is_here(task.device)) continue;
    std::int64_t bytes = 0, unreachable = 0;
    for (std::size_t k = 0; k < task.uses.size(); ++k) {
      const BufferUse& use = task.uses[k];
      bytes += bytes_of(plan, use);
      if (!reaches(task, plan.buffers[use.buffer])) {
        if (use.access != Access::read)
          throw std::logic_error("executor: " + describe(plan, task, bound->graph()) +
                                 " writes to another device");
        unreachable += aligned(bytes_of(plan, use));
      }
      const auto input = std::find(plan.inputs.begin(), plan.inputs.end(), use.buffer);
      if (input != plan.inputs.end())
        ready->loads.push_back(
            {t, k, static_cast<std::size_t>(input - plan.inputs.begin()), use.begin, bytes_of(plan, use)});
    }
    if (is_message(task.kind)) {
      if (communicator_ || on_host_) continue;
      ready->messages[t].staging = backend_.allocate_staging(bytes);
      ready->recordable = false;  // the host takes part
    }
    std::int64_t& most = fetched[queue_of(task)];
    most = std::max(most, unreachable);
  }
  for (std::size_t q = 0; q < queues_.size(); ++q) {
    ready->fetched.push_back(
        fetched[q] == 0 ? nullptr : backend_.allocate(physical_[DeviceId(q / kStreams)], fetched[q]));
    // Copies between devices that do not reach each other go through the host, which cannot be recorded.
    if (fetched[q] > 0) ready->recordable = false;
  }
  for (Slot& slot : ready->slots) prepare_slot(*ready, slot);
  return *prepared_.emplace(&plan, std::move(ready)).first->second;
}

/// Allocates the memory of a slot, and finds the arguments of all tasks.
void Runner::prepare_slot(const Prepared& ready, Slot& slot) const {
  const Plan& plan = ready.bound->plan();
  std::int64_t costs = 0;
  for (const DeviceId device : here_) costs += plan.buffers[plans_.costs_buffer(device)].bytes;
  slot.costs = backend_.allocate_staging(costs);
  slot.block = backend_.allocate_staging(plan.buffers[plans_.step_buffer(DeviceId(0))].bytes);
  slot.copied.resize(here_.empty() ? 0 : input_queues_.size());
  slot.host.resize(plan.inputs.size());
  slot.device.resize(input_queues_.size());
  for (auto& matrices : slot.device) matrices.resize(plan.inputs.size());
  slot.pointers.resize(plan.tasks.size());
  for (const TaskId t : plan.tasks.ids()) {
    const Task& task = plan.tasks[t];
    if (!is_here(task.device)) continue;
    std::int64_t fetched = 0;
    for (const BufferUse& use : task.uses) {
      const Buffer& buffer = plan.buffers[use.buffer];
      std::byte* place = nullptr;
      if (!reaches(task, buffer)) {
        place = ready.fetched[queue_of(task)]->data() + fetched;
        fetched += aligned(bytes_of(plan, use));
      } else if (buffer.kind != BufferKind::input) {
        place = address_(buffer) + use.begin;
      }
      slot.pointers[t].push_back(place);
    }
  }
  for (const Load& load : ready.loads) {
    if (on_host_) continue;  // fill() knows where they lie
    const DeviceId device = plan.tasks[load.task].device;
    const std::int64_t bytes = plan.buffers[plan.inputs[load.matrix]].bytes;
    auto& memory = slot.device[device][load.matrix];
    if (!memory) memory = backend_.allocate(physical_[device], bytes);
    if (!slot.host[load.matrix]) slot.host[load.matrix] = backend_.allocate_staging(bytes);
    slot.pointers[load.task][load.argument] = memory->data() + load.begin;
  }
}

/// Copies what the devices load of `matrices` to them, in queues of its own. Devices of the host read it
/// where it lies.
void Runner::fill(const Prepared& ready, const Matrices& matrices, Slot& slot) {
  const Plan& plan = ready.bound->plan();
  if (on_host_) {
    for (const Load& load : ready.loads)  // load tasks only read it
      slot.pointers[load.task][load.argument] = const_cast<std::byte*>(matrices[load.matrix]) + load.begin;
    return;
  }
  for (const auto& copied : slot.copied) {
    // The step that was expected has not come, so nobody has waited for these copies.
    if (copied) wait_for(*copied, [] { return std::string("it waits in copies of a minibatch"); });
  }
  slot.holds.clear();
  for (std::size_t m = 0; m < plan.inputs.size(); ++m) {
    if (slot.host[m])
      copy_in_threads(slot.host[m]->data(), matrices[m], slot.host[m]->bytes(),
                      {.most_threads = copy_threads_});
  }
  for (const Load& load : ready.loads)
    input_queues_[plan.tasks[load.task].device]->copy(
        slot.pointers[load.task][load.argument], slot.host[load.matrix]->data() + load.begin, load.bytes);
  for (const DeviceId device : here_) slot.copied[device] = input_queues_[device]->mark();
  slot.holds = matrices;
}

/// Returns the slot of the plan's next step, which has `matrices`.
Runner::Slot& Runner::filled(Prepared& ready, const Matrices& matrices) {
  const bool busy =
      std::any_of(line_.begin(), line_.end(), [&](const InFlight& step) { return step.ready == &ready; });
  const std::optional<std::size_t> expected = std::exchange(ready.expected, std::nullopt);
  const bool here =
      expected && ready.slots.at(*expected).holds == matrices && !(busy && *expected == ready.current);
  ready.current = here ? *expected : busy ? 1 - ready.current : ready.current;
  Slot& slot = ready.slots.at(ready.current);
  if (!here) fill(ready, matrices, slot);
  return slot;
}

/// Begins to send or receive a message.
std::shared_ptr<const MessageTransfer> Runner::transfer(const Plan& plan, TaskId t,
                                                        std::vector<Transport::Piece> pieces,
                                                        StepState& state, std::function<void()> go_on) {
  const Task& task = plan.tasks[t];
  const int peer = plan.topology.process(plan.tasks[task.partner].device);
  auto transfer = std::make_shared<MessageTransfer>(std::move(go_on));
  state.add(transfer);
  const auto ended = [transfer] { transfer->end(); };
  try {
    if (task.kind == TaskKind::send)
      processes_->transport().send(peer, message_channel(plan, t), std::move(pieces), ended);
    else
      processes_->transport().receive(peer, message_channel(plan, t), std::move(pieces), ended);
  } catch (...) {
    ended();
    throw;
  }
  return transfer;
}

/// Makes the recording of a slot.
void Runner::record(Prepared& ready, Slot& slot) {
  Queue& first = first_queue(here_[0]);
  std::vector<Queue*> all = {&first};  // a play begins and ends in the first one
  for (const auto& queue : queues_) {
    if (queue && queue.get() != &first) all.push_back(queue.get());
  }
  const auto marks = on_host_ ? std::make_shared<StepMarks>() : nullptr;
  // Emulated devices call this again when they play.
  const auto all_of_it = [this, &ready, &slot, marks] {
    Filling(*this, ready, slot, marks.get(), {}).fill();
  };
  try {
    slot.recording = backend_.record(all, all_of_it);
    slot.recorded_marks = marks;
  } catch (const DeviceError& e) {
    fmt::print(stderr, "warning: a step cannot be recorded, so its operations are started one by one: {}\n",
               e.what());
    ready.recordable = false;
  }
}

/// Whether the step is played from a recording, if it can be recorded.
bool Runner::plays(const InFlight& step) const {
  return step.ready->recordable && !step.watch.after_task && (on_host_ || step.watch.times == nullptr);
}

/// Puts a step into the queues, whose matrices and step block are there.
void Runner::begin(InFlight& step) {
  step.begun = true;
  if (here_.empty()) return;
  Prepared& ready = *step.ready;
  Slot& slot = *step.slot;
  const Watch& watch = step.watch;
  slot.state.begin();
  try {
    Queue& first = first_queue(here_[0]);
    for (const auto& copied : slot.copied) {
      if (copied) first.wait(*copied);
    }
    const bool plainly = plays(step);
    // The first run makes what GPUs' libraries make at their first call, which cannot be recorded.
    if (plainly && (ready.has_run || on_host_) && !slot.recording) record(ready, slot);
    if (plainly && slot.recording) {
      step.marks = slot.recorded_marks;
      slot.recording->play(first);
    } else {
      const auto marks = watch.times != nullptr || watch.after_task ? std::make_shared<StepMarks>() : nullptr;
      step.marks = marks;
      Filling(*this, ready, slot, marks.get(), watch.after_task).fill();
    }
    step.end = first.mark();
    ready.has_run = ready.has_run || plainly;
  } catch (...) {
    slot.state.fail(std::current_exception());
    // A queue may wait for a message that nobody sends any more, and freeing memory would wait for the queue.
    if (communicator_) stalled_ = true;
  }
}

/// Begins the oldest step, unless it begins in wait().
void Runner::begin_oldest() {
  if (!line_.empty() && !line_.front().begun && !line_.front().watch.after_task) begin(line_.front());
}

void Runner::submit(const std::shared_ptr<const BoundPlan>& bound, const Matrices& matrices,
                    const std::vector<std::byte>& block, Watch watch) {
  begin_oldest();  // copies of the matrices shall not delay it
  InFlight step;
  step.ready = &prepared(bound);
  step.slot = &filled(*step.ready, matrices);
  step.watch = std::move(watch);
  std::memcpy(step.slot->block->data(), block.data(), block.size());
  const bool behind = !line_.empty();
  const bool follows = behind && line_.front().end && plays(step) &&
                       (on_host_ || (line_.front().slot->recording && step.slot->recording));
  line_.push_back(std::move(step));
  if (!behind)
    begin_oldest();
  else if (follows)
    begin(line_.back());
}

std::vector<double> Runner::wait() {
  InFlight step = std::move(line_.front());
  line_.pop_front();
  if (!step.begun) begin(step);
  if (step.end) wait_for_end(step);
  step.slot->state.rethrow_error();
  if (step.watch.times != nullptr) *step.watch.times = times_of(step);
  std::vector<double> costs(static_cast<std::size_t>(step.slot->costs->bytes()) / sizeof(double));
  if (!costs.empty()) std::memcpy(costs.data(), step.slot->costs->data(), costs.size() * sizeof(double));
  return costs;
}

void Runner::expect(const std::shared_ptr<const BoundPlan>& bound, const Matrices& matrices) {
  if (on_host_) return;  // nothing is copied
  Prepared& ready = prepared(bound);
  std::size_t place = ready.current;
  if (ready.slots.at(place).holds != matrices) {
    place = 1 - place;
    fill(ready, matrices, ready.slots.at(place));
  }
  ready.expected = place;
}

void Runner::settle() {
  for (const InFlight& step : line_) {
    if (step.end && !stalled_) wait_for_end(step);
  }
}

/// Waits until a mark is reached. Throws RunError if that takes longer than a stall without `progress`, which
/// returns another number when a task has ended.
void Runner::wait_for(const Mark& mark, const std::function<std::string()>& report,
                      const std::function<std::size_t()>& progress) {
  // Waking a thread takes the system longer than many a step does on a GPU. Several processes may have to
  // share the processors; on devices of the host the waiting thread would take one from them.
  const double looks_on = on_host_ ? 0 : processes_ == nullptr ? 0.05 : 0.005;  // seconds
  auto start = Clock::now();
  std::size_t ended = 0;
  while (!mark.reached()) {
    if (seconds_since(start) <= looks_on) continue;
    if (progress && std::exchange(ended, progress()) != ended) start = Clock::now();
    check_progress(seconds_since(start), report);
    mark.rest();
  }
}

/// Throws RunError if messages no longer arrive, or nothing has ended for the seconds of a stall.
void Runner::check_progress(double waited, const std::function<std::string()>& report) {
  std::string why = processes_ == nullptr ? "" : processes_->transport().failure();
  if (why.empty() && communicator_) why = communicator_->failure();
  if (why.empty() && waited <= stall_seconds_) return;
  stalled_ = true;
  if (why.empty()) why = fmt::format("the step has stalled: no task has ended for {:.1f} s", waited);
  throw RunError(why + "; " + report());
}

void Runner::wait_for_end(const InFlight& step) {
  const std::function<std::size_t()> ended_tasks = [&] {
    if (!step.marks) return std::size_t{0};
    return static_cast<std::size_t>(
        std::count_if(step.marks->tasks.begin(), step.marks->tasks.end(),
                      [](const TaskMarks& t) { return t.done && t.done->reached(); }));
  };
  const auto progress = on_host_ ? ended_tasks : nullptr;  // GPUs would be asked often
  try {
    wait_for(
        *step.end, [&] { return report(step, ended_tasks()); }, progress);
  } catch (const RunError&) {
    // Threads that only wait come back; one that is in a task that never ends is left behind.
    if (on_host_) {
      step.slot->state.fail(std::current_exception());
      for (const InFlight& behind : line_) behind.slot->state.fail(std::current_exception());
      for (int i = 0; i < 10 && !step.end->reached(); ++i) step.end->rest();
      stalled_ = !step.end->reached();
    }
    throw;
  }
}

/// Says who waits for whom, and what was done last.
std::string Runner::report(const InFlight& step, std::size_t ended) const {
  const Plan& plan = step.ready->bound->plan();
  const auto here = std::count_if(plan.tasks.begin(), plan.tasks.end(),
                                  [&](const Task& task) { return is_here(task.device); });
  if (!step.marks) return fmt::format("it waits in a step of {} tasks", here);
  std::string text = fmt::format("{} of {} tasks are done", ended, here);
  for (const DeviceId device : here_)
    text += fmt::format("\ndevice {} (physical {}) {}", device.value(), physical_[device],
                        device_report(step, device));
  return text;
}

/// "runs task 7 (…); waits in task 9 (…) for task 3 (…)", and the last tasks that have ended, a line each
std::string Runner::device_report(const InFlight& step, DeviceId device) const {
  constexpr std::ptrdiff_t kMost = 5;
  const BoundPlan& bound = *step.ready->bound;
  const Plan& plan = bound.plan();
  const auto name = [&](TaskId t) {
    return fmt::format("task {} ({})", t.value(), describe(plan, plan.tasks[t], bound.graph()));
  };
  const auto is_left = [&](TaskId t) {
    const auto& done = step.marks->tasks[t].done;
    return done && !done->reached();
  };
  std::vector<std::string> does;
  std::vector<TaskId> last;
  for (std::size_t s = 0; s < kStreams; ++s) {
    const std::vector<TaskId>& tasks = bound.queue(device, s);
    const auto next = std::find_if(tasks.begin(), tasks.end(), is_left);
    last.insert(last.end(), tasks.begin(), next);
    if (next == tasks.end()) continue;
    const Task& task = plan.tasks[*next];
    const auto blocker = std::find_if(task.after.begin(), task.after.end(), is_left);
    if (blocker != task.after.end()) {
      does.push_back(fmt::format("waits in {} for {}", name(*next), name(*blocker)));
    } else if (step.marks->tasks[*next].begin->reached() && is_message(task.kind)) {
      const DeviceId other = plan.tasks[task.partner].device;
      does.push_back(fmt::format("waits in {} for device {} of {}", name(*next), other.value(),
                                 processes_->name(plan.topology.process(other))));
    } else if (step.marks->tasks[*next].begin->reached()) {
      does.push_back("runs " + name(*next));
    }
  }
  std::sort(last.begin(), last.end());
  if (std::ssize(last) > kMost) last.erase(last.begin(), last.end() - kMost);
  std::string text = does.empty() ? "has nothing to do" : join(does, "; ");
  text += last.empty() ? "\n  last done: nothing" : "\n  last done:";
  for (const TaskId task : last) text += "\n    " + name(task);
  return text;
}

TaskTimes Runner::times_of(const InFlight& step) const {
  TaskTimes times(step.ready->bound->plan().tasks.size());
  if (!step.marks) return times;
  // Marks of one GPU can be compared: each device's times begin with its own first task.
  Table<DeviceId, std::shared_ptr<const Mark>> first(physical_.size());
  for (const DeviceId device : here_) {
    if (on_host_ || device == here_[0]) first[device] = step.marks->start;
  }
  std::vector<double> ended(queues_.size(), 0);
  for (const TaskId t : times.ids()) {
    const TaskMarks& marks = step.marks->tasks[t];
    if (!marks.end) continue;
    const Task& task = step.ready->bound->plan().tasks[t];
    auto& begun = first[task.device];
    if (!begun) begun = marks.begin;
    times[t] = {marks.begin->seconds_since(*begun), marks.end->seconds_since(*begun)};
    // A message may begin while the one before it goes on. Each gets the time by which it ended later.
    double& last = ended[queue_of(task)];
    if (is_message(task.kind)) times[t].begin = std::min(std::max(times[t].begin, last), times[t].end);
    last = times[t].end;
  }
  return times;
}

bool Runner::uses_memory() const {
  const auto has_transfers = [](const auto& entry) {
    const auto& slots = entry.second->slots;
    return std::any_of(slots.begin(), slots.end(),
                       [](const Slot& slot) { return slot.state.has_transfers(); });
  };
  return stalled_ || std::any_of(prepared_.begin(), prepared_.end(), has_transfers);
}

bool Runner::is_recorded(const Plan& plan) const {
  const auto found = prepared_.find(&plan);
  return found != prepared_.end() && found->second->slots.at(found->second->current).recording != nullptr;
}

void Runner::forget() { prepared_.clear(); }

}  // namespace convnet
