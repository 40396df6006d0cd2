// The order of a plan's tasks: which tasks each one waits for, directly or through others.
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "convnet/plan/plan.h"

namespace convnet {

/// Knows which tasks have certainly ended when another one starts, because of the order of streams and of
/// dependencies. Each task has a vector clock: for every stream of every device, the number of its tasks that
/// have ended when the task starts. Streams run in order, but messages may begin while earlier ones of their
/// stream go on; they end in order.
///
/// Tasks that wait for the same tasks have equal clocks, except for the streams of their own devices. A clock
/// is therefore stored as the counts of the streams of the task's own device, and a reference to counts of
/// all other devices, which tasks share. Thus memory grows with the number of tasks, not with tasks times
/// devices.
class TaskOrder {
 public:
  /// Makes an order without tasks, for plans that use the first `streams` streams of each device.
  explicit TaskOrder(int devices, int streams = kStreams);
  /// Throws std::logic_error if a task waits for one that does not come before it in the list.
  explicit TaskOrder(const Plan& plan);

  /// Adds the next task of the list, which must wait for the tasks `earlier`. Returns those of `earlier` that
  /// the task must wait for explicitly, in their order: it leaves out those that have ended anyway because of
  /// the order of the task's stream, or because of the tasks before them in `earlier`.
  std::vector<TaskId> append(const Task& task, const std::vector<TaskId>& earlier);

  /// Returns whether `a` has ended whenever `b` starts.
  bool is_before(TaskId a, TaskId b) const { return has(clocks_[b], places_[b].device, places_[a]); }

  /// A set of tasks. Streams run in order, so it is enough to keep its first and last task on each stream.
  struct Group {
    std::vector<TaskId> first;
    /// Columns of counts of the last tasks, and their indices on their streams.
    std::vector<std::pair<std::size_t, int>> last;
    /// By device and stream: number of tasks that have ended when any task of the group starts. Empty for
    /// groups on few streams, for which comparing tasks is faster.
    std::vector<int> before_first;
  };
  Group group(std::vector<TaskId> tasks) const;
  /// Returns whether every task of `a` is before every task of `b`.
  bool all_before(const Group& a, const Group& b) const;

 private:
  using Counts = std::vector<int>;  ///< numbers of tasks that have ended, by device and stream

  struct Place {
    DeviceId device{0};
    int stream = 0;
    int index = 0;  ///< number of tasks before it on its stream
  };
  struct Clock {
    std::array<int, kStreams> own{};  ///< counts of the streams of the task's device
    std::size_t shared = 0;           ///< into shared_: counts of the other devices' streams
  };
  /// The elementwise maximum (or minimum) of the clocks of several tasks.
  struct Merged {
    Counts counts;
    /// The shared counts that were merged, each with the device whose columns were left out, or none.
    std::vector<std::pair<std::size_t, DeviceId>> shared;
  };

  std::size_t first_column(DeviceId device) const {
    return device.index() * static_cast<std::size_t>(streams_);
  }
  std::size_t column(const Place& place) const {
    return first_column(place.device) + static_cast<std::size_t>(place.stream);
  }
  /// Returns whether the clock of a task on `device` says that the task at `place` has ended.
  bool has(const Clock& clock, DeviceId device, const Place& place) const {
    const int done = device == place.device ? clock.own[static_cast<std::size_t>(place.stream)]
                                            : shared_[clock.shared][column(place)];
    return done > place.index;
  }
  template <class Choose>
  void merge(Merged& into, const Clock& clock, DeviceId device, Choose choose) const;
  std::size_t share(const Merged& merged, DeviceId device);

  int streams_;
  Table<TaskId, Place> places_;
  Table<TaskId, Clock> clocks_;
  /// Columns of -1 are those of a device whose own tasks alone use the counts so far; they may be filled in.
  std::vector<Counts> shared_;
  std::vector<TaskId> last_;  ///< by device and stream: its last task so far, or none
  Merged merged_;             ///< memory that append() reuses
};

/// Returns how many streams of each device, from the first, the plan uses.
int used_streams(const Plan& plan);

/// Sets BufferUse::version of all uses, and replaces Task::after of all tasks by the dependencies that follow
/// from the bytes that they touch.
void find_dependencies(Plan& plan);

}  // namespace convnet
