#include "convnet/plan/gradient_sums.h"

#include <algorithm>
#include <utility>

namespace convnet {

GradientSums::GradientSums(const Graph& graph, TaskEmitter& emitter)
    : emitter_(emitter),
      gradients_(graph.nodes.size(), std::vector<Gradient>(static_cast<std::size_t>(graph.microbatches))) {}

bool GradientSums::is_shared(Value gradient, int microbatch, NodeId last, NodeId except) const {
  for (const NodeId id : gradients_.ids()) {
    if (id > last) break;
    if (id == except) continue;
    const Gradient& g = at(id, microbatch);
    const auto is_it = [&](Value v) { return v.id == gradient.id; };
    if (is_it(g.here) || std::any_of(g.remote.begin(), g.remote.end(), is_it)) return true;
  }
  return false;
}

void GradientSums::contribute(NodeId node, int microbatch, DeviceId home, Value written) {
  Gradient& g = at(node, microbatch);
  if (emitter_.tensor(written).device != home) {
    g.remote.push_back(written);
  } else if (!g.here.exists()) {
    g.here = written;
  } else {
    pending_.push_back({written, &g.here, node});
  }
}

void GradientSums::contribute_unchanged(NodeId node, DeviceId home, Value own, TaskPlace place, NodeId last) {
  Gradient& g = at(node, place.microbatch);
  if (emitter_.tensor(own).device != home) {
    g.remote.push_back(own);
  } else if (!g.here.exists()) {
    g.here = own;
  } else {
    add(own, g.here, node, place, last);
  }
}

void GradientSums::contribute_to_weights(Value written, Value& sum) {
  if (!sum.exists()) {
    sum = written;
  } else {
    pending_.push_back({written, &sum, NodeId()});
  }
}

void GradientSums::add_contributions(TaskPlace place, NodeId last) {
  for (const Pending& sum : std::exchange(pending_, {})) {
    if (sum.from.id != sum.into->id) add(sum.from, *sum.into, sum.node, place, last);
  }
}

/// sum += part, where `sum` is the gradient of node `of`, or of weights if `of` is none. If `sum` is also the
/// gradient of another node, the result goes to a new tensor. Sums of gradients of weights are f32.
void GradientSums::add(Value part, Value& sum, NodeId of, TaskPlace place, NodeId last) {
  place.device = emitter_.tensor(sum).device;
  if (!of.exists()) emitter_.widen(sum, place);
  const Dims dims = emitter_.tensor(sum).dims;
  if (part.id != sum.id && !(of.exists() && is_shared(sum, place.microbatch, last, of))) {
    emitter_.emit(place, TaskKind::accumulate, Accumulate{dims}, {part, sum});
    return;
  }
  const Value total = emitter_.add_like(sum, emitter_.tensor(sum).name, BufferKind::gradient, place.device);
  emitter_.emit(place, TaskKind::accumulate, EltwiseSum{dims, {1, 1}}, {sum, part, total});
  sum = total;
}

void GradientSums::gather(const Node& node, Value output, TaskPlace place) {
  Gradient& g = at(node.id, place.microbatch);
  const std::vector<Value> remote = std::exchange(g.remote, {});
  if (remote.empty()) return;
  std::vector<Value> parts;
  if (g.here.exists()) parts.push_back(g.here);
  parts.insert(parts.end(), remote.begin(), remote.end());
  if (parts.size() == 1) {
    g.here = parts[0];
    return;
  }
  g.here = emitter_.sum_across(parts, output, "d " + node.name, place);
}

}  // namespace convnet
