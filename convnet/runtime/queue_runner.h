// Runs plans on a backend whose devices have queues: the host puts every task into the queue of its device
// and stream and goes on. From its second run on a plan is a recording that is played, and a second step can
// begin before the host has read the costs of the first: the devices never wait for the host. In a run of
// several processes messages go from device to device through a communicator, where there is one; else the
// host brings them, through its own memory, while it fills the queues.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "convnet/plan/plan_set.h"
#include "convnet/runtime/bound_plan.h"
#include "convnet/runtime/processes.h"
#include "convnet/runtime/watch.h"

namespace convnet {

/// Runs the steps of plans on this process's devices with queues, and owns what they need beside the plans'
/// memory: queues, recordings, and inputs and messages on their way.
class QueueRunner {
 public:
  using Matrices = std::vector<const std::byte*>;  ///< as StepInputs::matrices
  using Address = std::function<std::byte*(const Buffer&)>;

  /// `physical` is the device behind each index of the plans; `address` tells where a buffer lies on its
  /// device. `processes` is null where there is one process; else all of them do this together. Throws
  /// DeviceError.
  QueueRunner(const PlanSet& plans, const Backend& backend, const Table<DeviceId, int>& physical,
              Address address, double stall_seconds, Processes* processes = nullptr);
  QueueRunner(const QueueRunner&) = delete;
  QueueRunner& operator=(const QueueRunner&) = delete;
  ~QueueRunner();

  /// Copies what a step of the plan reads to the devices and begins it, or, behind another step, lets it wait
  /// for its turn unless both are recorded. Nothing of a watched step is recorded or played. At most one step
  /// may be in flight. The plan must live as long as this.
  void submit(const BoundPlan& bound, const Matrices& matrices, const std::vector<std::byte>& block,
              Watch watch);
  /// Waits for the end of the oldest step in flight, of which there must be one. Returns the costs buffers of
  /// the devices of this process, one after the other. Throws what the step threw, and RunError if no task
  /// ends for the seconds of a stall.
  std::vector<double> wait();
  /// Copies the matrices of the plan's next step to the devices, as Executor::expect() says. At most one step
  /// may be in flight.
  void expect(const BoundPlan& bound, const Matrices& matrices);
  /// Returns the number of steps that were submitted and not waited for.
  std::size_t in_flight() const { return line_.size(); }

  /// Waits until the steps that were begun have ended; they stay in flight. Throws RunError for a stall.
  void settle();

  /// Whether a run has been given up: the devices may go on for ever, and releasing their memory would wait
  /// for them.
  bool stalled() const { return stalled_; }
  /// Whether the devices, or messages of a step that failed, may still use memory.
  bool uses_memory() const;
  /// Whether messages to other processes do not pass through the hosts.
  bool has_communicator() const { return communicator_ != nullptr; }

  /// Whether the plan's newest step was played from a recording; false while it waits for its turn to be
  /// recorded.
  bool is_recorded(const Plan& plan) const;

  /// Returns the most memory in bytes that a plan takes on each device beside its own, from its first step
  /// on.
  static std::int64_t bytes_beside(const Plan& plan);

  /// Drops the recordings. Must be called before addresses change; no step may be in flight.
  void forget();

 private:
  class Filling;

