#include "convnet/graph/schedule.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "convnet/base/disjoint_sets.h"

namespace convnet {
namespace {

/// The rounds in which a layer runs, by run.
struct Rounds {
  std::vector<int> forward, backward;
};

Table<NodeId, Rounds> rounds_of_runs(const Graph& graph) {
  Table<NodeId, Rounds> rounds(graph.nodes.size());
  const int fewest = graph.microbatches / (graph.passes * graph.per_replica);
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const int replicas = node->replicas();
    for (int i = 0; i < graph.microbatches / replicas; ++i) {
      int forward = i * replicas / fewest, backward = (i + 1) * replicas / fewest - 1;
      for (const NodeId user : node->users) {
        for (int m = i * replicas; m < (i + 1) * replicas; ++m) {
          const auto run = static_cast<std::size_t>(m / graph.nodes[user].replicas());
          forward = std::min(forward, rounds[user].forward[run]);
          backward = std::max(backward, rounds[user].backward[run]);
        }
      }
      rounds[node->id].forward.push_back(forward);
      rounds[node->id].backward.push_back(backward);
    }
  }
  return rounds;
}

bool is_scheduled(const Node& node) { return node.role != LayerRole::data; }

void append(RunSchedule& to, const RunSchedule& more) { to.insert(to.end(), more.begin(), more.end()); }

using Edges = std::set<std::pair<std::size_t, std::size_t>>;

/// Returns the sets of devices, each under the number of one of its devices, that read from each other.
Edges edges_between(const Graph& graph, DisjointSets& devices) {
  Edges edges;
  for (const Node& node : graph.nodes) {
    for (const NodeId input : node.inputs) {
      if (!is_scheduled(graph.nodes[input])) continue;
      const std::size_t from = devices.find(graph.nodes[input].gpus[0].index());
      const std::size_t to = devices.find(node.gpus[0].index());
      if (from != to) edges.emplace(from, to);
    }
  }
  return edges;
}

/// Returns everything that can be reached from `start`; `start` itself only by a circle.
std::set<std::size_t> reached(const Edges& edges, std::size_t start) {
  std::set<std::size_t> all;
  std::vector<std::size_t> open = {start};
  while (!open.empty()) {
    const std::size_t from = open.back();
    open.pop_back();
    for (auto edge = edges.lower_bound({from, 0}); edge != edges.end() && edge->first == from; ++edge) {
      if (all.insert(edge->second).second) open.push_back(edge->second);
    }
  }
  return all;
}

/// Whether all weights are updated at most once in a minibatch.
bool updates_once(const Graph& graph) {
  return std::all_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.layer->weights.empty() || node.update_period >= graph.passes;
  });
}

int depth_of(const Table<NodeId, int>& stages) { return 1 + *std::max_element(stages.begin(), stages.end()); }

/// Returns the stages if the net is a pipeline.
std::optional<Table<NodeId, int>> stages_of_pipeline(const Graph& graph) {
  if (graph.per_replica == 1 || !updates_once(graph)) return std::nullopt;
  Table<NodeId, int> stages = pipeline_stages(graph);
  if (depth_of(stages) == 1) return std::nullopt;
  return stages;
}

}  // namespace

RunSchedule schedule_passes(const Graph& graph) {
  const Table<NodeId, Rounds> rounds = rounds_of_runs(graph);
  const int count = graph.passes * graph.per_replica;
  std::vector<RunSchedule> forward(static_cast<std::size_t>(count)), backward(forward.size());
  const auto add = [&](std::vector<RunSchedule>& to, RunKind kind, NodeId node,
                       const std::vector<int>& runs) {
    for (std::size_t run = 0; run < runs.size(); ++run) {
      to[static_cast<std::size_t>(runs[run])].push_back(
          {kind, node, static_cast<int>(run), runs[run] / graph.per_replica});
    }
  };
  for (const Node& node : graph.nodes) {
    if (is_scheduled(node)) add(forward, RunKind::forward, node.id, rounds[node.id].forward);
  }
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (is_scheduled(*node)) add(backward, RunKind::backward, node->id, rounds[node->id].backward);
  }
  RunSchedule all;
  for (std::size_t round = 0; round < forward.size(); ++round) {
    append(all, forward[round]);
    append(all, backward[round]);
    const int next = static_cast<int>(round) + 1;
    if (next % graph.per_replica == 0) all.push_back({RunKind::update, {}, 0, next / graph.per_replica - 1});
  }
  return all;
}

