#include "convnet/net/outputs.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "convnet/base/error.h"

namespace convnet {
namespace {

/// The nodes called `name`: a layer of the file or one that its section put above it, or the parts of either.
std::vector<NodeId> nodes_called(const Graph& graph, const std::string& name) {
  std::vector<NodeId> nodes;
  for (const Node& node : graph.nodes) {
    if (node.layer_name == name && !node.division.gather) nodes.push_back(node.id);
  }
  return nodes;
}

/// The nodes that hold what users of the file's `layer` read: the layer with the dropout and the neuron that
/// its section put above it, or the parts of that.
std::vector<NodeId> nodes_of_section(const Graph& graph, const std::string& layer) {
  std::string top;
  for (const Node& node : graph.nodes) {
    if (node.section == layer && !node.division.gather) top = node.layer_name;
  }
  return nodes_called(graph, top);
}

/// The nodes that `layer` stands for: a layer of the file; one that its section put above it; or "x_neuron",
/// as cuda-convnet2 calls the neuron of x even where it is ident, which makes no node here.
std::vector<NodeId> nodes_of(const Graph& graph, const std::string& layer) {
  constexpr std::string_view suffix = "_neuron";
  std::vector<NodeId> nodes = nodes_of_section(graph, layer);
  if (nodes.empty()) nodes = nodes_called(graph, layer);
  if (nodes.empty() && layer.ends_with(suffix))
    nodes = nodes_of_section(graph, layer.substr(0, layer.size() - suffix.size()));
  if (!nodes.empty()) return nodes;
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    if (!node.is_cost() && node.layer->label_classes() == 0 &&
        (names.empty() || names.back() != node.section))
      names.push_back(node.section);
  }
  throw InputError("the net has no layer '" + layer + "'" +
                   did_you_mean(layer, names, "its layers are " + join(names)));
}

bool applies_neuron_above(const Node& node) {
  return node.fused && node.layer->facts.fuses_neuron != FusesNeuron::no;
}

struct Place {
  TaskId task;
  BufferId buffer;
};

/// Finds where a node's output for a microbatch is made. The last operation of a layer writes its output; a
/// layer without one passes its input on.
Place find_output(const Plan& plan, const Graph& graph, NodeId id, int microbatch) {
  const Node& node = graph.nodes[id];
  Place last;
  for (const TaskId t : plan.tasks.ids()) {
    const Task& task = plan.tasks[t];
    if (task.node != id || task.microbatch != microbatch) continue;
    // These tasks bring the inputs of the layer to its device and layout.
    if (std::holds_alternative<Reorder>(*task.op) || is_message(task.kind)) continue;
    for (const BufferUse& use : task.uses) {
      const Buffer& b = plan.buffers[use.buffer];
      if (use.access == Access::read || b.kind != BufferKind::activation) continue;
      last = {t, use.buffer};
      break;
    }
  }
  if (last.task.exists()) return last;
  if (node.inputs.empty()) throw std::logic_error("outputs: '" + node.name + "' is not in the plan");
  return find_output(plan, graph, node.inputs[0], microbatch);
}

}  // namespace

std::vector<NodeId> nodes_with_features(const Graph& graph, const std::string& layer) {
  std::vector<NodeId> nodes = nodes_of(graph, layer);
  const Node& first = graph.nodes[nodes[0]];
  if (first.is_cost() || first.layer->label_classes() > 0)
    throw InputError("layer '" + layer + "' is of type '" + first.type + "'" +
                     (first.is_cost() ? "" : " and holds labels") + ": it has no features");
  return nodes;
}

void keep_output(Graph& graph, const std::string& layer) {
  for (const NodeId id : nodes_with_features(graph, layer)) {
    Node& node = graph.nodes[id];
    if (!applies_neuron_above(node)) continue;
    node.fused = false;
    graph.nodes[node.users[0]].fused = false;
  }
}

