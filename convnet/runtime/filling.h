// Puts the tasks of one step into the queues of their devices.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convnet/runtime/runner.h"

namespace convnet {

/// Puts one step into the queues. The first queue begins and ends it.
class Runner::Filling {
 public:
  /// `marks` (optional) receives the marks of every task; `after_task` (optional) is called when one has
  /// ended, and needs marks.
  Filling(Runner& runner, Prepared& ready, Slot& slot, StepMarks* marks,
          const std::function<void(TaskId)>& after_task);

  /// Puts everything into the queues, from the copies of the step block to those of the costs.
  void fill();

 private:
  using Work = std::function<void()>;

  void copy_step_block();
  void copy_costs();
  void add(TaskId t);
  void add_group();
  void enqueue(const std::vector<TaskId>& group);
  std::shared_ptr<const Mark> enqueue_work(const std::vector<TaskId>& group, Queue& queue);
  void enqueue_operation(TaskId t, Queue& queue);
  void exchange(const std::vector<TaskId>& group, Queue& queue);
  std::shared_ptr<const Mark> start_message(TaskId t, Queue& queue);

  void begin_receiving();
  void enqueue_copies(TaskId t, Queue& queue);
  void send_what_is_ready();
  void await_host_end(TaskId t);
  void wait_for_messages(const std::function<bool()>& done, const std::string& report);

  Runner& runner_;
  const BoundPlan& bound_;
  const Plan& plan_;
  Prepared& ready_;
  Slot& slot_;
  StepMarks* const marks_;
  const std::function<void(TaskId)> after_task_;
  const std::size_t streams_;
  Table<TaskId, std::shared_ptr<const Mark>> ends_;  ///< of tasks that others wait for
  std::vector<TaskId> group_;                        ///< messages that are not yet in a queue
  std::deque<TaskId> to_send_;  ///< messages that are being copied to the host, in the order of sending
};

}  // namespace convnet
