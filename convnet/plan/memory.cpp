#include "convnet/plan/memory.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "convnet/base/cores.h"
#include "convnet/base/error.h"
#include "convnet/base/share_work.h"
#include "convnet/plan/order.h"

namespace convnet {
namespace {

struct Lifetime {
  TaskId first{std::numeric_limits<int>::max()}, last;
  bool overlaps(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

bool transient(const Buffer& b) { return !b.persistent() && b.kind != BufferKind::input; }

/// The tasks that use each buffer.
Table<BufferId, std::vector<TaskId>> tasks_by_buffer(const Plan& plan) {
  Table<BufferId, std::vector<TaskId>> tasks(plan.buffers.size());
  for (const TaskId t : plan.tasks.ids()) {
    for (const BufferUse& use : plan.tasks[t].uses) tasks[use.buffer].push_back(t);
    if (plan.tasks[t].workspace.exists()) tasks[plan.tasks[t].workspace].push_back(t);
  }
  return tasks;
}

/// Returns when each buffer lives, from the tasks that use it in the order of the list.
Table<BufferId, Lifetime> lifetimes(const Table<BufferId, std::vector<TaskId>>& tasks) {
  Table<BufferId, Lifetime> lives(tasks.size());
  for (const BufferId b : tasks.ids()) {
    if (!tasks[b].empty()) lives[b] = {tasks[b].front(), tasks[b].back()};
  }
  return lives;
}

/// Bytes by kind of one device at the first moment when it has most transient memory in use. `buffers`: the
/// device's transient buffers.
std::map<BufferKind, std::int64_t> fullest_moment(const Plan& plan, const Table<BufferId, Lifetime>& lives,
                                                  const std::vector<BufferId>& buffers) {
  // Buffers that begin to live at a task count at that task; those that ended at an earlier one do not.
  struct Change {
    int task;
    bool begins;
    BufferId buffer;
  };
  std::vector<Change> changes;
  for (const BufferId b : buffers) {
    if (!lives[b].last.exists()) continue;
    changes.push_back({lives[b].first.value(), true, b});
    changes.push_back({lives[b].last.value() + 1, false, b});
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

/// A buffer of a device that has a place.
struct Placed {
  std::int64_t begin, end;
  Lifetime life;
  int stream;      ///< of all uses, if these are on one stream of the device; else -1
  unsigned group;  ///< the index of the tasks that use it
  bool shares_bytes(const Placed& other) const { return begin < other.end && other.begin < end; }
  /// By begin; of those at one place, the last ones that are used first.
  bool operator<(const Placed& other) const {
    return std::pair(begin, other.life.first) < std::pair(other.begin, life.first);
  }
};

/// The buffers that have places, in order. They lie in blocks, so that adding one moves few others, and that
/// a search steps over many at a time.
class PlacedBuffers {
 public:
  /// Calls visit(placed) for each buffer that ends after `from`, in order, until one returns false. The calls
  /// may raise `from`.
  template <class Visit>
  void visit_from(const std::int64_t& from, const Visit& visit) const {
    for (const Block& block : blocks_) {
      if (block.end <= from) continue;
      for (const Placed& placed : block.placed) {
        if (placed.end > from && !visit(placed)) return;
      }
    }
  }

  void add(const Placed& placed) {
    auto block = std::find_if(blocks_.begin(), blocks_.end(),
                              [&](const Block& b) { return placed < b.placed.back(); });
    if (block == blocks_.end()) {
      if (blocks_.empty()) blocks_.emplace_back();
      block = std::prev(blocks_.end());
    }
    block->placed.insert(std::upper_bound(block->placed.begin(), block->placed.end(), placed), placed);
    block->end = std::max(block->end, placed.end);
    if (block->placed.size() <= kMost) return;
    const auto middle = block->placed.begin() + kMost / 2;
    Block rest{{middle, block->placed.end()}};
    block->placed.erase(middle, block->placed.end());
    for (Block* half : {&*block, &rest}) {
      half->end = 0;
      for (const Placed& p : half->placed) half->end = std::max(half->end, p.end);
    }
    blocks_.insert(std::next(block), std::move(rest));
  }

 private:
  static constexpr std::ptrdiff_t kMost = 128;
  struct Block {
    std::vector<Placed> placed;
    std::int64_t end = 0;  ///< the largest of its buffers
  };
  std::vector<Block> blocks_;
};

/// Gives the device's transient buffers their places, in their order, each the lowest that is free, and
/// returns the bytes that these take. Buffers share memory where all uses of one come before all uses of the
/// other, on whatever streams and devices these run.
std::int64_t place_on_device(Plan& plan, const std::vector<BufferId>& buffers,
                             const Table<BufferId, Lifetime>& lives,
                             const Table<BufferId, std::vector<TaskId>>& tasks, const TaskOrder& order) {
  PlacedBuffers placed;
  std::vector<TaskOrder::Group> groups;
  std::int64_t needed = 0;
  BufferId last;
  for (const BufferId b : buffers) {
    Buffer& buffer = plan.buffers[b];
    Placed own{0, 0, lives[b], -1, static_cast<unsigned>(groups.size())};
    // Equal results of one task find no place below each other: the search goes on behind the one before.
    if (last.exists() && plan.buffers[last].bytes == buffer.bytes && lives[last].first == own.life.first)
      own.begin = plan.buffers[last].offset + aligned(buffer.bytes);
    last = b;
    groups.push_back(order.group(tasks[b]));
    const auto on_stream_of_first = [&](TaskId t) {
      return plan.tasks[t].device == buffer.device && !is_message(plan.tasks[t].kind) &&
             plan.tasks[t].stream == plan.tasks[tasks[b][0]].stream;
    };
    if (!tasks[b].empty() && std::all_of(tasks[b].begin(), tasks[b].end(), on_stream_of_first))
      own.stream = static_cast<int>(plan.tasks[tasks[b][0]].stream);
    // The last buffers that were found to be used before this one, and after it. Those that have bytes in
    // common with the one before, and are used before it, need no comparison.
    const Placed *before = nullptr, *after = nullptr;
    const auto may_share = [&](const Placed& other) {
      // The order of the list is one of those that dependencies allow, and that of a stream.
      if (own.life.overlaps(other.life)) return false;
      if (own.stream >= 0 && own.stream == other.stream) return true;
      const bool first = own.life.first < other.life.first;
      const Placed*& known = first ? after : before;
      if (known != nullptr && known->shares_bytes(other) && (known->life.first < other.life.first) == first)
        return true;
      if (!order.all_before(groups[first ? own.group : other.group], groups[first ? other.group : own.group]))
        return false;
      known = &other;
      return true;
    };
    placed.visit_from(own.begin, [&](const Placed& other) {
      if (other.begin - own.begin >= buffer.bytes) return false;
      if (!may_share(other)) own.begin = other.end;
      return true;
    });
    buffer.offset = own.begin;
    own.end = own.begin + aligned(buffer.bytes);
    needed = std::max(needed, own.end);
    placed.add(own);
  }
  return needed;
}

}  // namespace

void place_buffers(Plan& plan, int devices) {
  const Table<BufferId, std::vector<TaskId>> tasks = tasks_by_buffer(plan);
  const Table<BufferId, Lifetime> lives = lifetimes(tasks);
  const TaskOrder order(plan);
  Table<DeviceId, std::vector<BufferId>> buffers(static_cast<std::size_t>(devices));  // transient
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;  // so that no offset overflows
  std::int64_t all = 0;
  for (const BufferId b : plan.buffers.ids()) {
    if (__builtin_add_overflow(all, plan.buffers[b].bytes, &all) || all > kMostBytes)
      throw InputError("the tensors of this net take more than 2^62 bytes; use a smaller --mini or layers");
  }
  plan.memory.assign(buffers.size(), {});
  for (const BufferId b : plan.buffers.ids()) {
    const Buffer& buffer = plan.buffers[b];
    if (transient(buffer)) buffers[buffer.device].push_back(b);
    if (!buffer.persistent()) continue;
    DeviceMemoryNeeds& needs = plan.memory[buffer.device];
    needs.by_kind[buffer.kind] += buffer.bytes;
    needs.persistent = std::max(needs.persistent, buffer.offset + aligned(buffer.bytes));
  }
  constexpr std::size_t kFewTasks = 4096;  // for which starting threads takes longer than the work
  share_work(buffers.size(), plan.tasks.size() < kFewTasks ? 1 : usable_cores(), [&](std::size_t d) {
    // Largest first: small buffers then fill the gaps.
    std::stable_sort(buffers[d].begin(), buffers[d].end(),
                     [&](BufferId a, BufferId b) { return plan.buffers[a].bytes > plan.buffers[b].bytes; });
    DeviceMemoryNeeds& needs = plan.memory[d];
    needs.transient = place_on_device(plan, buffers[d], lives, tasks, order);
    needs.by_kind.merge(fullest_moment(plan, lives, buffers[d]));
  });
}

Table<DeviceId, std::int64_t> least_memory(const Plan& plan, int devices) {
  const Table<BufferId, Lifetime> lives = lifetimes(tasks_by_buffer(plan));
  Table<DeviceId, std::vector<BufferId>> buffers(static_cast<std::size_t>(devices));
  Table<DeviceId, std::int64_t> least(buffers.size(), 0);
  for (const BufferId b : plan.buffers.ids()) {
    const Buffer& buffer = plan.buffers[b];
    if (transient(buffer)) buffers[buffer.device].push_back(b);
    if (buffer.persistent())
      least[buffer.device] = std::max(least[buffer.device], buffer.offset + aligned(buffer.bytes));
  }
  for (const DeviceId device : buffers.ids()) {
    for (const auto& [kind, bytes] : fullest_moment(plan, lives, buffers[device])) least[device] += bytes;
  }
  return least;
}

}  // namespace convnet
