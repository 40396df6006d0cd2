#include "convnet/runtime/queue_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "convnet/base/clock.h"
#include "convnet/base/error.h"

namespace convnet {

QueueRunner::QueueRunner(const PlanSet& plans, const Backend& backend, const std::vector<int>& physical,
                         double stall_seconds)
    : plans_(plans), backend_(backend), physical_(physical), stall_seconds_(stall_seconds) {
  for (int device = 0; device < plans_.devices(); ++device) {
    for (int stream = 0; stream < kStreams; ++stream)
      queues_.push_back(backend_.make_queue(physical_[static_cast<std::size_t>(device)]));
    input_queues_.push_back(backend_.make_queue(physical_[static_cast<std::size_t>(device)]));
  }
  for (int device = 0; device < plans_.devices(); ++device) {
    reaches_.emplace_back();
    for (int other = 0; other < plans_.devices(); ++other)
      reaches_.back().push_back(other == device ||
                                backend_.reaches(physical_[static_cast<std::size_t>(device)],
                                                 physical_[static_cast<std::size_t>(other)]));
  }
}

QueueRunner::~QueueRunner() = default;

bool QueueRunner::unreachable(const Task& task, const Buffer& buffer) const {
  return buffer.kind != BufferKind::input &&
         !reaches_[static_cast<std::size_t>(task.device)][static_cast<std::size_t>(buffer.device)];
}

/// Of the copies that a task needs of other devices' memory.
std::int64_t QueueRunner::unreachable_bytes(const Plan& plan, const Task& task) const {
  std::int64_t bytes = 0;
  for (const BufferUse& use : task.uses) {
    if (unreachable(task, plan.buffers[static_cast<std::size_t>(use.buffer)]))
      bytes += aligned(bytes_of(plan, use));
  }
  return bytes;
}

std::int64_t QueueRunner::costs_bytes(const Plan& plan) const {
  std::int64_t bytes = 0;
  for (int device = 0; device < plans_.devices(); ++device)
    bytes += plan.buffers[static_cast<std::size_t>(plans_.costs_buffer(device))].bytes;
  return bytes;
}

QueueRunner::Prepared& QueueRunner::prepared(const BoundPlan& bound) {
  const Plan& plan = bound.plan();
  std::unique_ptr<Prepared>& entry = recorded_[&plan];
  if (entry) return *entry;
  auto ready = std::make_unique<Prepared>();
  for (Inputs& inputs : ready->inputs) {
    inputs.block =
        backend_.allocate_staging(plan.buffers[static_cast<std::size_t>(plans_.step_buffer(0))].bytes);
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
      const std::int64_t bytes = plan.buffers[static_cast<std::size_t>(use.buffer)].bytes;
      for (Inputs& inputs : ready->inputs) {
        auto& memory = inputs.device[static_cast<std::size_t>(task.device)][matrix];
        if (!memory) memory = backend_.allocate(physical_[static_cast<std::size_t>(task.device)], bytes);
        if (!inputs.host[matrix]) inputs.host[matrix] = backend_.allocate_staging(bytes);
      }
    }
  }
  for (std::size_t q = 0; q < queues_.size(); ++q) {
    ready->fetched.push_back(fetched[q] == 0 ? nullptr
                                             : backend_.allocate(physical_[q / kStreams], fetched[q]));
    // Copies between devices that do not reach each other go through the host, which cannot be recorded.
    if (fetched[q] > 0) ready->recordable = false;
  }
  entry = std::move(ready);
  return *entry;
}

/// Copies what the devices load of `matrices` to them, in queues of its own.
void QueueRunner::fill(const Plan& plan, const std::vector<Load>& loads,
                       const std::vector<const std::byte*>& matrices, Inputs& inputs) {
  for (std::size_t m = 0; m < plan.inputs.size(); ++m) {
    if (inputs.host[m])
      std::memcpy(inputs.host[m]->data(), matrices[m], static_cast<std::size_t>(inputs.host[m]->bytes()));
  }
  for (const Load& load : loads)
    input_queues_[static_cast<std::size_t>(load.device)]->copy(
        inputs.device[static_cast<std::size_t>(load.device)][load.matrix]->data() + load.begin,
        inputs.host[load.matrix]->data() + load.begin, load.bytes);
  for (std::size_t device = 0; device < input_queues_.size(); ++device)
    inputs.copied[device] = input_queues_[device]->mark();
  inputs.holds = matrices;
}

