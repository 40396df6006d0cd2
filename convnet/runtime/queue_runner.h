// Runs plans on a backend whose devices have queues: the host puts every task into the queue of its device
// and stream and goes on. From its second run on a plan is a recording that is played.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
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
    std::span<const std::byte> block;                  ///< the step block
    std::function<std::byte*(const Buffer&)> address;  ///< of buffers that lie on a device
  };

  /// Runs `plan`, which must live as long as this, to its end. Returns the costs buffers of the devices, one
  /// after the other. `times` and `after_task` are Executor::run's; with either of them nothing is recorded
  /// or played. Throws RunError where no task ends for the seconds of a stall.
  std::vector<double> run(const Plan& plan, const Step& step, std::vector<TaskTime>* times,
                          const std::function<void(std::size_t)>& after_task);

  /// Addresses have changed: what was recorded is worthless.
  void forget() { recorded_.clear(); }

 private:
  /// A plan as it is put into the queues: memory that the plan does not count, and who waits for whom.
  struct Prepared {
    std::vector<std::unique_ptr<DeviceMemory>> host_inputs;                 ///< by matrix
    std::vector<std::vector<std::unique_ptr<DeviceMemory>>> device_inputs;  ///< by device and matrix
    std::vector<std::unique_ptr<DeviceMemory>> fetched;  ///< by queue: copies of what operations cannot reach
    std::vector<bool> marked;                            ///< by task: another queue waits for its end
    std::unique_ptr<Recording> recording;
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
  void submit(const Plan& plan, const Step& step, const Prepared& ready, std::vector<Marks>* marks,
              const std::function<void(std::size_t)>& after_task);
  void submit_task(const Plan& plan, const Task& task, const Step& step, const Prepared& ready);
  void wait(const Mark& mark, const std::function<std::string()>& report) const;

  const PlanSet& plans_;
  std::vector<int> physical_;
  double stall_seconds_;
  std::vector<std::unique_ptr<Queue>> queues_;   ///< by device and stream
  std::unique_ptr<DeviceMemory> block_, costs_;  ///< on the host, near the devices
  std::map<const Plan*, std::unique_ptr<Prepared>> recorded_;
};

}  // namespace convnet
