// Runs plans on devices with queues: the host puts every task into the queue of its device and stream and
// goes on. A plan becomes a recording that is played, and a second step can begin before the host has read
// the costs of the first: the devices never wait for the host. In a run of several processes, the threads of
// CPU devices give messages to the transport. Messages of GPUs go from device to device through a
// communicator, where there is one; else the host brings them, through its own memory, while it fills the
// queues.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "convnet/plan/plan_set.h"
#include "convnet/plan/timeline.h"
#include "convnet/runtime/bound_plan.h"
#include "convnet/runtime/processes.h"
#include "convnet/runtime/step_state.h"

namespace convnet {

/// What a caller wants to know of a step while it runs.
struct Watch {
  TaskTimes* times = nullptr;                   ///< receives when each task ran
  std::function<void(TaskId task)> after_task;  ///< called after each task
};

/// Runs the steps of plans on this process's devices, and owns what they need beside the plans' memory:
/// queues, recordings, and inputs and messages on their way. It has the one line of steps in flight.
class Runner {
 public:
  using Matrices = std::vector<const std::byte*>;  ///< as StepInputs::matrices
  using Address = std::function<std::byte*(const Buffer&)>;

  /// `physical` is the device behind each index of the plans; `address` tells where a buffer lies on its
  /// device. `processes` is null where there is one process; else all of them do this together. Throws
  /// DeviceError.
  Runner(const PlanSet& plans, const Backend& backend, const Table<DeviceId, int>& physical, Address address,
         double stall_seconds, Processes* processes = nullptr);
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner();

  /// Copies what a step of the plan reads to the devices, unless they read it on the host, and begins it.
  /// Behind another step it waits for its turn, unless both are recorded. A step with `watch.after_task`
  /// begins in wait(). At most one step may be in flight. The plan must live as long as this.
  void submit(const std::shared_ptr<const BoundPlan>& bound, const Matrices& matrices,
              const std::vector<std::byte>& block, Watch watch);
  /// Waits for the end of the oldest step in flight, of which there must be one. Returns the costs buffers of
  /// the devices of this process, one after the other. Throws what the step threw, and RunError with a report
  /// of what each device waits for if no task ends for the seconds of a stall, or if messages no longer
  /// arrive; then no step may follow.
  std::vector<double> wait();
  /// Copies the matrices of the plan's next step to the devices, as Executor::expect() says. At most one step
  /// may be in flight.
  void expect(const std::shared_ptr<const BoundPlan>& bound, const Matrices& matrices);
  /// Returns the number of steps that were submitted and not waited for.
  std::size_t in_flight() const { return line_.size(); }

  /// Waits until the steps that were begun have ended, because they use the plans' memory; they stay in
  /// flight. Throws RunError for a stall.
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
  std::int64_t bytes_beside(const Plan& plan) const;

  /// Drops the recordings. Must be called before addresses change; no step may be in flight.
  void forget();

 private:
  class Filling;

