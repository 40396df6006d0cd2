#include "convnet/plan/order.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "convnet/plan/ranges.h"

namespace convnet {
namespace {

/// The uses of a buffer by the tasks so far.
struct History {
  RangeList<TaskId> reads, writes;  ///< their tasks
};

/// Finds the dependencies of one task after the other.
class Dependencies {
 public:
  explicit Dependencies(Plan& plan)
      : plan_(plan), order_(device_count(plan), used_streams(plan)), histories_(plan.buffers.size()) {}

  void find() {
    for (const TaskId t : plan_.tasks.ids()) {
      Task& task = plan_.tasks[t];
      std::vector<TaskId> conflicts;
      for (BufferUse& use : task.uses) find_conflicts(use, conflicts);
      record_uses(task, t);
      // Later tasks come first, because they imply more dependencies.
      std::sort(conflicts.rbegin(), conflicts.rend());
      task.after = order_.append(task, conflicts);
    }
  }

 private:
  History& history(const BufferUse& use) { return histories_[use.buffer]; }

  void find_conflicts(BufferUse& use, std::vector<TaskId>& conflicts) {
    const std::int64_t end = use.begin + bytes_of(plan_, use);
    use.version = 0;
    history(use).writes.visit_overlapping(use.begin, end, [&](TaskId task) {
      conflicts.push_back(task);
      ++use.version;
    });
    if (use.access == Access::read) return;
    history(use).reads.visit_overlapping(use.begin, end, [&](TaskId task) { conflicts.push_back(task); });
  }

  /// Adds the uses of a task to the histories; uses of one buffer that follow each other together.
  void record_uses(const Task& task, TaskId t) {
    for (std::size_t k = 0; k < task.uses.size();) {
      const BufferUse& first = task.uses[k];
      std::vector<RangeList<TaskId>::Range> reads;
      std::vector<RangeList<TaskId>::Range> writes;
      for (; k < task.uses.size() && task.uses[k].buffer == first.buffer; ++k) {
        const BufferUse& use = task.uses[k];
        (use.access == Access::read ? reads : writes)
            .push_back({use.begin, use.begin + bytes_of(plan_, use), t});
      }
      const std::int64_t bytes = plan_.buffers[first.buffer].bytes;
      history(first).reads.add(reads, bytes);
      history(first).writes.add(writes, bytes);
    }
  }

  Plan& plan_;
  TaskOrder order_;
  Table<BufferId, History> histories_;
};

}  // namespace

int used_streams(const Plan& plan) {
  int streams = 0;
  for (const Task& task : plan.tasks) streams = std::max(streams, static_cast<int>(task.stream) + 1);
  return streams;
}

TaskOrder::TaskOrder(int devices, int streams)
    : streams_(streams),
      shared_(1, Counts(first_column(DeviceId(devices)), 0)),
      last_(first_column(DeviceId(devices))) {}

TaskOrder::TaskOrder(const Plan& plan) : TaskOrder(device_count(plan), used_streams(plan)) {
  for (const TaskId t : plan.tasks.ids()) {
    const Task& task = plan.tasks[t];
    for (const TaskId after : task.after) {
      if (!after.exists() || after >= t)
        throw std::logic_error("plan is wrong: task " + std::to_string(t.value()) +
                               " waits for a task that does not come before it");
    }
    if (task.kind == TaskKind::receive && (!task.partner.exists() || task.partner >= t))
      throw std::logic_error("plan is wrong: task " + std::to_string(t.value()) +
                             " receives what no task before it sends");
    append(task, task.after);
  }
}

/// Merges the vector clock of a task on `device` into `into`, count by count. Shared counts say nothing about
/// the streams of the task's own device, whose counts are in Clock::own. Of shared counts that two devices
/// have in common, the clock of the second device therefore adds only the columns of the first.
template <class Choose>
void TaskOrder::merge(Merged& into, const Clock& clock, DeviceId device, Choose choose) const {
  const auto take = [&](const int* counts, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) into.counts[c] = choose(into.counts[c], counts[c - begin]);
  };
  const std::size_t begin = first_column(device);
  const std::size_t end = begin + static_cast<std::size_t>(streams_);
  const Counts& shared = shared_[clock.shared];
  const auto known = std::find_if(into.shared.rbegin(), into.shared.rend(),
                                  [&](const auto& entry) { return entry.first == clock.shared; });
  if (known == into.shared.rend()) {
    take(shared.data(), 0, begin);
    take(&shared[begin] + streams_, end, shared.size());
    into.shared.emplace_back(clock.shared, device);
  } else if (known->second.exists() && known->second != device) {
    const std::size_t missing = first_column(known->second);
    take(&shared[missing], missing, missing + static_cast<std::size_t>(streams_));
    known->second = DeviceId();
  }
  take(clock.own.data(), begin, end);
}

