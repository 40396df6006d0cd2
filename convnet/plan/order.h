// The order of a plan's tasks: what each must wait for, and what that implies.
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "convnet/plan/plan.h"

namespace convnet {

/// Says which tasks are certainly done when another starts, by the order of streams and dependencies: a
/// vector clock for each task, which counts the tasks of each stream that are done.
///
/// Tasks that wait for the same tasks on all devices know the same about all devices but their own. A clock
/// is therefore what the task knows about the streams of its own device, and a reference to counts that it
/// shares with others. Memory grows with the tasks then, not with tasks times devices.
class TaskOrder {
 public:
  /// Makes an order without tasks, for plans that use the first `streams` streams of each device.
  explicit TaskOrder(int devices, int streams = kStreams);
  /// Throws std::logic_error if a task waits for one that does not come before it in the list.
  explicit TaskOrder(const Plan& plan);

  /// Adds the next task of the list, which must wait for the tasks `earlier` and, if it receives a message,
  /// for the beginning of the task that sends it. Returns those of `earlier`, in their order, that follow
  /// neither from the task's stream nor from its message nor from the ones before them in `earlier`.
  std::vector<TaskId> append(const Task& task, const std::vector<TaskId>& earlier);

  bool is_before(TaskId a, TaskId b) const { return has(clocks_[b], places_[b].device, places_[a]); }

  /// Some tasks: streams run in order, so the first and the last one on each stream speak for the others.
  struct Group {
    std::vector<TaskId> first, last;
    /// By device and stream: how many tasks are before all of the group. Empty for groups on few streams,
    /// where it would cost more than it saves.
    std::vector<int> before_first;
  };
  Group group(std::vector<TaskId> tasks) const;
  /// Returns whether every task of `a` is before every task of `b`.
  bool all_before(const Group& a, const Group& b) const;

 private:
  using Counts = std::vector<int>;  ///< tasks that are done, by device and stream

  struct Place {
    DeviceId device{0};
    int stream = 0;
    int index = 0;  ///< the tasks before it on its stream
  };
  struct Clock {
    std::array<int, kStreams> own{};  ///< counts of the streams of the task's device
    std::size_t shared = 0;           ///< into shared_: counts of the other devices' streams
  };
  /// The clocks of several tasks made one, by the larger or the smaller counts.
  struct Merged {
    Counts counts;
    /// The shared counts that are in it, each with the device whose columns it lacks, or none.
    std::vector<std::pair<std::size_t, DeviceId>> shared;
  };

  std::size_t first_column(DeviceId device) const {
    return device.index() * static_cast<std::size_t>(streams_);
  }
  std::size_t column(const Place& place) const {
    return first_column(place.device) + static_cast<std::size_t>(place.stream);
  }
  /// Whether the clock of a task on `device` says that the task at `place` is done.
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
  std::vector<Counts>
      shared_;                ///< a task's own device's columns may be -1: no other device refers to them yet
  std::vector<TaskId> last_;  ///< by device and stream: its last task so far, or none
  Merged merged_;             ///< memory that append() uses again
};

/// Returns how many streams of each device the plan uses: messages have streams of their own.
int used_streams(const Plan& plan);

/// Finds the versions of all uses, and from them the dependencies: tasks.after is made anew.
void find_dependencies(Plan& plan);

}  // namespace convnet