  struct TaskMarks {
    std::shared_ptr<const Mark> begin, end;
    std::shared_ptr<const Mark> done;  ///< others may go on: as `end`, or later by a call of `after_task`
  };
  struct StepMarks {
    std::shared_ptr<const Mark> start;
    Table<TaskId, TaskMarks> tasks;  ///< those of this process
  };
  /// What a step has beside the plan's memory, on the host and on the devices that load its inputs. A plan
  /// has two, so that a step can be submitted while another one runs.
  struct Slot {
    std::unique_ptr<DeviceMemory> block, costs;                          ///< on the host, near the devices
    std::vector<std::unique_ptr<DeviceMemory>> host;                     ///< by matrix
    Table<DeviceId, std::vector<std::unique_ptr<DeviceMemory>>> device;  ///< by device and matrix
    Matrices holds;  ///< the matrices that were copied last
    Table<DeviceId, std::shared_ptr<const Mark>> copied;
    Table<TaskId, std::vector<std::byte*>> pointers;  ///< the arguments of this process's tasks
    std::unique_ptr<Recording> recording;
    std::shared_ptr<const StepMarks> recorded_marks;  ///< null for GPUs, whose recordings have no marks
    StepState state;
  };
  static constexpr std::size_t kSlots = 2;
  /// A range of an input matrix that is an argument of a task.
  struct Load {
    TaskId task;
    std::size_t argument = 0, matrix = 0;
    std::int64_t begin = 0, bytes = 0;
  };
  /// A message on its way between a device and the transport, in the host's memory.
  struct Message {
    std::unique_ptr<DeviceMemory> staging;  ///< its pieces, one after the other
    std::shared_ptr<const MessageTransfer> transfer;
    std::shared_ptr<const Mark> copied;  ///< the last copy from or to the device
  };
  /// A plan as it is put into the queues: memory that the plan does not count.
  struct Prepared {
    std::shared_ptr<const BoundPlan> bound;
    std::array<Slot, kSlots> slots;
    std::size_t current = 0;              ///< that of the step that was submitted last
    std::optional<std::size_t> expected;  ///< that of the expected step, which holds its matrices
    std::vector<Load> loads;
    std::vector<std::unique_ptr<DeviceMemory>> fetched;  ///< by queue: copies of what operations cannot reach
    std::map<TaskId, Message> messages;                  ///< those that the host brings
    std::set<TaskId> begins_of_groups;                   ///< of messages that a communicator brings
    bool recordable = true;
    bool has_run = false;
  };
  /// A step that was submitted and not waited for.
  struct InFlight {
    Prepared* ready = nullptr;
    Slot* slot = nullptr;  ///< one of ready->slots
    Watch watch;
    bool begun = false;
    std::shared_ptr<const StepMarks> marks;  ///< null where only its end is known
    std::shared_ptr<const Mark> end;         ///< null until it has begun, and if that threw
  };

  bool is_here(DeviceId device) const { return plans_.topology().process(device) == process_; }
  std::size_t queue_of(const Task& task) const;
  Queue& queue_for(const Task& task) const { return *queues_[queue_of(task)]; }
  Queue& first_queue(DeviceId device) const { return *queues_[device.index() * kStreams]; }
  bool reaches(const Task& task, const Buffer& buffer) const;

  Prepared& prepared(const std::shared_ptr<const BoundPlan>& bound);
  void prepare_slot(const Prepared& ready, Slot& slot) const;
  void fill(const Prepared& ready, const Matrices& matrices, Slot& slot);
  Slot& filled(Prepared& ready, const Matrices& matrices);
  bool plays(const InFlight& step) const;
  void begin(InFlight& step);
  void begin_oldest();
  void record(Prepared& ready, Slot& slot);
  std::shared_ptr<const MessageTransfer> transfer(const Plan& plan, TaskId t,
                                                  std::vector<Transport::Piece> pieces, StepState& state,
                                                  std::function<void()> go_on = nullptr);

  TaskTimes times_of(const InFlight& step) const;
  void wait_for(const Mark& mark, const std::function<std::string()>& report,
                const std::function<std::size_t()>& progress = nullptr);
  void wait_for_end(const InFlight& step);
  void check_progress(double waited, const std::function<std::string()>& report);
  std::string report(const InFlight& step, std::size_t ended) const;
  std::string device_report(const InFlight& step, DeviceId device) const;

  const PlanSet& plans_;
  const Backend& backend_;
  Table<DeviceId, int> physical_;
  Address address_;
  double stall_seconds_;
  bool stalled_ = false;
  Processes* processes_;
  int process_;
  bool on_host_;                ///< devices use the host's memory, and their threads call operations
  int copy_threads_;            ///< threads that copy the inputs of a step to where GPUs read them
  std::vector<DeviceId> here_;  ///< the devices of this process
  std::unique_ptr<Communicator> communicator_;            ///< null: messages pass through the host
  Table<DeviceId, Table<DeviceId, bool>> reaches_;        ///< by device and other device
  std::vector<std::unique_ptr<Queue>> queues_;            ///< by device and stream, of this process's devices
  Table<DeviceId, std::unique_ptr<Queue>> input_queues_;  ///< null for devices that read the host's memory
  std::map<const Plan*, std::unique_ptr<Prepared>> prepared_;
  std::deque<InFlight> line_;  ///< the oldest first
};

}  // namespace convnet