  static constexpr int kInputs = 2;  ///< one is filled while a step reads the other
  /// Memory of a step beside the plan's, on the host and on the devices that load its inputs.
  struct Inputs {
    std::unique_ptr<DeviceMemory> block, costs;                          ///< on the host, near the devices
    std::vector<std::unique_ptr<DeviceMemory>> host;                     ///< by matrix
    Table<DeviceId, std::vector<std::unique_ptr<DeviceMemory>>> device;  ///< by device and matrix
    Matrices holds;  ///< the matrices that were copied last
    Table<DeviceId, std::shared_ptr<const Mark>> copied;
    std::unique_ptr<Recording> recording;  ///< of a step that reads them
  };
  /// A range of an input matrix that a device loads.
  struct Load {
    DeviceId device;
    std::size_t matrix = 0;
    std::int64_t begin = 0, bytes = 0;
  };
  /// A message on its way between a device and the transport, in the host's memory.
  struct Message {
    std::unique_ptr<DeviceMemory> staging;  ///< its pieces, one after the other
    std::shared_ptr<std::atomic<bool>> ended = std::make_shared<std::atomic<bool>>(true);
    std::shared_ptr<const Mark> copied;  ///< the last copy from or to the device
  };
  /// A plan as it is put into the queues: memory that the plan does not count.
  struct Prepared {
    std::array<Inputs, kInputs> inputs;
    std::size_t current = 0;              ///< that of the step that was submitted last
    std::optional<std::size_t> expected;  ///< that of the expected step, which holds its matrices
    std::vector<Load> loads;
    std::vector<std::unique_ptr<DeviceMemory>> fetched;  ///< by queue: copies of what operations cannot reach
    std::map<TaskId, Message> messages;                  ///< those of this process
    bool recordable = true;
    int runs = 0;
  };
  struct Marks {
    std::shared_ptr<const Mark> begin, end;
  };
  /// A step that was submitted and not waited for.
  struct InFlight {
    const BoundPlan* bound = nullptr;
    Prepared* ready = nullptr;
    Inputs* inputs = nullptr;  ///< one of ready->inputs
    Watch watch;
    Table<TaskId, Marks> marks;         ///< if it is watched
    std::shared_ptr<const Mark> start;  ///< null unless its times are wanted
    std::shared_ptr<const Mark> end;    ///< null: it has not begun, or beginning it threw `error`
    std::exception_ptr error;

    /// Returns whether it was begun, or would have been without an error.
    bool begun() const { return end != nullptr || error != nullptr; }
  };

  /// Messages through a communicator are one sequence, the same for all processes: the plan's.
  std::size_t queue_of(const Task& task) const {
    const Stream stream = communicator_ && is_message(task.kind) ? Stream::send : task.stream;
    return task.device.index() * kStreams + static_cast<std::size_t>(stream);
  }
  bool is_here(DeviceId device) const { return plans_.topology().process(device) == process_; }
  Queue& queue_for(const Task& task) const;
  std::int64_t costs_bytes(const Plan& plan) const;
  Prepared& prepared(const BoundPlan& bound);
  std::int64_t unreachable_bytes(const Plan& plan, const Task& task) const;
  bool unreachable(const Task& task, const Buffer& buffer) const;
  void fill(const Plan& plan, const std::vector<Load>& loads, const Matrices& matrices, Inputs& inputs);
  Inputs& filled(const Plan& plan, Prepared& ready, const Matrices& matrices);
  void begin(InFlight& step);
  void begin_oldest();
  void begin_receiving(const Plan& plan, Prepared& ready);
  void enqueue_message(const Plan& plan, TaskId t, Message& message);
  bool send_what_is_ready(const Plan& plan, Prepared& ready);
  void wait_for_messages(const Plan& plan, Prepared& ready, const std::function<bool()>& done,
                         const std::string& report);
  void enqueue_group(const Plan& plan, const std::vector<TaskId>& group);
  void enqueue_task(const BoundPlan& bound, TaskId t, const Prepared& ready, const Inputs& inputs);
  TaskTimes times_of(const InFlight& step) const;
  void wait_for(const Mark& mark, const std::function<std::string()>& report);
  [[noreturn]] void give_up(const std::string& why, double waited, const std::string& report);
  std::string failure() const;

  const PlanSet& plans_;
  const Backend& backend_;
  Table<DeviceId, int> physical_;
  Address address_;
  double stall_seconds_;
  bool stalled_ = false;
  Processes* processes_;
  int process_;
  int copy_threads_;            ///< threads that copy the inputs of a step to where GPUs read them
  std::vector<DeviceId> here_;  ///< the devices of this process
  std::unique_ptr<Communicator> communicator_;  ///< null: messages pass through the host
  std::vector<std::unique_ptr<Queue>> queues_;  ///< by device and stream, of this process's devices
  std::deque<TaskId> to_send_;  ///< messages that are being copied to the host, in the order of sending
  Table<DeviceId, Table<DeviceId, bool>> reaches_;  ///< by device and other device
  Table<DeviceId, std::unique_ptr<Queue>> input_queues_;
  std::map<const Plan*, std::unique_ptr<Prepared>> recorded_;
  std::deque<InFlight> line_;  ///< the oldest first
};

}  // namespace convnet
