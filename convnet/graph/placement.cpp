#include "convnet/graph/placement.h"

#include <algorithm>
#include <limits>
#include <map>

#include "convnet/config/text.h"
#include "convnet/graph/schedule.h"

namespace convnet {
namespace {

SourceLocation period_where(const Node& node, const IniFile& parameters) {
  const IniSection* section = parameters.find_or_default(node.section);
  const IniValue* value = section == nullptr ? nullptr : section->find("updatePeriod");
  return value == nullptr ? node.where : value->where;
}

/// Returns the beginning of a message about a layer's updatePeriod.
std::string written_period(const Node& node) {
  return "layer '" + node.section + "': updatePeriod=" + std::to_string(node.layer->update_period);
}

/// Whether updates after every `period` passes fall on the same passes of every minibatch, or on whole
/// minibatches.
bool fits(int period, int passes) { return period < passes ? passes % period == 0 : period % passes == 0; }

class Placer {
 public:
  Placer(Graph& graph, const IniFile& parameters, const GraphOptions& options, Diagnostics& diagnostics)
      : graph_(graph), parameters_(parameters), options_(options), diagnostics_(diagnostics) {}

  void run() {
    const std::size_t before = diagnostics_.error_count();
    for (Node& node : graph_.nodes) {
      if (node.role == LayerRole::data) follow_users(node);
    }
    for (const Node& node : graph_.nodes) check_neighbours(node);
    if (diagnostics_.error_count() > before) return;
    const std::vector<int> counts = graph_.replica_counts();
    fewest_ = counts.front();
    graph_.microbatches = counts.back();
    for (const Node& node : graph_.nodes) check_count(node);
    if (diagnostics_.error_count() > before) return;
    graph_.passes = graph_.microbatches / fewest_;
    find_positions();
    for (Node& node : graph_.nodes) {
      if (!node.layer->weights.empty()) find_period(node);
    }
    graph_.per_replica = options_.microbatches;
    graph_.microbatches *= graph_.per_replica;
  }

 private:
  Node& at(NodeId id) { return graph_.nodes[id]; }
  const Node& at(NodeId id) const { return graph_.nodes[id]; }

  void error(const Node& node, const std::string& message) {
    diagnostics_.error(node.gpu_where, "layer '" + node.section + "': " + message);
  }

  static std::string count_of(const Node& node) {
    return "'" + node.section + "' has " + std::to_string(node.replicas());
  }

  /// Whether a node is data without gpu=, or the dropout of such data.
  bool follows(NodeId id) const {
    while (at(id).implicit) id = at(id).inputs[0];
    return at(id).role == LayerRole::data && !at(id).placed;
  }

  /// Places a data layer without gpu=, and its dropout, with its user: labels with the other inputs of their
  /// cost, images with their first user.
  void follow_users(Node& node) {
    if (!follows(node.id)) return;
    std::vector<NodeId> data = {node.id};
    const auto users = [&]() -> const std::vector<NodeId>& { return at(data.back()).users; };
    while (!users().empty() && at(users()[0]).implicit) data.push_back(users()[0]);
    if (users().empty()) return;
    const Node& user = at(users()[0]);
    const auto other =
        std::find_if(user.inputs.begin(), user.inputs.end(), [&](NodeId input) { return !follows(input); });
    const std::vector<DeviceId> gpus = other == user.inputs.end() ? user.gpus : at(*other).gpus;
    for (const NodeId id : data) at(id).gpus = gpus;
  }

  /// Checks that all inputs of a layer have equal numbers of replicas, that all its users have, and that the
  /// numbers of a layer and its input divide each other.
  void check_neighbours(const Node& node) {
    for (const NodeId input : node.inputs) {
      if (at(input).replicas() == at(node.inputs[0]).replicas()) continue;
      return error(node, "its inputs must have equal numbers of replicas (devices in gpu=), but " +
                             count_of(at(node.inputs[0])) + " and " + count_of(at(input)) +
                             data_hint(at(node.inputs[0]), at(input)));
    }
    for (const NodeId user : node.users) {
      if (at(user).replicas() == at(node.users[0]).replicas()) continue;
      return error(at(user), "all users of '" + node.section +
                                 "' must have equal numbers of replicas (devices in gpu=), but " +
                                 count_of(at(node.users[0])) + " and " + count_of(at(user)));
    }
    if (node.inputs.empty()) return;
    const Node& below = at(node.inputs[0]);
    const int most = std::max(below.replicas(), node.replicas());
    if (most % std::min(below.replicas(), node.replicas()) != 0)
      error(node, "its number of replicas, " + std::to_string(node.replicas()) +
                      " (devices in gpu=), must divide that of its input or be a multiple of it, but " +
                      count_of(below));
  }

  /// Returns a hint at the gpu= line that helps if one of two unequal inputs of a layer is data that follows
  /// another user; else "". All users of a layer must have equal counts: if they have not, the layer needs
  /// data of its own.
  std::string data_hint(const Node& a, const Node& b) const {
    const Node& data = a.role == LayerRole::data ? a : b;
    const Node& other = &data == &a ? b : a;
    if (data.role != LayerRole::data || data.placed || other.role == LayerRole::data) return "";
    const bool equal = std::all_of(data.users.begin(), data.users.end(), [&](NodeId user) {
      return at(user).replicas() == at(data.users[0]).replicas();
    });
    const std::string line = "gpu=" + number_list(numbers_of(other.gpus));
    return equal ? "; " + line + " on '" + data.section + "' gives it as many"
                 : "; a data layer of its own with " + line + " has as many";
  }

