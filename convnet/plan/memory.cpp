// Places the buffers that live only during a minibatch into one block of memory per device.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "convnet/plan/order.h"

namespace convnet {
namespace {

struct Lifetime {
  int first = std::numeric_limits<int>::max(), last = -1;
  bool overlaps(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

std::vector<Lifetime> lifetimes(const Plan& plan) {
  std::vector<Lifetime> lives(plan.buffers.size());
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const auto touch = [&](int buffer) {
      Lifetime& life = lives[static_cast<std::size_t>(buffer)];
      life.first = std::min(life.first, static_cast<int>(t));
      life.last = std::max(life.last, static_cast<int>(t));
    };
    for (const BufferUse& use : plan.tasks[t].uses) touch(use.buffer);
    if (plan.tasks[t].workspace >= 0) touch(plan.tasks[t].workspace);
  }
  return lives;
}

bool transient(const Buffer& b) { return !b.persistent() && b.kind != BufferKind::input; }

/// By buffer: the tasks that use it.
std::vector<std::vector<std::size_t>> tasks_by_buffer(const Plan& plan) {
  std::vector<std::vector<std::size_t>> tasks(plan.buffers.size());
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    for (const BufferUse& use : plan.tasks[t].uses) tasks[static_cast<std::size_t>(use.buffer)].push_back(t);
    if (plan.tasks[t].workspace >= 0) tasks[static_cast<std::size_t>(plan.tasks[t].workspace)].push_back(t);
  }
  return tasks;
}

/// The lowest place where `size` bytes fit between the already placed buffers that live at the same time.
std::int64_t lowest_gap(std::vector<std::pair<std::int64_t, std::int64_t>> taken, std::int64_t size) {
  std::sort(taken.begin(), taken.end());
  std::int64_t place = 0;
  for (const auto& [begin, end] : taken) {
    if (begin - place >= size) break;
    place = std::max(place, end);
  }
  return place;
}

/// Bytes by kind of one device at the first moment when it has most transient memory in use. `buffers`: the
/// device's transient buffers.
std::map<BufferKind, std::int64_t> fullest_moment(const Plan& plan, const std::vector<Lifetime>& lives,
                                                  const std::vector<std::size_t>& buffers) {
  // Buffers that begin to live at a task count at that task; those that ended at an earlier one do not.
  struct Change {
    int task;
    bool begins;
    std::size_t buffer;
  };
  std::vector<Change> changes;
  for (const std::size_t b : buffers) {
    if (lives[b].last < 0) continue;
    changes.push_back({lives[b].first, true, b});
    changes.push_back({lives[b].last + 1, false, b});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& x, const Change& y) { return x.task < y.task; });
  std::map<BufferKind, std::int64_t> now;
  std::map<BufferKind, std::int64_t> fullest;
  std::int64_t total = 0;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const Buffer& buffer = plan.buffers[changes[i].buffer];
    const std::int64_t bytes = changes[i].begins ? buffer.bytes : -buffer.bytes;
    now[buffer.kind] += bytes;
    total += bytes;
    const bool last_of_task = i + 1 == changes.size() || changes[i + 1].task != changes[i].task;
    if (last_of_task && total > most) {
      most = total;
      fullest = now;
    }
  }
  std::erase_if(fullest, [](const auto& kind) { return kind.second == 0; });
  return fullest;
}

/// Gives the device's transient buffers their places, in their order, and returns the bytes that these take.
/// Buffers share memory where all uses of one come before all uses of the other, on whatever streams and
/// devices these run.
std::int64_t place_on_device(Plan& plan, const std::vector<std::size_t>& buffers,
                             const std::vector<Lifetime>& lives,
                             const std::vector<std::vector<std::size_t>>& tasks, const TaskOrder& order) {
  struct Placed {
    std::size_t buffer;
    TaskOrder::Group uses;
  };
  std::vector<Placed> placed;
  std::int64_t needed = 0;
  for (const std::size_t b : buffers) {
    Placed mine{b, order.group(tasks[b])};
    const auto may_share = [&](const Placed& other) {
      // The order of the list is one of those that dependencies allow.
      const Lifetime &x = lives[b], &y = lives[other.buffer];
      if (x.overlaps(y)) return false;
      return x.first < y.first ? order.all_before(mine.uses, other.uses)
                               : order.all_before(other.uses, mine.uses);
    };
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;
    for (const Placed& other : placed) {
      const Buffer& o = plan.buffers[other.buffer];
      if (!may_share(other)) taken.emplace_back(o.offset, o.offset + aligned(o.bytes));
    }
    Buffer& buffer = plan.buffers[b];
    buffer.offset = lowest_gap(std::move(taken), buffer.bytes);
    needed = std::max(needed, buffer.offset + aligned(buffer.bytes));
    placed.push_back(std::move(mine));
  }
  return needed;
}

}  // namespace

void place_buffers(Plan& plan, int devices) {
  const std::vector<Lifetime> lives = lifetimes(plan);
  const std::vector<std::vector<std::size_t>> tasks = tasks_by_buffer(plan);
  const TaskOrder order(plan);
  std::vector<std::vector<std::size_t>> buffers(static_cast<std::size_t>(devices));  // transient, by device
  plan.memory.assign(buffers.size(), {});
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    const auto device = static_cast<std::size_t>(buffer.device);
    if (transient(buffer)) buffers[device].push_back(b);
    if (!buffer.persistent()) continue;
    plan.memory[device].by_kind[buffer.kind] += buffer.bytes;
    plan.memory[device].persistent =
        std::max(plan.memory[device].persistent, buffer.offset + aligned(buffer.bytes));
  }
  for (std::size_t device = 0; device < buffers.size(); ++device) {
    // Largest first: small buffers then fill the gaps.
    std::stable_sort(buffers[device].begin(), buffers[device].end(), [&](std::size_t a, std::size_t b) {
      return plan.buffers[a].bytes > plan.buffers[b].bytes;
    });
    DeviceMemoryNeeds& needs = plan.memory[device];
    needs.transient = place_on_device(plan, buffers[device], lives, tasks, order);
    needs.by_kind.merge(fullest_moment(plan, lives, buffers[device]));
  }
}

}  // namespace convnet
