#include "convnet/plan/order.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace convnet {
namespace {

/// For each task the set of tasks that are certainly done before it, made in the order of the list.
class Closure {
 public:
  explicit Closure(std::size_t tasks) : words_((tasks + 63) / 64), before_(tasks * words_, 0) {}

  void add(std::size_t task, std::size_t earlier) {
    std::uint64_t* mine = &before_[task * words_];
    const std::uint64_t* theirs = &before_[earlier * words_];
    for (std::size_t w = 0; w <= earlier / 64; ++w) mine[w] |= theirs[w];
    mine[earlier / 64] |= std::uint64_t{1} << (earlier % 64);
  }
  bool has(std::size_t task, std::size_t earlier) const {
    return ((before_[task * words_ + earlier / 64] >> (earlier % 64)) & 1U) != 0;
  }
  std::vector<std::uint64_t> take() { return std::move(before_); }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> before_;
};

/// The last task so far of each stream.
class Streams {
 public:
  explicit Streams(const Plan& plan) {
    int devices = 0;
    for (const Task& task : plan.tasks) devices = std::max(devices, task.device + 1);
    last_.resize(static_cast<std::size_t>(devices));
    for (auto& streams : last_) streams.fill(-1);
  }
  /// The task before `t` in its stream, or -1; `t` takes its place.
  int follow(const Plan& plan, std::size_t t) {
    const Task& task = plan.tasks[t];
    return std::exchange(
        last_.at(static_cast<std::size_t>(task.device)).at(static_cast<std::size_t>(task.stream)),
        static_cast<int>(t));
  }

 private:
  std::vector<std::array<int, kStreams>> last_;
};

/// Bytes of a buffer that a task has touched.
struct Touch {
  std::size_t task;
  std::int64_t begin, end;
  bool overlaps(const Touch& other) const { return begin < other.end && other.begin < end; }
};
struct Touches {
  std::vector<Touch> reads, writes;
};

}  // namespace

TaskOrder::Group TaskOrder::group(std::vector<std::size_t> tasks) const {
  const auto stream = [&](std::size_t t) { return std::pair(plan_.tasks[t].device, plan_.tasks[t].stream); };
  std::sort(tasks.begin(), tasks.end(),
            [&](std::size_t a, std::size_t b) { return std::pair(stream(a), a) < std::pair(stream(b), b); });
  // Streams run in order, so their first and last tasks speak for the others.
  Group group{{}, std::vector<std::uint64_t>(words_, ~std::uint64_t{0})};
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (i + 1 == tasks.size() || stream(tasks[i]) != stream(tasks[i + 1])) group.last.push_back(tasks[i]);
    if (i > 0 && stream(tasks[i]) == stream(tasks[i - 1])) continue;
    const std::uint64_t* before = &before_[tasks[i] * words_];
    for (std::size_t w = 0; w < words_; ++w) group.before_first[w] &= before[w];
  }
  return group;
}

bool TaskOrder::all_before(const Group& a, const Group& b) {
  return std::all_of(a.last.begin(), a.last.end(),
                     [&](std::size_t task) { return has(b.before_first.data(), task); });
}

TaskOrder::TaskOrder(const Plan& plan) : plan_(plan), words_((plan.tasks.size() + 63) / 64) {
  Closure closure(plan.tasks.size());
  Streams streams(plan);
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    for (int after : plan.tasks[t].after) {
      if (after < 0 || after >= static_cast<int>(t))
        throw std::logic_error("plan is wrong: task " + std::to_string(t) +
                               " waits for a task that does not come before it");
      closure.add(t, static_cast<std::size_t>(after));
    }
    if (const int last = streams.follow(plan, t); last >= 0) closure.add(t, static_cast<std::size_t>(last));
  }
  before_ = closure.take();
}

void find_dependencies(Plan& plan) {
  Closure closure(plan.tasks.size());
  Streams streams(plan);
  std::vector<Touches> touched(plan.buffers.size());
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    Task& task = plan.tasks[t];
    std::vector<std::size_t> conflicts;
    const auto touch_of = [&](const BufferUse& use) {
      return Touch{t, use.begin, use.begin + bytes_of(plan, use)};
    };
    for (BufferUse& use : task.uses) {
      const Touches& earlier = touched[static_cast<std::size_t>(use.buffer)];
      const Touch mine = touch_of(use);
      use.version = 0;
      for (const Touch& write : earlier.writes) {
        if (!write.overlaps(mine)) continue;
        conflicts.push_back(write.task);
        ++use.version;
      }
      if (use.access == Access::read) continue;
      for (const Touch& read : earlier.reads) {
        if (read.overlaps(mine)) conflicts.push_back(read.task);
      }
    }
    for (const BufferUse& use : task.uses) {
      Touches& all = touched[static_cast<std::size_t>(use.buffer)];
      if (use.access != Access::write) all.reads.push_back(touch_of(use));
      if (use.access != Access::read) all.writes.push_back(touch_of(use));
    }
    if (const int last = streams.follow(plan, t); last >= 0) closure.add(t, static_cast<std::size_t>(last));
    // Later tasks imply more.
    std::sort(conflicts.rbegin(), conflicts.rend());
    task.after.clear();
    for (std::size_t c : conflicts) {
      if (closure.has(t, c)) continue;
      closure.add(t, c);
      task.after.push_back(static_cast<int>(c));
    }
  }
}

}  // namespace convnet
