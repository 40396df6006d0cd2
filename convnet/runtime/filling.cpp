#include "convnet/runtime/filling.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "convnet/base/clock.h"

namespace convnet {
namespace {

/// Returns the pieces of a message. `place` returns where a piece lies, and is called for them in order.
template <class Place>
std::vector<Transport::Piece> pieces_of(const Plan& plan, const Task& task, const Place& place) {
  std::vector<Transport::Piece> pieces;
  for (std::size_t k = 0; k < task.uses.size(); ++k)
    pieces.push_back({place(k), bytes_of(plan, task.uses[k])});
  return pieces;
}

/// Returns the pieces of a message that lies at `place`, one after the other.
std::vector<Transport::Piece> pieces_in(const Plan& plan, const Task& task, std::byte* place) {
  return pieces_of(plan, task,
                   [&](std::size_t k) { return std::exchange(place, place + bytes_of(plan, task.uses[k])); });
}

}  // namespace

Runner::Filling::Filling(Runner& runner, Prepared& ready, Slot& slot, StepMarks* marks,
                         const std::function<void(TaskId)>& after_task)
    : runner_(runner),
      bound_(*ready.bound),
      plan_(bound_.plan()),
      ready_(ready),
      slot_(slot),
      marks_(marks),
      after_task_(after_task),
      streams_(runner.processes_ != nullptr ? kStreams : kWorkStreams),
      ends_(plan_.tasks.size()) {
  if (marks_ != nullptr) marks_->tasks.resize(plan_.tasks.size());
}

void Runner::Filling::fill() {
  begin_receiving();
  copy_step_block();
  for (const TaskId t : plan_.tasks.ids()) {
    if (ready_.begins_of_groups.contains(t)) add_group();
    if (runner_.is_here(plan_.tasks[t].device)) add(t);
  }
  add_group();
  wait_for_messages([&] { return to_send_.empty(); }, "it waits until all messages are on the host");
  copy_costs();
}

/// Lets all queues of all devices wait for the step's beginning and their step block.
void Runner::Filling::copy_step_block() {
  const DeviceId first = runner_.here_[0];
  const auto begin = runner_.first_queue(first).mark();
  if (marks_ != nullptr) marks_->start = begin;
  for (const DeviceId device : runner_.here_) {
    if (device != first) runner_.first_queue(device).wait(*begin);
  }
  for (const DeviceId device : runner_.here_) {
    Queue& own = runner_.first_queue(device);
    own.copy(runner_.address_(plan_.buffers[runner_.plans_.step_buffer(device)]), slot_.block->data(),
             slot_.block->bytes());
    const auto has_block = own.mark();
    for (std::size_t stream = 1; stream < streams_; ++stream)
      runner_.queues_[device.index() * kStreams + stream]->wait(*has_block);
  }
}

/// Copies the costs of all devices to the host once all their queues have come to an end.
void Runner::Filling::copy_costs() {
  const DeviceId first = runner_.here_[0];
  std::int64_t place = 0;
  for (const DeviceId device : runner_.here_) {
    Queue& last = runner_.first_queue(device);
    for (std::size_t stream = 1; stream < streams_; ++stream)
      last.wait(*runner_.queues_[device.index() * kStreams + stream]->mark());
    const Buffer& costs = plan_.buffers[runner_.plans_.costs_buffer(device)];
    last.copy(slot_.costs->data() + place, runner_.address_(costs), costs.bytes);
    place += costs.bytes;
    if (device != first) runner_.first_queue(first).wait(*last.mark());
  }
}

/// Puts a task into its queue. Messages of a communicator are collected in groups (begins_of_groups()), which
/// begin as a whole once all messages of this process before them have ended.
void Runner::Filling::add(TaskId t) {
  if (runner_.communicator_ && is_message(plan_.tasks[t].kind)) {
    group_.push_back(t);
    return;
  }
  add_group();
  if (ready_.messages.contains(t)) await_host_end(t);
  enqueue({t});
}

void Runner::Filling::add_group() {
  if (!group_.empty()) enqueue(std::exchange(group_, {}));
}

/// Puts tasks into the queue of the first: one, or messages that go on at the same time.
void Runner::Filling::enqueue(const std::vector<TaskId>& group) {
  const Task& task = plan_.tasks[group[0]];
  Queue& queue = runner_.queue_for(task);
  bool is_waited_for = marks_ != nullptr;
  // Messages of CPU devices begin while earlier ones go on, unless they wait for these explicitly.
  const bool begins_early = is_message(task.kind) && runner_.on_host_;
  for (const TaskId t : group) {
    is_waited_for = is_waited_for || bound_.is_waited_for(t);
    for (const TaskId after : plan_.tasks[t].after) {
      const auto& other = ends_[after];
      const bool ordered = &runner_.queue_for(plan_.tasks[after]) == &queue && !begins_early;
      if (other && !ordered) queue.wait(*other);
    }
  }
  TaskMarks marks;
  if (marks_ != nullptr) marks.begin = queue.mark_begin();
  marks.end = enqueue_work(group, queue);
  if (!marks.end && is_waited_for) marks.end = queue.mark();
  marks.done = marks.end;
  const bool calls = after_task_ && runner_.on_host_ && !is_message(task.kind);
  if (calls) {
    queue.call(slot_.state.guarded([after = after_task_, t = group[0]] { after(t); }));
    marks.done = queue.mark();
  }
  for (const TaskId t : group) {
    ends_[t] = marks.done;
    if (marks_ != nullptr) marks_->tasks[t] = marks;
  }
  if (!after_task_ || runner_.on_host_) return;
  runner_.wait_for(*marks.end, [&] { return "it waits in " + describe(plan_, task, bound_.graph()); });
  for (const TaskId t : group) after_task_(t);
}

/// Returns a mark at the end of the work, or null: then the queue can make one.
std::shared_ptr<const Mark> Runner::Filling::enqueue_work(const std::vector<TaskId>& group, Queue& queue) {
  if (!is_message(plan_.tasks[group[0]].kind))
    enqueue_operation(group[0], queue);
  else if (runner_.communicator_)
    exchange(group, queue);
  else if (runner_.on_host_)
    return start_message(group[0], queue);
  else
    enqueue_copies(group[0], queue);
  return nullptr;
}

void Runner::Filling::enqueue_operation(TaskId t, Queue& queue) {
  const Task& task = plan_.tasks[t];
  const PreparedOp& op = bound_.op(t);
  const std::vector<std::byte*>& pointers = slot_.pointers[t];
  std::byte* workspace = task.workspace.exists() ? runner_.address_(plan_.buffers[task.workspace]) : nullptr;
  if (runner_.on_host_) {
    queue.call(slot_.state.guarded([&op, &pointers, workspace] { op.run(pointers, workspace, nullptr); }));
    return;
  }
  for (std::size_t k = 0; k < task.uses.size(); ++k) {
    const BufferUse& use = task.uses[k];
    const Buffer& buffer = plan_.buffers[use.buffer];
    if (!runner_.reaches(task, buffer))
      queue.copy(pointers[k], runner_.address_(buffer) + use.begin, bytes_of(plan_, use));
  }
  op.run(pointers, workspace, &queue);
}

/// Puts messages that go on at the same time into the queue of messages.
void Runner::Filling::exchange(const std::vector<TaskId>& group, Queue& queue) {
  std::vector<Communicator::Piece> pieces;
  for (const TaskId t : group) {
    const Task& task = plan_.tasks[t];
    const int peer = plan_.topology.process(plan_.tasks[task.partner].device);
    for (std::size_t k = 0; k < task.uses.size(); ++k)
      pieces.push_back(
          {task.kind == TaskKind::send, peer, slot_.pointers[t][k], bytes_of(plan_, task.uses[k])});
  }
  runner_.communicator_->exchange(queue, pieces);
}

/// Lets the device's thread give a message to the transport, and returns a mark at the end of the message.
std::shared_ptr<const Mark> Runner::Filling::start_message(TaskId t, Queue& queue) {
  return queue.start([&runner = runner_, &plan = plan_, &slot = slot_, t](std::function<void()> ended) {
    if (slot.state.failed()) return ended();
    auto pieces = pieces_of(plan, plan.tasks[t], [&](std::size_t k) { return slot.pointers[t][k]; });
    try {
      runner.transfer(plan, t, std::move(pieces), slot.state, std::move(ended));
    } catch (...) {
      slot.state.fail(std::current_exception());
    }
  });
}

/// Lets the transport receive all messages of a step into the host's memory, which the step before has left.
void Runner::Filling::begin_receiving() {
  for (auto& [t, message] : ready_.messages) {
    const Task& task = plan_.tasks[t];
    if (task.kind != TaskKind::receive) continue;
    if (message.copied)
      runner_.wait_for(*message.copied, [] { return std::string("it waits in copies of messages"); });
    message.transfer =
        runner_.transfer(plan_, t, pieces_in(plan_, task, message.staging->data()), slot_.state);
  }
}

/// Puts the copies of a message between the device and the host into the device's queue.
void Runner::Filling::enqueue_copies(TaskId t, Queue& queue) {
  const Task& task = plan_.tasks[t];
  Message& message = ready_.messages.at(t);
  const bool sends = task.kind == TaskKind::send;
  const auto pieces = pieces_in(plan_, task, message.staging->data());
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    std::byte* device = slot_.pointers[t][k];
    queue.copy(sends ? pieces[k].data : device, sends ? device : pieces[k].data, pieces[k].bytes);
  }
  message.copied = queue.mark();
  if (sends) to_send_.push_back(t);
}

