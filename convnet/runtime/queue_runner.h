// Runs plans on a backend whose devices have queues: the host puts every task into the queue of its device
// and stream and goes on. From its second run on a plan is a recording that is played.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "convnet/plan/plan.h"
#include "convnet/plan/timeline.h"

namespace convnet {

class QueueRunner {
 public:
  /// `physical`: the device behind each index of the plans.
  QueueRunner(const PlanSet& plans, const std::vector<int>& physical, double stall_seconds);
  QueueRunner(const QueueRunner&) = delete;
  QueueRunner& operator=(const QueueRunner&) = delete;
  ~QueueRunner();

  /// What a run reads and writes beside the devices' memory.
  struct Step {
    std::vector<const std::byte*> matrices;            ///< as StepInputs::matrices
    std::vector<const std::byte*> next;                ///< as StepInputs::next
    std::vector<std::byte> block;                      ///< the step block
    std::function<std::byte*(const Buffer&)> address;  ///< of buffers that lie on a device
  };

  /// Runs `plan`, which must live as long as this, to its end. Returns the costs buffers of the devices, one
  /// after the other. `times` and `after_task` are Executor::run's; with either of them nothing is recorded
  /// or played. Throws RunError where no task ends for the seconds of a stall.
  std::vector<double> run(const Plan& plan, const Step& step, std::vector<TaskTime>* times,
                          const std::function<void(std::size_t)>& after_task);

  /// Whether a run has been given up: the devices may go on for ever, and releasing their memory would wait
  /// for them.
  bool stalled() const { return stalled_; }

  /// Addresses have changed: what was recorded is worthless.
  void forget() { recorded_.clear(); }

 private:
  /// Memory of the inputs of a step, on the host and on the devices that load them.
  struct Inputs {
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
  /// A plan as it is put into the queues: memory that the plan does not count, and who waits for whom.
  struct Prepared {
    std::array<Inputs, 2> inputs;  ///< one is filled while a step reads the other
    std::size_t current = 0;       ///< that of the step
    std::vector<Load> loads;
    std::vector<std::unique_ptr<DeviceMemory>> fetched;  ///< by queue: copies of what operations cannot reach
    std::vector<bool> marked;                            ///< by task: another queue waits for its end
    bool recordable = true;
    int runs = 0;
  };
  struct Marks {
    std::shared_ptr<const Mark> begin, end;
  };

  std::size_t queue_of(const Task& task) const {
    return static_cast<std::size_t>(task.device) * kStreams + static_cast<std::size_t>(task.stream);
  }
  Prepared& prepared(const Plan& plan);
  std::int64_t unreachable_bytes(const Plan& plan, const Task& task) const;
  bool unreachable(const Task& task, const Buffer& buffer) const;
  void fill(const Plan& plan, const std::vector<Load>& loads, const std::vector<const std::byte*>& matrices,
            Inputs& inputs);
  void submit(const Plan& plan, const Step& step, const Prepared& ready, std::vector<Marks>* marks,
              const std::function<void(std::size_t)>& after_task);
  void submit_task(const Plan& plan, const Task& task, const Step& step, const Prepared& ready);
  void wait(const Mark& mark, const std::function<std::string()>& report);

  const PlanSet& plans_;
  std::vector<int> physical_;
  double stall_seconds_;
  bool stalled_ = false;
  std::vector<std::unique_ptr<Queue>> queues_;        ///< by device and stream
  std::vector<std::vector<bool>> reaches_;            ///< by device and other device
  std::vector<std::unique_ptr<Queue>> input_queues_;  ///< by device
  std::unique_ptr<DeviceMemory> block_, costs_;       ///< on the host, near the devices
  std::map<const Plan*, std::unique_ptr<Prepared>> recorded_;
};

}  // namespace convnet
