// Places the buffers that live only during a minibatch into one block of memory per device.
#include <algorithm>
#include <limits>
#include <numeric>

#include "convnet/plan/plan.h"

namespace convnet {
namespace {

constexpr std::int64_t kAlignment = 64;

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
      if (o.device == buffer.device && lives[other].overlaps(lives[b]))
        taken.emplace_back(o.offset, o.offset + (o.bytes + kAlignment - 1) / kAlignment * kAlignment);
    }
    buffer.offset = lowest_gap(std::move(taken), buffer.bytes);
    placed.push_back(b);
    std::int64_t& needed = plan.memory[static_cast<std::size_t>(buffer.device)].transient;
    needed = std::max(needed, (buffer.offset + buffer.bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
  for (int device = 0; device < devices; ++device) {
    DeviceMemoryNeeds& needs = plan.memory[static_cast<std::size_t>(device)];
    needs.by_kind = fullest_moment(plan, lives, device);
    for (const Buffer& b : plan.buffers) {
      if (b.device != device || !b.persistent()) continue;
      needs.by_kind[b.kind] += b.bytes;
      needs.persistent =
          std::max(needs.persistent, b.offset + (b.bytes + kAlignment - 1) / kAlignment * kAlignment);
    }
  }
}

}  // namespace convnet
