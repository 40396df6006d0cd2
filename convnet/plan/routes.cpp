#include "convnet/plan/routes.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

namespace convnet {
namespace {

constexpr std::int64_t kFloat = 4, kAligned = 64 * kFloat;  // bytes; chunks and shards begin at multiples

/// The range of part `k` of `parts` of a range of bytes. The first one is half as large as the others: so the
/// two streams that take parts in turn do not both begin at the same time.
BufferUse part_of(const BufferUse& use, std::int64_t k, std::int64_t parts) {
  const auto begin = [&](std::int64_t part) {
    if (part == 0 || part == parts) return part == 0 ? 0 : use.bytes;
    return use.bytes * (2 * part - 1) / (2 * parts - 1) / kAligned * kAligned;
  };
  BufferUse part = use;
  part.begin += begin(k);
  part.bytes = begin(k + 1) - begin(k);
  return part;
}

BufferUse use_of(BufferId buffer, Access access, const SharedRange& range) {
  return {buffer, access, 0, range.begin, range.bytes};
}

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// The members that hand on what a root sends, each its share.
struct Relays {
  Exchange exchange;                ///< of all members but the root
  std::vector<int> members;         ///< of `exchange`, by their index among all
  std::vector<SharedRange> ranges;  ///< of what the root sends, each to its owner