/// Gives the messages that the host has to the transport, in order.
void Runner::Filling::send_what_is_ready() {
  while (!to_send_.empty()) {
    const TaskId t = to_send_.front();
    Message& message = ready_.messages.at(t);
    if (!message.copied->reached()) return;
    to_send_.pop_front();
    message.transfer =
        runner_.transfer(plan_, t, pieces_in(plan_, plan_.tasks[t], message.staging->data()), slot_.state);
  }
}

/// Waits until the host has a message, or has sent the one that lay in its place before. What this host has
/// to send first may be what the other end waits for.
void Runner::Filling::await_host_end(TaskId t) {
  const Task& task = plan_.tasks[t];
  const Message& message = ready_.messages.at(t);
  const DeviceId other = plan_.tasks[task.partner].device;
  wait_for_messages([&] { return !message.transfer || message.transfer->ended(); },
                    fmt::format("it waits in {} for device {} of {}", describe(plan_, task, bound_.graph()),
                                other.value(), runner_.processes_->name(plan_.topology.process(other))));
}

/// Waits until `done`, and sends messages meanwhile. Throws RunError if that takes longer than a stall.
void Runner::Filling::wait_for_messages(const std::function<bool()>& done, const std::string& report) {
  const auto start = Clock::now();
  while (true) {
    send_what_is_ready();
    if (done()) return;
    const double waited = seconds_since(start);
    runner_.check_progress(waited, [&] { return report; });
    if (waited > 0.001) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace convnet