RunSchedule schedule_pipeline(const Graph& graph, const Table<NodeId, int>& stages) {
  const int depth = depth_of(stages), in_pass = graph.cut().in_pass();
  std::vector<std::vector<const Node*>> nodes(static_cast<std::size_t>(depth));  // by stage
  for (const Node& node : graph.nodes) {
    if (is_scheduled(node)) nodes[static_cast<std::size_t>(stages[node.id])].push_back(&node);
  }
  // A stage runs on as many microbatches at once as there are replicas at most, so that each layer has whole
  // runs.
  const int at_once = graph.microbatches / graph.per_replica;
  RunSchedule all;
  const auto add = [&](RunKind kind, const Node& node, int group) {
    const int runs = at_once / node.replicas();
    for (int run = group * runs; run < (group + 1) * runs; ++run)
      all.push_back({kind, node.id, run, run * node.replicas() / in_pass});
  };
  // The groups of microbatches that have run, by stage. Stage s waits for those next to it, whatever it
  // reads: so all costs of the minibatch come before the first update.
  std::vector<int> forward(nodes.size(), 0), backward(nodes.size(), 0);
  while (backward[0] < graph.per_replica) {
    for (std::size_t s = 0; s < nodes.size(); ++s) {
      const bool last = s + 1 == nodes.size();
      const int kept = forward[s] - backward[s], limit = 2 * (depth - static_cast<int>(s)) - 1;
      if (kept < limit && forward[s] < graph.per_replica) {
        if (s > 0 && forward[s - 1] == forward[s]) continue;
        for (const Node* node : nodes[s]) add(RunKind::forward, *node, forward[s]);
        ++forward[s];
      } else if (kept > 0 && (last || backward[s + 1] > backward[s])) {
        for (auto node = nodes[s].rbegin(); node != nodes[s].rend(); ++node)
          add(RunKind::backward, **node, backward[s]);
        ++backward[s];
      }
    }
  }
  all.push_back({RunKind::update, {}, 0, graph.passes - 1});
  return all;
}

Table<NodeId, int> pipeline_stages(const Graph& graph) {
  DisjointSets devices(static_cast<std::size_t>(graph.gpu_count()));
  for (const Node& node : graph.nodes) {
    for (const DeviceId gpu : node.gpus) {
      if (is_scheduled(node)) devices.join(gpu.index(), node.gpus[0].index());
    }
  }
  const Edges circles = edges_between(graph, devices);
  std::map<std::size_t, std::set<std::size_t>> all_reached;
  for (const auto& [from, to] : circles) all_reached.try_emplace(from, reached(circles, from));
  for (const auto& [from, all] : all_reached) {
    for (const std::size_t to : all) {
      if (const auto back = all_reached.find(to); back != all_reached.end() && back->second.contains(from))
        devices.join(from, to);
    }
  }
  const Edges edges = edges_between(graph, devices);
  std::vector<int> stages(static_cast<std::size_t>(graph.gpu_count()), 0);  // by set of devices
  for (bool grows = true; grows;) {
    grows = false;
    for (const auto& [from, to] : edges) {
      if (stages[to] > stages[from]) continue;
      stages[to] = stages[from] + 1;
      grows = true;
    }
  }
  Table<NodeId, int> of_nodes(graph.nodes.size(), 0);
  for (const Node& node : graph.nodes) {
    if (is_scheduled(node)) of_nodes[node.id] = stages[devices.find(node.gpus[0].index())];
  }
  return of_nodes;
}

int pipeline_depth(const Graph& graph) {
  const auto stages = stages_of_pipeline(graph);
  return stages ? depth_of(*stages) : 1;
}

RunSchedule make_schedule(const Graph& graph) {
  const auto stages = stages_of_pipeline(graph);
  return stages ? schedule_pipeline(graph, *stages) : schedule_passes(graph);
}

}  // namespace convnet