  /// The buffers of the members of `exchange`.
  std::vector<BufferId> of(const std::vector<BufferId>& buffers) const {
    std::vector<BufferId> theirs;
    for (const int m : members) theirs.push_back(buffers[at(m)]);
    return theirs;
  }
};

/// The root sends its tensor once, to devices of other hosts if there are any. Its neighbours then get it
/// from there, because the root's own link is busy.
Relays relays_of(const Exchange& exchange, int root, std::int64_t bytes) {
  Relays relays{exchange.without(root), {}, {}};
  std::vector<int> near, far;
  for (int m = 0; m < exchange.members(); ++m) {
    if (m == root) continue;
    (exchange.neighbours(m, root) ? near : far).push_back(static_cast<int>(relays.members.size()));
    relays.members.push_back(m);
  }
  // Parts are equal, because Exchange::weight() is for an all-reduce: members that own more also sum more.
  relays.ranges = shared_ranges(relays.exchange, far.empty() ? near : far, bytes, kAligned, false);
  return relays;
}

}  // namespace

Route all_gather_route(const Exchange& exchange, const std::vector<SharedRange>& ranges,
                       const std::vector<BufferId>& buffers) {
  Route route(at(exchange.stages()));
  for (const SharedRange& range : ranges) {
    for (int m = 0; m < exchange.members(); ++m) {
      if (m == range.share.owner) continue;
      const Exchange::Hop hop = exchange.hop(m, range.share);
      route[at(exchange.stages() - 1 - hop.stage)].push_back(
          {use_of(buffers[at(m)], Access::write, range),
           {use_of(buffers[at(hop.receiver)], Access::read, range)}});
    }
  }
  return route;
}

Route reduce_scatter_route(const Exchange& exchange, const std::vector<SharedRange>& ranges,
                           const std::vector<BufferId>& parts, const std::vector<BufferId>& partial) {
  Route route(at(exchange.stages()));
  for (const SharedRange& range : ranges) {
    std::vector<BufferId> so_far = parts;
    for (int stage = 0; stage < exchange.stages(); ++stage) {
      for (const auto& [receiver, senders] : exchange.sums(stage, range.share)) {
        RouteStep step{use_of(partial[at(receiver)], Access::write, range), {}};
        for (const int sender : senders) step.from.push_back(use_of(so_far[at(sender)], Access::read, range));
        so_far[at(receiver)] = partial[at(receiver)];
        route[at(stage)].push_back(std::move(step));
      }
    }
  }
  return route;
}

Route broadcast_route(const Exchange& exchange, const std::vector<BufferId>& buffers, int root,
                      std::int64_t bytes) {
  const Relays relays = relays_of(exchange, root, bytes);
  const std::vector<BufferId> theirs = relays.of(buffers);
  Route route(1);
  for (const SharedRange& range : relays.ranges)
    route[0].push_back({use_of(theirs[at(range.share.owner)], Access::write, range),
                        {use_of(buffers[at(root)], Access::read, range)}});
  Route rest = all_gather_route(relays.exchange, relays.ranges, theirs);
  route.insert(route.end(), std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
  return route;
}

Route reduce_route(const Exchange& exchange, const std::vector<BufferId>& parts,
                   const std::vector<BufferId>& partial, BufferId sum, int root, std::int64_t bytes) {
  const Relays relays = relays_of(exchange, root, bytes);
  const std::vector<BufferId> theirs = relays.of(parts), sums = relays.of(partial);
  Route route = reduce_scatter_route(relays.exchange, relays.ranges, theirs, sums);
  route.emplace_back();
  for (const SharedRange& range : relays.ranges) {
    // A single other member has nothing to add.
    const std::size_t owner = at(range.share.owner);
    const BufferId from = theirs.size() > 1 ? sums[owner] : theirs[owner];
    route.back().push_back(
        {use_of(sum, Access::write, range),
         {use_of(parts[at(root)], Access::read, range), use_of(from, Access::read, range)}});
  }
  return route;
}

std::int64_t route_chunks(std::int64_t bytes, std::size_t stages, double delay) {
  if (stages == 1) return 1;
  // While one of two streams waits for the first bytes of a chunk, the other one uses the links: chunks that
  // take a few times as long as it takes to begin cost no time. Filling and draining the stages then takes
  // the time of 2 (n - 1) chunks.
  constexpr double kDelays = 3;
  constexpr std::int64_t kOfStage = 48, kMost = 144;
  const std::int64_t most = std::min<std::int64_t>(kOfStage * (static_cast<std::int64_t>(stages) - 1), kMost);
  return std::clamp<std::int64_t>(std::llround(static_cast<double>(bytes) / (kDelays * delay)), 1, most);
}

void emit_route(TaskEmitter& emitter, TaskPlace place, const Route& route, std::int64_t chunks,
                const std::map<DeviceId, NodeId>& layers) {
  const NodeId layer = place.node;
  const bool sums = std::any_of(route.begin(), route.end(), [](const std::vector<RouteStep>& stage) {
    return std::any_of(stage.begin(), stage.end(),
                       [](const RouteStep& step) { return step.from.size() > 1; });
  });
  const std::int64_t streams = chunks > 1 && emitter.target().runs_streams_together() ? 2 : 1;
  // Round t of a stream, which is round t / streams of its own, does stage s for the chunk of s rounds
  // before.
  for (std::int64_t t = 0; t < chunks + streams * (std::ssize(route) - 1); ++t) {
    const Stream stream = t % streams == 0 ? Stream::copy : Stream::relay;
    std::map<DeviceId, std::vector<RouteStep>> of_devices;
    for (std::size_t stage = 0; stage < route.size(); ++stage) {
      const std::int64_t chunk = t - streams * static_cast<std::int64_t>(stage);
      if (chunk < 0 || chunk >= chunks) continue;
      for (const RouteStep& step : route[stage]) {
        RouteStep part{part_of(step.to, chunk, chunks), {}};
        if (part.to.bytes == 0) continue;
        for (const BufferUse& from : step.from) part.from.push_back(part_of(from, chunk, chunks));
        of_devices[emitter.buffer(step.to.buffer).device].push_back(std::move(part));
      }
    }
    for (const auto& [device, steps] : of_devices) {
      const auto own = layers.find(device);
      place.device = device;
      place.node = own == layers.end() ? layer : own->second;
      SumRuns sum;
      CopyRuns copy;
      std::vector<BufferUse> uses, written;
      for (const RouteStep& step : steps) {
        const std::int64_t floats = step.to.bytes / kFloat;
        sum.runs.push_back({floats, static_cast<int>(step.from.size())});
        copy.runs.push_back({floats});
        if (sums) uses.push_back(step.to);
        uses.insert(uses.end(), step.from.begin(), step.from.end());
        written.push_back(step.to);
      }
      if (sums) {
        emitter.emit_flat(place, TaskKind::reduce, stream, sum, std::move(uses));
      } else {
        uses.insert(uses.end(), written.begin(), written.end());
        emitter.emit_flat(place, TaskKind::copy, stream, copy, std::move(uses));
      }
    }
  }
}

}  // namespace convnet
