// The routes of tensors to several devices, and of sums from several devices to one.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "convnet/plan/emitter.h"
#include "convnet/plan/exchange.h"

namespace convnet {

/// A range of a buffer becomes the sum of ranges of other buffers, in their order, or the copy of one.
struct RouteStep {
  BufferUse to;
  std::vector<BufferUse> from;
};
/// Steps by stage: what a stage reads, the stages before it have written. Ranges of one stage do not overlap.
using Route = std::vector<std::vector<RouteStep>>;

/// Returns the route by which every member gets all of a tensor: `buffers` has one for each member, which
/// begins with its own ranges.
Route all_gather_route(const Exchange& exchange, const std::vector<SharedRange>& ranges,
                       const std::vector<BufferId>& buffers);

/// Returns the route by which each owner gets its ranges of the sum of all members' `parts`, the way of
/// all_gather_route() back. `partial` has a buffer for the sums of each member; ranges lie in it as they do
/// in the whole.
Route reduce_scatter_route(const Exchange& exchange, const std::vector<SharedRange>& ranges,
                           const std::vector<BufferId>& parts, const std::vector<BufferId>& partial);

/// Returns the route of `bytes` bytes from the buffer of member `root` to those of all others; `buffers` has
/// one for each member. The root sends each byte once, to a device that hands it on to the others: every link
/// then carries little more than the bytes that its devices need.
Route broadcast_route(const Exchange& exchange, const std::vector<BufferId>& buffers, int root,
                      std::int64_t bytes);

/// Returns the route of the sum of all members' `parts` to `sum`, a buffer of member `root`: the way of
/// broadcast_route() back. `partial` has a buffer for the partial sums of each member.
Route reduce_route(const Exchange& exchange, const std::vector<BufferId>& parts,
                   const std::vector<BufferId>& partial, BufferId sum, int root, std::int64_t bytes);

/// Returns the number of chunks in which so many bytes take a route of several stages: more of them keep more
/// links busy, but each takes time to begin. `delay` is the number of bytes that a link moves in that time.
std::int64_t route_chunks(std::int64_t bytes, std::size_t stages, double delay);

/// Emits the tasks of a route, which move f32 numbers, or anything of as many bytes. Each device has a task
/// for each chunk; it does the first stage for a chunk, the second for an earlier chunk, and so on, so that
/// all links are busy all the time. Devices with concurrent streams do two chunks at a time, in
/// Stream::copy and Stream::relay: one moves bytes while the other one waits for its first. Tasks are for the
/// layer of `place`, or for that of their device in `layers`.
void emit_route(TaskEmitter& emitter, TaskPlace place, const Route& route, std::int64_t chunks,
                const std::map<DeviceId, NodeId>& layers = {});

}  // namespace convnet