OutputReader::OutputReader(const Net& net, const std::vector<std::string>& layers) : net_(net) {
  const Graph& graph = net.graph();
  for (const std::string& layer : layers) {
    Wanted wanted;
    wanted.nodes = nodes_with_features(graph, layer);
    const Node& first = graph.nodes[wanted.nodes[0]];
    if (applies_neuron_above(first))
      throw std::logic_error("outputs: '" + layer +
                             "' applies the neuron above it; keep_output() comes first");
    wanted.shape = whole_output(first).shape;
    layers_.push_back(std::move(wanted));
  }
}

OutputReader::Pieces OutputReader::find_pieces(const Plan& plan) const {
  if (plan.phase != Phase::test) throw std::logic_error("outputs: they are read in tests only");
  const Graph& graph = net_.graph();
  Pieces pieces;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    for (const NodeId id : layers_[i].nodes) {
      const Node& node = graph.nodes[id];
      for (int m = 0; m < graph.microbatches; ++m) {
        Piece piece;
        piece.layer = i;
        piece.images = graph.images_of(plan.images, m, plan.views);
        if (piece.images == 0) continue;
        piece.first_image = graph.first_image(plan.images, m, plan.views);
        piece.elements = node.layer->output.size();
        piece.begin = whole_output(node).begin;
        const Place place = find_output(plan, graph, id, m);
        piece.buffer = place.buffer;
        const Buffer& b = plan.buffers[place.buffer];
        const bool numbers = b.desc.type == DataType::f32 || b.desc.type == DataType::bf16;
        if (!numbers || element_count(b.desc.dims) != piece.images * piece.elements)
          throw std::logic_error("outputs: '" + node.name + "' is not what its last operation makes");
        pieces.emplace(place.task, piece);
      }
    }
  }
  return pieces;
}

std::function<void(TaskId)> OutputReader::reading(const Plan& plan) {
  auto found = known_.find(&plan);
  if (found == known_.end()) found = known_.emplace(&plan, find_pieces(plan)).first;
  for (Wanted& layer : layers_)
    layer.values.assign(static_cast<std::size_t>(plan.images * layer.shape.size()), 0.0F);
  return [this, &plan, &pieces = found->second](TaskId task) {
    const auto [begin, end] = pieces.equal_range(task);
    for (auto piece = begin; piece != end; ++piece) read(plan, piece->second);
  };
}

/// Every process has its own pieces, and zeros elsewhere.
void OutputReader::collect() {
  Processes* processes = net_.executor().processes();
  if (processes == nullptr) return;
  for (Wanted& layer : layers_) {
    const std::size_t bytes = layer.values.size() * sizeof(float);
    const std::vector<std::string> all =
        processes->exchange({reinterpret_cast<const char*>(layer.values.data()), bytes});
    for (std::size_t i = 0; i < layer.values.size(); ++i) {
      std::uint32_t bits = 0;
      for (const std::string& part : all) {
        std::uint32_t word = 0;
        std::memcpy(&word, part.data() + i * sizeof word, sizeof word);
        bits |= word;
      }
      layer.values[i] = std::bit_cast<float>(bits);
    }
  }
}

/// Pieces do not overlap, so several devices may read theirs at once.
void OutputReader::read(const Plan& plan, const Piece& piece) {
  const std::vector<float> part = net_.executor().read(&plan, piece.buffer);
  Wanted& layer = layers_[piece.layer];
  const std::int64_t features = layer.shape.size();
  for (std::int64_t n = 0; n < piece.images; ++n) {
    std::copy_n(part.begin() + n * piece.elements, piece.elements,
                layer.values.begin() + (piece.first_image + n) * features + piece.begin);
  }
}

std::vector<float> mean_of_views(const std::vector<float>& values, std::int64_t features,
                                 std::int64_t views) {
  if (views == 1) return values;
  const auto width = static_cast<std::size_t>(features), count = static_cast<std::size_t>(views);
  std::vector<float> means(values.size() / count);
  std::vector<double> sums(width);
  for (std::size_t at = 0; at < means.size(); at += width) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::size_t v = 0; v < count; ++v) {
      for (std::size_t f = 0; f < width; ++f)
        sums[f] += static_cast<double>(values[at * count + v * width + f]);
    }
    for (std::size_t f = 0; f < width; ++f)
      means[at + f] = static_cast<float>(sums[f] / static_cast<double>(views));
  }
  return means;
}

}  // namespace convnet
