#include "convnet/graph/placement.h"

#include <algorithm>
#include <map>

#include "convnet/config/text.h"

namespace convnet {
namespace {

SourceLocation period_where(const Node& node, const IniFile& parameters) {
  const IniSection* section = parameters.find(node.section);
  const IniValue* value = section == nullptr ? nullptr : section->find("updatePeriod");
  return value == nullptr ? node.where : value->where;
}

/// The beginning of a message about a layer's updatePeriod.
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
    find_passes(graph_);
    for (Node& node : graph_.nodes) {
      if (!node.layer->weights.empty()) find_period(node);
    }
  }

 private:
  Node& at(int id) { return graph_.nodes[static_cast<std::size_t>(id)]; }
  const Node& at(int id) const { return graph_.nodes[static_cast<std::size_t>(id)]; }

  void error(const Node& node, const std::string& message) {
    diagnostics_.error(node.gpu_where, "layer '" + node.section + "': " + message);
  }

  static std::string count_of(const Node& node) {
    return "'" + node.section + "' has " + std::to_string(node.replicas());
  }

  /// A data layer without gpu= goes where it is read: labels with the other inputs of their cost, images with
  /// their first user.
  void follow_users(Node& node) {
    if (node.users.empty() || node.placed) return;
    const Node& user = at(node.users[0]);
    const auto other = std::find_if(user.inputs.begin(), user.inputs.end(), [&](int input) {
      return at(input).role != LayerRole::data || at(input).placed;
    });
    node.gpus = other == user.inputs.end() ? user.gpus : at(*other).gpus;
  }

  /// All inputs of a layer have equal counts, and so have all users; of a layer and its input one divides the
  /// other.
  void check_neighbours(const Node& node) {
    for (int input : node.inputs) {
      if (at(input).replicas() == at(node.inputs[0]).replicas()) continue;
      return error(node, "its inputs must have equal numbers of replicas (devices in gpu=), but " +
                             count_of(at(node.inputs[0])) + " and " + count_of(at(input)) +
                             data_hint(at(node.inputs[0]), at(input)));
    }
    for (int user : node.users) {
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
                      " (devices in gpu=), must divide that of its input, but " + count_of(below));
  }

