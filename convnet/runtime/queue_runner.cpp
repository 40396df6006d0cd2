#include "convnet/runtime/queue_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "convnet/base/clock.h"
#include "convnet/base/error.h"

namespace convnet {

QueueRunner::QueueRunner(const PlanSet& plans, const Backend& backend, const Table<DeviceId, int>& physical,
                         Address address, double stall_seconds)
    : plans_(plans),
      backend_(backend),
      physical_(physical),
      address_(std::move(address)),
      stall_seconds_(stall_seconds) {
  for (const DeviceId device : plans_.device_ids()) {
    for (int stream = 0; stream < kWorkStreams; ++stream)
      queues_.push_back(backend_.make_queue(physical_[device]));
    input_queues_.push_back(backend_.make_queue(physical_[device]));
  }
  for (const DeviceId device : plans_.device_ids()) {
    reaches_.emplace_back();
    for (const DeviceId other : plans_.device_ids())
      reaches_.back().push_back(other == device || backend_.reaches(physical_[device], physical_[other]));
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
  for (const DeviceId device : plans_.device_ids()) bytes += plan.buffers[plans_.costs_buffer(device)].bytes;
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
  for (const Task& task : plan.tasks) {
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
        fetched[q] == 0 ? nullptr : backend_.allocate(physical_[DeviceId(q / kWorkStreams)], fetched[q]));
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
      std::memcpy(inputs.host[m]->data(), matrices[m], static_cast<std::size_t>(inputs.host[m]->bytes()));
  }
  for (const Load& load : loads)
    input_queues_[load.device]->copy(inputs.device[load.device][load.matrix]->data() + load.begin,
                                     inputs.host[load.matrix]->data() + load.begin, load.bytes);
  for (const DeviceId device : input_queues_.ids()) inputs.copied[device] = input_queues_[device]->mark();
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
        throw std::logic_error("executor: " + describe(task, plans_.graph()) + " writes to another device");
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

/// Puts everything of a step into the queues, from the copy of the step block to that of the costs. The first
/// queue begins and ends it. `marks` (optional) receives the marks of every task.
void QueueRunner::enqueue(const BoundPlan& bound, const Prepared& ready, const Inputs& inputs,
                          Table<TaskId, Marks>* marks, const std::function<void(TaskId)>& after_task) {
  const Plan& plan = bound.plan();
  const auto on_device = [&](BufferId buffer) { return address_(plan.buffers[buffer]); };
  const auto first_queue = [&](DeviceId device) -> Queue& { return *queues_[device.index() * kWorkStreams]; };
  const auto begin = queues_[0]->mark();
  for (std::size_t q = 1; q < queues_.size(); ++q) {
    if (q % kWorkStreams == 0) queues_[q]->wait(*begin);
  }
  for (const DeviceId device : plans_.device_ids()) {
    Queue& queue = first_queue(device);
    queue.copy(on_device(plans_.step_buffer(device)), inputs.block->data(), inputs.block->bytes());
    const auto has_block = queue.mark();
    for (std::size_t stream = 1; stream < kWorkStreams; ++stream)
      queues_[device.index() * kWorkStreams + stream]->wait(*has_block);
  }
  Table<TaskId, std::shared_ptr<const Mark>> ends(plan.tasks.size());
  for (const TaskId t : plan.tasks.ids()) {
    const Task& task = plan.tasks[t];
    Queue& queue = *queues_[queue_of(task)];
    for (const TaskId after : task.after) {
      const auto& other = ends[after];
      if (other && queue_of(plan.tasks[after]) != queue_of(task)) queue.wait(*other);
    }
    if (marks != nullptr) (*marks)[t].begin = queue.mark();
    enqueue_task(bound, t, ready, inputs);
    if (marks != nullptr || bound.is_waited_for(t)) ends[t] = queue.mark();
    if (marks != nullptr) (*marks)[t].end = ends[t];
    if (after_task) {
      wait_for(*queue.mark(), [&] { return "in " + describe(task, plans_.graph()); });
      after_task(t);
    }
  }
  std::int64_t place = 0;
  for (const DeviceId device : plans_.device_ids()) {
    Queue& queue = first_queue(device);
    for (std::size_t stream = 1; stream < kWorkStreams; ++stream)
      queue.wait(*queues_[device.index() * kWorkStreams + stream]->mark());
    const Buffer& costs = plan.buffers[plans_.costs_buffer(device)];
    queue.copy(inputs.costs->data() + place, address_(costs), costs.bytes);
    place += costs.bytes;
    if (device != DeviceId(0)) queues_[0]->wait(*queue.mark());
  }
}

void QueueRunner::wait_for(const Mark& mark, const std::function<std::string()>& report) {
  const auto start = Clock::now();
  while (!mark.reached()) {
    const double waited = seconds_since(start);
    if (waited > stall_seconds_) {
      stalled_ = true;
      throw RunError("the step has stalled: nothing has ended for " + std::to_string(std::lround(waited)) +
                     " s " + report());
    }
    // Steps of small nets take less than the system needs to wake a thread.
    if (waited > 0.005) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
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
    if (step.watch.times != nullptr) step.start = queues_[0]->mark();
    for (const auto& copied : inputs.copied) queues_[0]->wait(*copied);
    // The first run makes what libraries make at their first call, which cannot be recorded.
    if (plainly && ready.recordable && ready.runs++ > 0 && !inputs.recording) {
      std::vector<Queue*> all;
      for (const auto& queue : queues_) all.push_back(queue.get());
      // Emulated devices call this again when they play.
      const auto all_of_it = [this, &bound, &ready, &inputs] {
        enqueue(bound, ready, inputs, nullptr, nullptr);
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
      inputs.recording->play(*queues_[0]);
    else
      enqueue(bound, ready, inputs, plainly ? nullptr : &step.marks, step.watch.after_task);
    step.end = queues_[0]->mark();
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
      if (step.marks[t].end->reached()) continue;
      report += "; the first that is not done is task " + std::to_string(t.value()) + " (" +
                describe(plan.tasks[t], plans_.graph()) + ")";
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
  first[DeviceId(0)] = step.start;
  TaskTimes times;
  for (const TaskId t : plan.tasks.ids()) {
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

void QueueRunner::forget() { recorded_.clear(); }

}  // namespace convnet