void QueueRunner::submit_task(const BoundPlan& bound, std::size_t t, const Step& step, const Prepared& ready,
                              const Inputs& inputs) {
  const Plan& plan = bound.plan();
  const Task& task = plan.tasks[t];
  const std::size_t q = queue_of(task);
  Queue& queue = *queues_[q];
  std::vector<std::byte*> pointers;
  std::int64_t fetched = 0;
  for (const BufferUse& use : task.uses) {
    const Buffer& buffer = plan.buffers[static_cast<std::size_t>(use.buffer)];
    if (buffer.kind == BufferKind::input) {
      const auto m = static_cast<std::size_t>(std::find(plan.inputs.begin(), plan.inputs.end(), use.buffer) -
                                              plan.inputs.begin());
      pointers.push_back(inputs.device[static_cast<std::size_t>(task.device)][m]->data() + use.begin);
    } else if (unreachable(task, buffer)) {
      if (use.access != Access::read)
        throw std::logic_error("executor: " + describe(task, plans_.graph()) + " writes to another device");
      std::byte* here = ready.fetched[q]->data() + fetched;
      queue.copy(here, step.address(buffer) + use.begin, bytes_of(plan, use));
      fetched += aligned(bytes_of(plan, use));
      pointers.push_back(here);
    } else {
      pointers.push_back(step.address(buffer) + use.begin);
    }
  }
  std::byte* workspace =
      task.workspace < 0 ? nullptr : step.address(plan.buffers[static_cast<std::size_t>(task.workspace)]);
  bound.op(t).run(pointers, workspace, &queue);
}

/// Everything of a step, from the copy of the step block to that of the costs. The first queue begins and
/// ends it. `marks`: of every task.
void QueueRunner::submit(const BoundPlan& bound, const Step& step, const Prepared& ready,
                         const Inputs& inputs, std::vector<Marks>* marks,
                         const std::function<void(std::size_t)>& after_task) {
  const Plan& plan = bound.plan();
  const auto on_device = [&](int buffer) {
    return step.address(plan.buffers[static_cast<std::size_t>(buffer)]);
  };
  const auto first_queue = [&](int device) -> Queue& {
    return *queues_[static_cast<std::size_t>(device) * kStreams];
  };
  const auto begin = queues_[0]->mark();
  for (std::size_t q = 1; q < queues_.size(); ++q) {
    if (q % kStreams == 0) queues_[q]->wait(*begin);
  }
  for (int device = 0; device < plans_.devices(); ++device) {
    Queue& queue = first_queue(device);
    queue.copy(on_device(plans_.step_buffer(device)), inputs.block->data(), inputs.block->bytes());
    const auto has_block = queue.mark();
    for (std::size_t stream = 1; stream < kStreams; ++stream)
      queues_[static_cast<std::size_t>(device) * kStreams + stream]->wait(*has_block);
  }
  std::vector<std::shared_ptr<const Mark>> ends(plan.tasks.size());
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    Queue& queue = *queues_[queue_of(task)];
    for (const int after : task.after) {
      const auto& other = ends[static_cast<std::size_t>(after)];
      if (other && queue_of(plan.tasks[static_cast<std::size_t>(after)]) != queue_of(task))
        queue.wait(*other);
    }
    if (marks != nullptr) (*marks)[t].begin = queue.mark();
    submit_task(bound, t, step, ready, inputs);
    if (marks != nullptr || bound.is_waited_for(t)) ends[t] = queue.mark();
    if (marks != nullptr) (*marks)[t].end = ends[t];
    if (after_task) {
      wait(*queue.mark(), [&] { return "in " + describe(task, plans_.graph()); });
      after_task(t);
    }
  }
  std::int64_t place = 0;
  for (int device = 0; device < plans_.devices(); ++device) {
    Queue& queue = first_queue(device);
    for (std::size_t stream = 1; stream < kStreams; ++stream)
      queue.wait(*queues_[static_cast<std::size_t>(device) * kStreams + stream]->mark());
    const Buffer& costs = plan.buffers[static_cast<std::size_t>(plans_.costs_buffer(device))];
    queue.copy(inputs.costs->data() + place, step.address(costs), costs.bytes);
    place += costs.bytes;
    if (device > 0) queues_[0]->wait(*queue.mark());
  }
}