  /// Names the gpu= line that helps if one of two unequal inputs of a layer is data that follows another
  /// user; else
  /// "". All users of a layer must have equal counts: if they have not, the layer needs data of its own.
  std::string data_hint(const Node& a, const Node& b) const {
    const Node& data = a.role == LayerRole::data ? a : b;
    const Node& other = &data == &a ? b : a;
    if (data.role != LayerRole::data || data.placed || other.role == LayerRole::data) return "";
    const bool equal = std::all_of(data.users.begin(), data.users.end(), [&](int user) {
      return at(user).replicas() == at(data.users[0]).replicas();
    });
    const std::string line = "gpu=" + number_list(other.gpus);
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

  /// The layers whose gradients make up those of the weights that `node` owns.
  std::vector<const Node*> sharers(const Node& node) const {
    std::vector<const Node*> all;
    for (const Node& user : graph_.nodes) {
      const bool shares = std::any_of(user.owners.begin(), user.owners.end(),
                                      [&](const WeightOwner& owner) { return owner.node == node.id; });
      if (shares || user.id == node.id) all.push_back(&user);
    }
    return all;
  }

  /// The fewest passes after which the weights can be updated: all gradients of the microbatches so far are
  /// there, and none of the next ones has been forward.
  int natural_period(const Node& node) const {
    const std::vector<const Node*> users = sharers(node);
    const auto possible = [&](int period) {
      const int window = period * fewest_;
      if (window % node.replicas() != 0 || graph_.passes % period != 0) return false;
      for (int m = window; m < graph_.microbatches; m += window) {
        int last_backward = 0, first_forward = graph_.passes;
        for (const Node* user : users) {
          const auto run = [&](int microbatch) {
            return static_cast<std::size_t>(microbatch / user->replicas());
          };
          last_backward = std::max(last_backward, user->backward_pass[run(m - 1)]);
          first_forward = std::min(first_forward, user->forward_pass[run(m)]);
        }
        if (last_backward >= first_forward) return false;
      }
      return true;
    };
    int period = 1;
    while (!possible(period)) ++period;  // all passes are always possible
    return period;
  }

  void find_period(Node& node) {
    const int natural = natural_period(node), given = node.layer->update_period, passes = graph_.passes;
    // With --parallel data it counts the passes of the file's own placement: see keep_periods().
    node.update_period = options_.data_parallel ? natural : std::max(given, natural);
    if (given <= 1 || options_.data_parallel) return;
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
};

/// Rewrites a graph in which some nodes are divided.
class Expander {
 public:
  explicit Expander(Graph& graph) : old_(std::move(graph.nodes)), graph_(graph), parts_(old_.size()) {
    graph_.nodes.clear();
  }

  void run() {
    for (const Node& node : old_) {
      if (node.part_gpus.empty()) {
        add_whole(node);
      } else {
        add_parts(node);
      }
    }
    for (Node& node : graph_.nodes) {
      for (int& child : node.children) child = parts_[static_cast<std::size_t>(child)][0];
    }
  }

 private:
  bool divided(int old) const { return parts_[static_cast<std::size_t>(old)].size() > 1; }

  int add(Node node) {
    node.id = static_cast<int>(graph_.nodes.size());
    node.users.clear();
    node.part_gpus.clear();
    for (int input : node.inputs) graph_.nodes[static_cast<std::size_t>(input)].users.push_back(node.id);
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.back().id;
  }

  void add_whole(const Node& old) {
    Node node = old;
    for (int& input : node.inputs) input = whole(input, old.gpus);
    const int self = static_cast<int>(graph_.nodes.size());
    for (WeightOwner& owner : node.owners)
      owner.node = owner.node == old.id ? self : parts_[static_cast<std::size_t>(owner.node)][0];
    parts_[static_cast<std::size_t>(old.id)] = {add(std::move(node))};
  }

  /// The node that has all outputs of `old` for users on `gpus`: itself, or a gather of its parts.
  int whole(int old, const std::vector<int>& gpus) {
    const std::vector<int>& parts = parts_[static_cast<std::size_t>(old)];
    if (!divided(old)) return parts[0];
    const auto known = gathers_.find({old, gpus});
    if (known != gathers_.end()) return known->second;
    Node gather = old_[static_cast<std::size_t>(old)];
    gather.name = gather.whole = gather.name + "_gather/" + number_list(gpus);
    gather.type = "pass";
    gather.role = LayerRole::other;
    gather.implicit = true;
    gather.inputs = parts;
    gather.owners.clear();
    gather.gpus = gpus;
    std::vector<FeatureShape> shapes;
    for (int part : parts) shapes.push_back(graph_.nodes[static_cast<std::size_t>(part)].layer->output);
    gather.layer = make_concat_layer(shapes);
    const int id = add(std::move(gather));
    gathers_[{old, gpus}] = id;
    return id;
  }

  void add_parts(const Node& old) {
    const auto count = static_cast<std::int64_t>(old.part_gpus.size());
    const std::int64_t outputs = old.layer->output.size();
    std::vector<int> ids;
    std::string sizes;
    std::int64_t first = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      // The first parts take the remainder; a layer narrower than its devices has empty ones, left out.
      const std::int64_t size = outputs / count + (k < outputs % count ? 1 : 0);
      if (size == 0) break;
      const int gpu = old.part_gpus[static_cast<std::size_t>(k)];
      Node node = old;
      node.name = old.name + "/" + std::to_string(k);
      node.layer = old.layer->part(first, size);
      node.first_element = first;
      node.gpus = {gpu};
      for (int& input : node.inputs) {
        const std::vector<int>& parts = parts_[static_cast<std::size_t>(input)];
        input = old.layer->element_wise && divided(input) ? parts[static_cast<std::size_t>(k)]
                                                          : whole(input, {gpu});
      }
      const int self = static_cast<int>(graph_.nodes.size());
      for (WeightOwner& owner : node.owners)
        owner.node = owner.node == old.id
                         ? self
                         : parts_[static_cast<std::size_t>(owner.node)][static_cast<std::size_t>(k)];
      ids.push_back(add(std::move(node)));
      sizes += (sizes.empty() ? "" : "+") + std::to_string(size);
      first += size;
    }
    parts_[static_cast<std::size_t>(old.id)] = std::move(ids);
    if (old.layer->model_parallel)
      graph_.rewrites.push_back("'" + old.name + "' is divided over " + std::to_string(count) +
                                " devices: " + sizes + " outputs");
  }

  const std::vector<Node> old_;
  Graph& graph_;
  std::vector<std::vector<int>> parts_;  ///< by old id: the new ones
  std::map<std::pair<int, std::vector<int>>, int> gathers_;
};

}  // namespace

void find_placement(Graph& graph, const IniFile& parameters, const GraphOptions& options,
                    Diagnostics& diagnostics) {
  if (!graph.nodes.empty()) Placer(graph, parameters, options, diagnostics).run();
}

void keep_periods(Graph& graph, const Graph& written, const IniFile& parameters, Diagnostics& diagnostics) {
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
                              " passes of a minibatch that the gpu= lines ask for; with --parallel data a "
                              "minibatch is one pass and makes one update");
    } else {
      node.update_period = period / passes;
    }
  }
}

void expand_parts(Graph& graph) {
  const bool any =
      std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return !n.part_gpus.empty(); });
  if (any) Expander(graph).run();
}

void find_passes(Graph& graph) {
  const auto at = [&](int id) -> const Node& { return graph.nodes[static_cast<std::size_t>(id)]; };
  const int fewest = graph.microbatches / graph.passes;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    node->forward_pass.clear();
    node->backward_pass.clear();
    for (int i = 0; i < graph.microbatches / node->replicas(); ++i) {
      int forward = i * node->replicas() / fewest, backward = (i + 1) * node->replicas() / fewest - 1;
      for (int user : node->users) {
        for (int m = i * node->replicas(); m < (i + 1) * node->replicas(); ++m) {
          const auto run = static_cast<std::size_t>(m / at(user).replicas());
          forward = std::min(forward, at(user).forward_pass[run]);
          backward = std::max(backward, at(user).backward_pass[run]);
        }
      }
      node->forward_pass.push_back(forward);
      node->backward_pass.push_back(backward);
    }
  }
}

}  // namespace convnet
