// Runs plans on a backend whose devices have queues: the host puts every task into the queue of its device
// and stream and goes on. From its second run on a plan is a recording that is played, and a step that is
// certain to follow is begun before the one before it has ended: the devices never wait for the host.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "convnet/plan/plan_set.h"
#include "convnet/plan/timeline.h"
#include "convnet/runtime/bound_plan.h"

namespace convnet {

class QueueRunner {
 public:
  /// `physical`: the device behind each index of the plans.
  QueueRunner(const PlanSet& plans, const Backend& backend, const std::vector<int>& physical,
              double stall_seconds);
  QueueRunner(const QueueRunner&) = delete;
  QueueRunner& operator=(const QueueRunner&) = delete;
  ~QueueRunner();

  /// What a run reads and writes beside the devices' memory.
  struct Step {
    std::vector<const std::byte*> matrices;  ///< as StepInputs::matrices
    std::vector<const std::byte*> next;      ///< as StepInputs::next
    std::vector<std::byte> block;            ///< the step block
    /// That of the plan's next step, with the matrices `next`, where it is certain that it will be run; else
    /// empty.
    std::vector<std::byte> next_block;
    std::function<std::byte*(const Buffer&)> address;  ///< of buffers that lie on a device
  };

  /// Runs the plan, which must live as long as this, to its end. Returns the costs buffers of the devices,
  /// one after the other. `times` and `after_task` are Executor::run's; with either of them nothing is
  /// recorded or played. Throws RunError where no task ends for the seconds of a stall, std::logic_error
  /// where another step was certain.
  std::vector<double> run(const BoundPlan& bound, const Step& step, std::vector<TaskTime>* times,
                          const std::function<void(std::size_t)>& after_task);

  /// Waits for a step that was begun early. It stays certain to be run. Throws RunError for a stall.
  void settle();

  /// Whether a run has been given up: the devices may go on for ever, and releasing their memory would wait
  /// for them.
  bool stalled() const { return stalled_; }

  /// Addresses will change: what was recorded is worthless.
  void forget();

 private:
  /// Memory of a step beside the plan's, on the host and on the devices that load its inputs.
  struct Inputs {
    std::unique_ptr<DeviceMemory> block, costs;                      ///< on the host, near the devices
    std::vector<std::unique_ptr<DeviceMemory>> host;                 ///< by matrix
    std::vector<std::vector<std::unique_ptr<DeviceMemory>>> device;  ///< by device and matrix
    std::vector<const std::byte*> holds;              ///< the matrices that were copied; empty: none, or used
    std::vector<std::shared_ptr<const Mark>> copied;  ///< by device
    std::unique_ptr<Recording> recording;             ///< of a step that reads them
  };
  /// A range of an input matrix that a device loads.
  struct Load {
    int device = 0;
    std::size_t matrix = 0;
    std::int64_t begin = 0, bytes = 0;
  };
  /// A plan as it is put into the queues: memory that the plan does not count.
  struct Prepared {
    std::array<Inputs, 2> inputs;  ///< one is filled while a step reads the other
    std::size_t current = 0;       ///< that of the step that was begun last
    std::vector<Load> loads;
    std::vector<std::unique_ptr<DeviceMemory>> fetched;  ///< by queue: copies of what operations cannot reach
    bool recordable = true;
    int runs = 0;
  };
  struct Marks {
    std::shared_ptr<const Mark> begin, end;
  };
  /// A step that was begun before its run.
  struct Begun {
    const Plan* plan = nullptr;
    std::vector<const std::byte*> matrices;
    std::vector<std::byte> block;
    std::shared_ptr<const Mark> end;
  };

  std::size_t queue_of(const Task& task) const {
    return static_cast<std::size_t>(task.device) * kStreams + static_cast<std::size_t>(task.stream);
  }
  std::int64_t costs_bytes(const Plan& plan) const;
  Prepared& prepared(const BoundPlan& bound);
  std::int64_t unreachable_bytes(const Plan& plan, const Task& task) const;
  bool unreachable(const Task& task, const Buffer& buffer) const;
  void fill(const Plan& plan, const std::vector<Load>& loads, const std::vector<const std::byte*>& matrices,
            Inputs& inputs);
  void begin(const BoundPlan& bound, const Step& step, Prepared& ready, std::vector<Marks>* marks,
             const std::function<void(std::size_t)>& after_task);
  bool begin_early(const BoundPlan& bound, const Step& step, Prepared& ready);
  void submit(const BoundPlan& bound, const Step& step, const Prepared& ready, const Inputs& inputs,
              std::vector<Marks>* marks, const std::function<void(std::size_t)>& after_task);
  void submit_task(const BoundPlan& bound, std::size_t t, const Step& step, const Prepared& ready,
                   const Inputs& inputs);
  void wait(const Mark& mark, const std::function<std::string()>& report);

  const PlanSet& plans_;
  const Backend& backend_;
  std::vector<int> physical_;
  double stall_seconds_;
  bool stalled_ = false;
  std::vector<std::unique_ptr<Queue>> queues_;        ///< by device and stream
  std::vector<std::vector<bool>> reaches_;            ///< by device and other device
  std::vector<std::unique_ptr<Queue>> input_queues_;  ///< by device
  std::map<const Plan*, std::unique_ptr<Prepared>> recorded_;
  std::optional<Begun> begun_;
};

}  // namespace convnet