void QueueRunner::wait(const Mark& mark, const std::function<std::string()>& report) {
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

/// Puts a step whose matrices are there into the queues.
void QueueRunner::begin(const BoundPlan& bound, const Step& step, Prepared& ready, std::vector<Marks>* marks,
                        const std::function<void(std::size_t)>& after_task) {
  Inputs& inputs = ready.inputs.at(ready.current);
  std::memcpy(inputs.block->data(), step.block.data(), step.block.size());
  for (const auto& copied : inputs.copied) queues_[0]->wait(*copied);
  const bool plainly = marks == nullptr && !after_task;
  // The first run makes what libraries make at their first call, which cannot be recorded.
  if (plainly && ready.recordable && ready.runs++ > 0 && !inputs.recording) {
    std::vector<Queue*> all;
    for (const auto& queue : queues_) all.push_back(queue.get());
    // A copy of the step: emulated devices submit again when they play.
    const auto all_of_it = [this, &bound, step, &ready, &inputs] {
      submit(bound, step, ready, inputs, nullptr, nullptr);
    };
    try {
      inputs.recording = backend_.record(all, all_of_it);
    } catch (const DeviceError& e) {
      fmt::print(stderr, "warning: a step cannot be recorded, so its operations are started one by one: {}\n",
                 e.what());
      ready.recordable = false;
    }
  }
  if (plainly && inputs.recording)
    inputs.recording->play(*queues_[0]);
  else
    submit(bound, step, ready, inputs, marks, after_task);
}

/// Brings the matrices of the step after `step`, which has been begun, and begins that step where it is
/// certain and all of it is recorded. The memory it uses on the host is that of the step before `step`, which
/// has ended.
bool QueueRunner::begin_early(const BoundPlan& bound, const Step& step, Prepared& ready) {
  Inputs& inputs = ready.inputs.at(ready.current);
  Inputs& others = ready.inputs.at(1 - ready.current);
  const bool certain = !step.next_block.empty();
  // The same memory, which keeps its contents until the next step: it is here already.
  const bool stays = step.next == step.matrices;
  // Else what lies behind the pointers may change after this step.
  if (!stays) inputs.holds.clear();
  if (!stays || others.holds != step.next) others.holds.clear();
  if (!step.next.empty() && others.holds.empty() && (!stays || certain))
    fill(bound.plan(), ready.loads, step.next, others);
  if (!certain || others.holds.empty() || !inputs.recording || !others.recording) return false;
  ready.current = 1 - ready.current;
  begin(bound, {step.next, {}, step.next_block, {}, step.address}, ready, nullptr, nullptr);
  return true;
}

std::vector<double> QueueRunner::run(const BoundPlan& bound, const Step& step, std::vector<TaskTime>* times,
                                     const std::function<void(std::size_t)>& after_task) {
  const Plan& plan = bound.plan();
  Prepared& ready = prepared(bound);
  const bool plainly = times == nullptr && !after_task;
  std::vector<Marks> marks(plainly ? 0 : plan.tasks.size());
  std::shared_ptr<const Mark> start, end;
  if (begun_) {
    if (!plainly || begun_->plan != &plan || begun_->matrices != step.matrices || begun_->block != step.block)
      throw std::logic_error("executor: another step was certain to be run");
    end = begun_->end;
    begun_.reset();
  } else {
    // The step before may have brought what this one reads.
    if (ready.inputs.at(1 - ready.current).holds == step.matrices) ready.current = 1 - ready.current;
    Inputs& inputs = ready.inputs.at(ready.current);
    if (inputs.holds != step.matrices) fill(plan, ready.loads, step.matrices, inputs);
    start = queues_[0]->mark();
    begin(bound, step, ready, plainly ? nullptr : &marks, after_task);
    end = queues_[0]->mark();
  }
  const Inputs& inputs = ready.inputs.at(ready.current);
  if (begin_early(bound, step, ready)) begun_ = {&plan, step.next, step.next_block, queues_[0]->mark()};
  wait(*end, [&] {
    std::string report = "in a step of " + std::to_string(plan.tasks.size()) + " tasks";
    for (std::size_t t = 0; t < marks.size(); ++t) {
      if (marks[t].end->reached()) continue;
      report += "; the first that is not done is task " + std::to_string(t) + " (" +
                describe(plan.tasks[t], plans_.graph()) + ")";
      break;
    }
    return report;
  });
  if (times != nullptr) {
    // Marks of one device can be compared: each device's times begin with its own first task.
    std::vector<std::shared_ptr<const Mark>> first(static_cast<std::size_t>(plans_.devices()));
    first[0] = start;
    times->clear();
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      auto& begun = first[static_cast<std::size_t>(plan.tasks[t].device)];
      if (!begun) begun = marks[t].begin;
      times->push_back({marks[t].begin->seconds_since(*begun), marks[t].end->seconds_since(*begun)});
    }
  }
  std::vector<double> costs(static_cast<std::size_t>(inputs.costs->bytes()) / sizeof(double));
  std::memcpy(costs.data(), inputs.costs->data(), costs.size() * sizeof(double));
  return costs;
}

void QueueRunner::settle() {
  if (begun_ && !stalled_) wait(*begun_->end, [] { return std::string("in a step that was begun early"); });
}

void QueueRunner::forget() {
  if (begun_) throw std::logic_error("executor: memory changes while a step is certain to be run");
  recorded_.clear();
}

}  // namespace convnet