/// Returns shared counts that equal `merged` except in the columns of `device`: existing ones if possible,
/// else new ones.
std::size_t TaskOrder::share(const Merged& merged, DeviceId device) {
  const std::size_t begin = first_column(device);
  const std::size_t end = begin + static_cast<std::size_t>(streams_);
  const auto try_to_share = [&](std::size_t shared) {
    Counts& counts = shared_[shared];
    const auto same = [](int known, int wanted) { return known == wanted || known < 0; };
    const auto column = [](auto& values, std::size_t c) {
      return values.begin() + static_cast<std::ptrdiff_t>(c);
    };
    if (!std::equal(column(counts, 0), column(counts, begin), column(merged.counts, 0), same) ||
        !std::equal(column(counts, end), counts.end(), column(merged.counts, end), same))
      return false;
    std::copy(column(merged.counts, 0), column(merged.counts, begin), column(counts, 0));
    std::copy(column(merged.counts, end), merged.counts.end(), column(counts, end));
    return true;
  };
  for (auto entry = merged.shared.rbegin(); entry != merged.shared.rend(); ++entry) {
    if (try_to_share(entry->first)) return entry->first;
  }
  if (try_to_share(shared_.size() - 1)) return shared_.size() - 1;
  shared_.push_back(merged.counts);
  for (std::size_t c = begin; c < end; ++c) shared_.back()[c] = -1;
  return shared_.size() - 1;
}

std::vector<TaskId> TaskOrder::append(const Task& task, const std::vector<TaskId>& earlier) {
  const DeviceId device = task.device;
  const auto stream = static_cast<std::size_t>(task.stream);
  Place place{device, static_cast<int>(stream), 0};
  Clock clock;
  const TaskId previous = std::exchange(last_.at(column(place)), places_.next_id());
  if (previous.exists()) {
    clock = clocks_[previous];
    place.index = places_[previous].index + 1;
    // Messages begin while earlier ones of their stream go on, and end in order.
    if (!is_message(task.kind)) clock.own[stream] = place.index;
  }
  const auto later = [](int a, int b) { return std::max(a, b); };
  bool merged = false;
  const auto learn_from = [&](TaskId other) {
    if (!std::exchange(merged, true)) {
      merged_.counts.assign(last_.size(), 0);
      merged_.shared.clear();
      merge(merged_, clock, device, later);
    }
    merge(merged_, clocks_[other], places_[other].device, later);
  };
  std::vector<TaskId> waits;
  for (const TaskId e : earlier) {
    const Place& other = places_[e];
    if (merged ? merged_.counts[column(other)] > other.index : has(clock, device, other)) continue;
    learn_from(e);
    merged_.counts[column(other)] = std::max(merged_.counts[column(other)], other.index + 1);
    waits.push_back(e);
  }
  if (merged) {
    clock.shared = share(merged_, device);
    std::copy_n(&merged_.counts[first_column(device)], streams_, clock.own.begin());
  }
  places_.push_back(place);
  clocks_.push_back(clock);
  return waits;
}

TaskOrder::Group TaskOrder::group(std::vector<TaskId> tasks) const {
  const auto column_of = [&](TaskId task) { return column(places_[task]); };
  std::sort(tasks.begin(), tasks.end(),
            [&](TaskId a, TaskId b) { return std::pair(column_of(a), a) < std::pair(column_of(b), b); });
  Group group;
  if (tasks.empty()) return group;
  std::vector<TaskId> last;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (i == 0 || column_of(tasks[i]) != column_of(tasks[i - 1])) group.first.push_back(tasks[i]);
    if (i + 1 == tasks.size() || column_of(tasks[i]) != column_of(tasks[i + 1])) last.push_back(tasks[i]);
  }
  // What comes after the earliest task, as the readers of a tensor come after its writer, says nothing more;
  // nor does what comes before the latest one.
  std::sort(group.first.begin(), group.first.end());
  std::sort(last.rbegin(), last.rend());
  std::erase_if(group.first,
                [&, earliest = group.first.front()](TaskId t) { return is_before(earliest, t); });
  std::erase_if(last, [&, latest = last.front()](TaskId t) { return is_before(t, latest); });
  for (const TaskId t : last) group.last.emplace_back(column_of(t), places_[t].index);
  constexpr std::size_t kMostCompared = 8;
  if (group.first.size() <= kMostCompared) return group;
  Merged merged{Counts(last_.size(), std::numeric_limits<int>::max()), {}};
  for (const TaskId task : group.first)
    merge(merged, clocks_[task], places_[task].device, [](int a, int b) { return std::min(a, b); });
  group.before_first = std::move(merged.counts);
  return group;
}

bool TaskOrder::all_before(const Group& a, const Group& b) const {
  const auto has_all = [&](const auto& count) {
    return std::all_of(a.last.begin(), a.last.end(),
                       [&](const auto& last) { return count(last.first) > last.second; });
  };
  if (!b.before_first.empty()) return has_all([&](std::size_t c) { return b.before_first[c]; });
  return std::all_of(b.first.begin(), b.first.end(), [&](TaskId first) {
    const Clock& clock = clocks_[first];
    const Counts& shared = shared_[clock.shared];
    const std::size_t own = first_column(places_[first].device),
                      end = own + static_cast<std::size_t>(streams_);
    return has_all([&](std::size_t c) { return c >= own && c < end ? clock.own[c - own] : shared[c]; });
  });
}

void find_dependencies(Plan& plan) { Dependencies(plan).find(); }

}  // namespace convnet
