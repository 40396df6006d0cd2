// Places the buffers that live only during a minibatch into one block of memory per device.
#include <algorithm>
#include <limits>
#include <numeric>

#include "convnet/plan/plan.h"

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

/// Which buffers may share memory: all uses of one come before all uses of the other, on whatever streams and
/// devices these run.
class Sharing {
 public:
  Sharing(const Plan& plan, const std::vector<Lifetime>& lives)
      : order_(plan), lives_(lives), uses_(lives.size()) {
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      for (const BufferUse& use : plan.tasks[t].uses)
        uses_[static_cast<std::size_t>(use.buffer)].push_back(t);
      if (plan.tasks[t].workspace >= 0) uses_[static_cast<std::size_t>(plan.tasks[t].workspace)].push_back(t);
    }
  }
  bool allowed(std::size_t a, std::size_t b) const {
    // The order of the list is one of those that dependencies allow.
    if (lives_[a].overlaps(lives_[b])) return false;
    const auto& first = uses_[lives_[a].first < lives_[b].first ? a : b];
    const auto& second = uses_[lives_[a].first < lives_[b].first ? b : a];
    return std::all_of(first.rbegin(), first.rend(), [&](std::size_t x) {
      return std::all_of(second.begin(), second.end(), [&](std::size_t y) { return order_.is_before(x, y); });
    });
  }

 private:
  TaskOrder order_;
  const std::vector<Lifetime>& lives_;
  std::vector<std::vector<std::size_t>> uses_;  ///< by buffer, in order
};

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

/// Bytes by kind at the moment when most transient memory is in use.
std::map<BufferKind, std::int64_t> fullest_moment(const Plan& plan, const std::vector<Lifetime>& lives,
                                                  int device) {
  std::map<BufferKind, std::int64_t> fullest;
  std::int64_t most = -1;
  for (int t = 0; t < static_cast<int>(plan.tasks.size()); ++t) {
    std::map<BufferKind, std::int64_t> now;
    std::int64_t total = 0;
    for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
      const Buffer& buffer = plan.buffers[b];
      if (buffer.device != device || !transient(buffer) || lives[b].first > t || lives[b].last < t) continue;
      now[buffer.kind] += buffer.bytes;
      total += buffer.bytes;
    }
    if (total > most) {
      most = total;
      fullest = std::move(now);
    }
  }
  return fullest;
}

}  // namespace

void place_buffers(Plan& plan, int devices) {
  const std::vector<Lifetime> lives = lifetimes(plan);
  const Sharing sharing(plan, lives);
  // Largest first: small buffers then fill the gaps.
  std::vector<std::size_t> order(plan.buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return plan.buffers[a].bytes > plan.buffers[b].bytes;
  });
  plan.memory.assign(static_cast<std::size_t>(devices), {});
  std::vector<std::size_t> placed;
  for (std::size_t b : order) {
    Buffer& buffer = plan.buffers[b];
    if (!transient(buffer)) continue;
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;
    for (std::size_t other : placed) {
      const Buffer& o = plan.buffers[other];
      if (o.device == buffer.device && !sharing.allowed(other, b))
        taken.emplace_back(o.offset, o.offset + aligned(o.bytes));
    }
    buffer.offset = lowest_gap(std::move(taken), buffer.bytes);
    placed.push_back(b);
    std::int64_t& needed = plan.memory[static_cast<std::size_t>(buffer.device)].transient;
    needed = std::max(needed, buffer.offset + aligned(buffer.bytes));
  }
  for (int device = 0; device < devices; ++device) {
    DeviceMemoryNeeds& needs = plan.memory[static_cast<std::size_t>(device)];
    needs.by_kind = fullest_moment(plan, lives, device);
    for (const Buffer& b : plan.buffers) {
      if (b.device != device || !b.persistent()) continue;
      needs.by_kind[b.kind] += b.bytes;
      needs.persistent = std::max(needs.persistent, b.offset + aligned(b.bytes));
    }
  }
}

}  // namespace convnet
