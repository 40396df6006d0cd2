// The order in which the layers of a net run in a minibatch, as a list. Whoever makes a plan follows the
// list.
#pragma once

#include <vector>

#include "convnet/graph/graph.h"

namespace convnet {

enum class RunKind {
  forward,
  backward,
  update  ///< the updates that have become due are made; comes at the end of a pass, and has no node
};

/// An entry of a schedule. Run i of a layer with K replicas is on the microbatches i * K to (i + 1) * K - 1.
struct ScheduledRun {
  RunKind kind = RunKind::forward;
  NodeId node;
  int run = 0;
  int pass = 0;
  bool operator==(const ScheduledRun&) const = default;
};

/// The runs of all layers but those of data, which are loaded where they are first read. The runs of a layer
/// come in their order, and each after the runs that it reads from.
using RunSchedule = std::vector<ScheduledRun>;

/// Returns the schedule of a minibatch: that of a pipeline if the net is one, else that in passes. A net is a
/// pipeline if it has several stages (pipeline_stages()), several microbatches for each replica, and no
/// weights that are updated several times in a minibatch.
RunSchedule make_schedule(const Graph& graph);

/// Returns the schedule in passes. A pass consists of as many rounds as a replica has microbatches; in each
/// round all layers run forward, and then all run backward. Let `fewest` be the smallest number of replicas
/// of any layer. A layer with K replicas runs once in every K / fewest rounds: forward in the first of them,
/// backward in the last. A layer whose users have more replicas runs forward as early as they need its
/// output, and backward once all gradients from them have arrived.
RunSchedule schedule_passes(const Graph& graph);

/// Returns the schedule of a pipeline, one forward one backward (1F1B): the stages work on different
/// microbatches at the same time, and once a stage keeps the outputs of as many microbatches as it may, each
/// forward run waits for a backward run. Stage s of S may keep 2 * (S - s) - 1: one for each of the stages
/// from s on, and one for each copy between them ("eager 1F1B"), so that a stage does not wait for copies
/// that take no longer than its work. `stages` is that of pipeline_stages().
RunSchedule schedule_pipeline(const Graph& graph, const Table<NodeId, int>& stages);

/// Returns the stage of each layer. The layers of a stage are those on a set of devices; layers that have a
/// device in common are in one stage, and so are layers on devices that read from each other in a circle. A
/// layer of stage s reads layers of stages up to s.
Table<NodeId, int> pipeline_stages(const Graph& graph);

/// Returns the number of stages of the pipeline that make_schedule() schedules; 1 if the net is none.
int pipeline_depth(const Graph& graph);

}  // namespace convnet