  void check_count(const Node& node) {
    if (node.replicas() % fewest_ == 0 && graph_.microbatches % node.replicas() == 0) return;
    if (node.implicit) return;
    error(node, "its number of replicas, " + std::to_string(node.replicas()) +
                    " (devices in gpu=), must be a multiple of the fewest that a layer has, " +
                    std::to_string(fewest_) + ", and divide the most, " +
                    std::to_string(graph_.microbatches));
  }

  /// Returns the layers whose gradients make up those of the weights that `node` owns.
  std::vector<const Node*> sharers(const Node& node) const {
    std::vector<const Node*> all;
    for (const Node& user : graph_.nodes) {
      const bool shares = std::any_of(user.owners.begin(), user.owners.end(),
                                      [&](const WeightOwner& owner) { return owner.node == node.id; });
      if (shares || user.id == node.id) all.push_back(&user);
    }
    return all;
  }

  /// Notes the places of all runs in the schedule.
  void find_positions() {
    positions_.resize(graph_.nodes.size());
    int position = 0;
    for (const ScheduledRun& run : schedule_passes(graph_)) {
      if (run.kind == RunKind::update) continue;
      Positions& of = positions_[run.node];
      (run.kind == RunKind::forward ? of.forward : of.backward).push_back(position++);
    }
  }

  /// Returns the fewest passes after which the weights can be updated: all gradients of the microbatches so
  /// far are there, and no layer with these weights has run forward for the next ones.
  int natural_period(const Node& node) const {
    const std::vector<const Node*> users = sharers(node);
    const auto possible = [&](int period) {
      const int window = period * fewest_;
      if (window % node.replicas() != 0 || graph_.passes % period != 0) return false;
      for (int m = window; m < graph_.microbatches; m += window) {
        int last_backward = 0, first_forward = std::numeric_limits<int>::max();
        for (const Node* user : users) {
          const auto run = [&](int microbatch) {
            return static_cast<std::size_t>(microbatch / user->replicas());
          };
          last_backward = std::max(last_backward, positions_[user->id].backward[run(m - 1)]);
          first_forward = std::min(first_forward, positions_[user->id].forward[run(m)]);
        }
        if (last_backward > first_forward) return false;
      }
      return true;
    };
    int period = 1;
    while (!possible(period)) ++period;  // all passes are always possible
    return period;
  }

  void find_period(Node& node) {
    const int natural = natural_period(node), given = node.layer->update_period, passes = graph_.passes;
    // Elsewhere than the file says, its period counts the passes that the file asks for: see keep_periods().
    node.update_period = options_.moved() ? passes : std::max(given, natural);
    if (given <= 1 || options_.moved()) return;
    if (node.update_period % natural != 0) {
      diagnostics_.error(period_where(node, parameters_), written_period(node) + " must be a multiple of " +
                                                              std::to_string(natural) + ": its gradients " +
                                                              "are complete once in so many passes");
    } else if (!fits(node.update_period, passes)) {
      diagnostics_.error(period_where(node, parameters_),
                         written_period(node) + " must divide the " + std::to_string(passes) +
                             " passes of a minibatch, or be a multiple of them");
    }
  }

  Graph& graph_;
  const IniFile& parameters_;
  const GraphOptions& options_;
  Diagnostics& diagnostics_;
  int fewest_ = 1;
  struct Positions {
    std::vector<int> forward, backward;  ///< by run: its place in the schedule
  };
  Table<NodeId, Positions> positions_;
};

}  // namespace

void find_placement(Graph& graph, const IniFile& parameters, const GraphOptions& options,
                    Diagnostics& diagnostics) {
  if (!graph.nodes.empty()) Placer(graph, parameters, options, diagnostics).run();
}

void keep_periods(Graph& graph, const Graph& written, const IniFile& parameters, const GraphOptions& options,
                  Diagnostics& diagnostics) {
  const std::string how = options.data_parallel ? "data" : "auto";
  for (Node& node : graph.nodes) {
    const int given = node.layer->update_period, passes = written.passes;
    if (given == 0) continue;  // as often as possible, wherever the layers are
    const Node* own = written.find(node.name);
    const int period = std::max(given, own == nullptr ? 0 : own->update_period);
    if (!fits(period, passes)) {
      diagnostics.error(period_where(node, parameters),
                        written_period(node) + " must divide the " + std::to_string(passes) +
                            " passes of a minibatch that the gpu= lines ask for, or be a multiple of them");
    } else if (period < passes) {
      diagnostics.warning(period_where(node, parameters),
                          written_period(node) + " asks for " + std::to_string(passes / period) +
                              " updates in the " + std::to_string(passes) +
                              " passes of a minibatch that the gpu= lines ask for; with --parallel " + how +
                              " a minibatch makes one update");
    } else {
      node.update_period = period / passes * graph.passes;
    }
  }
}

}  // namespace convnet
