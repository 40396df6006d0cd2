#include "convnet/plan/net_buffers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/plan/weight_layouts.h"

namespace convnet {
namespace {

class NetBuffersBuilder {
 public:
  NetBuffersBuilder(const Graph& graph, const Target& target, const PlanOptions& options)
      : graph_(graph), target_(target), options_(options) {}

  NetBuffers build(const std::vector<MatrixInfo>& matrices) {
    if (options_.clips) check_clipping();
    std::int64_t slot = 1;  // slot 0 says whether a cost was not finite
    for (const Node& node : graph_.nodes) {
      add_weights_of(node);
      if (node.is_cost()) {
        made_.cost_slots.push_back({node.id, slot, node.layer->facts.cost->values});
        slot += node.layer->facts.cost->values;
      }
    }
    const IdRange<DeviceId> devices(graph_.gpu_count());
    if (options_.mean) {
      Dims dims = matrices[0].dims;
      dims.insert(dims.begin(), 1);
      for (const DeviceId device : devices)
        made_.mean.push_back(add("mean", BufferKind::mean, device, {dims, DataType::f32, nullptr}));
    }
    const std::int64_t block = step_block_bytes(rates_);
    for (const DeviceId device : devices) {
      made_.step.push_back(add("step", BufferKind::step, device, {{block}, DataType::u8, nullptr}));
      made_.costs.push_back(add("costs", BufferKind::costs, device, {{slot}, DataType::f64, nullptr}));
    }
    Table<DeviceId, std::int64_t> end(made_.step.size(), 0);
    for (Buffer& b : made_.buffers) b.offset = std::exchange(end[b.device], end[b.device] + aligned(b.bytes));
    return std::move(made_);
  }

 private:
  /// The norm of the whole gradient is known only where all weights are updated at the same time.
  void check_clipping() const {
    const Node* first = nullptr;
    for (const Node& node : graph_.nodes) {
      const auto& weights = node.layer->weights;
      if (std::none_of(weights.begin(), weights.end(), [](const WeightSpec& w) { return w.learned(); }))
        continue;
      if (first == nullptr) first = &node;
      if (node.update_period >= graph_.passes && node.update_period == first->update_period) continue;
      const auto period_of = [](const Node& layer) {
        const int given = layer.layer->update_period;  // counts the passes that the gpu= lines ask for
        return given == 0 ? "no updatePeriod" : fmt::format("updatePeriod={}", given);
      };
      throw InputError(fmt::format(
          "{}: layer '{}' ({}) and layer '{}' ({}) are not updated at the end of the same minibatches, but "
          "--clip-norm needs the gradient of all weights at once; give all layers the same updatePeriod in "
          "the parameter file, a multiple of the passes of a minibatch that the gpu= lines ask for",
          node.where.str(), node.section, period_of(node), first->section, period_of(*first)));
    }
  }

  BufferId add(std::string name, BufferKind kind, DeviceId device, TensorDesc desc) {
    return add_buffer(made_.buffers, std::move(name), kind, device, std::move(desc));
  }

  void add_weights_of(const Node& node) {
    const std::vector<WeightLayout> layouts =
        choose_weight_layouts(node, graph_.images_of(options_.images, 0), options_.learns, target_);
    made_.weights_of.emplace_back();
    for (std::size_t i = 0; i < node.layer->weights.size(); ++i) {
      const WeightOwner& owner = node.owners[i];
      if (owner != WeightOwner{node.id, i}) {
        // The owner may be another matrix of this layer.
        made_.weights_of.back().push_back(made_.weights_of[owner.node][owner.index]);
        continue;
      }
      made_.weights_of.back().push_back(made_.weights.size());
      made_.weights.push_back(add_weights(node, i, layouts[i]));
    }
  }

  /// Each replica has all weights. The other buffers of an update are cut into a shard for each replica, or
  /// for fewer replicas if shards would be too small. They have one shard if cutting does not pay, or would
  /// cut the rows of a constraint. Replicas take turns in owning such shards.
  WeightBuffers add_weights(const Node& node, std::size_t index, const WeightLayout& form) {
    constexpr std::int64_t kWorthCutting = 16384;  // floats
    constexpr std::int64_t kLeastShard = 4096;     // floats: links take longer to begin than to fetch fewer
    const WeightSpec& spec = node.layer->weights[index];
    const TensorDesc& layout = form.weights;
    WeightBuffers w;
    w.node = node.id;
    w.index = index;
    w.name = node.layer_name + "." + spec.name;
    if (spec.learning.rule() == UpdateRule::adamw) w.rates = std::max(1, graph_.passes / node.update_period);
    w.rate_index = std::exchange(rates_, rates_ + w.rates);
    const auto add_replica = [&](const std::string& name, BufferKind kind, DeviceId gpu,
                                 const TensorDesc& desc) {
      const BufferId id = add(name, kind, gpu, desc);
      made_.buffers[id].node = node.id;
      made_.buffers[id].index = index;
      return id;
    };
    for (const DeviceId gpu : node.gpus)
      w.weights.push_back(add_replica(w.name, BufferKind::weights, gpu, layout));
    // A constraint changes weights after their update, so a copy that the update rounded would be wrong.
    if (form.rounded && !(options_.learns && spec.constraint.acts())) {
      for (const DeviceId gpu : node.gpus)
        w.rounded.push_back(add_replica(w.name + " (bf16)", BufferKind::rounded, gpu, *form.rounded));
    }
    if (!options_.learns) return w;
    if (spec.state) {
      AverageShard whole;
      whole.count = layout.bytes() / size_of(DataType::f32);
      add_average(w, node, whole);
      return w;
    }
    if (!spec.learned()) return w;  // frozen: it is the same after every step
    const bool cut = element_count(spec.dims) >= kWorthCutting && !spec.constraint.acts();
    const int shards = cut ? static_cast<int>(std::min<std::int64_t>(node.replicas(),
                                                                     element_count(spec.dims) / kLeastShard))
                           : 1;
    int first = 0;
    if (!cut) first = static_cast<int>(made_.weights.size());
    if (cut && shards < node.replicas()) first = std::exchange(next_owner_, next_owner_ + shards);
    for (const SharedRange& range : shard_ranges(node, layout.bytes(), first, shards)) {
      UpdateShard shard;
      shard.share = range.share;
      shard.begin = range.begin / size_of(DataType::f32);
      shard.count = range.bytes / size_of(DataType::f32);
      const DeviceId device = node.device(shard.owner());
      const TensorDesc floats{{shard.count}, DataType::f32, nullptr};
      shard.increment = add("inc " + w.name, BufferKind::increment, device, floats);
      if (node.update_period > graph_.passes)
        shard.accumulator = add("sum d " + w.name, BufferKind::accumulator, device, floats);
      if (keeps_squares(spec.learning.rule()))
        shard.squares = add("squares " + w.name, BufferKind::squares, device, floats);
      w.shards.push_back(shard);
      add_average(w, node, {shard.owner(), shard.begin, shard.count, BufferId()});
    }
    return w;
  }

  void add_average(WeightBuffers& w, const Node& node, AverageShard shard) {
    if (!options_.averages) return;
    shard.average = add("average " + w.name, BufferKind::average, node.device(shard.replica),
                        {{shard.count}, DataType::f32, nullptr});
    w.averages.push_back(shard);
  }

  /// Cuts so many bytes into `shards` shards, whose owners are the replicas from the `first` in turn. Shards
  /// that a replica sums or fetches together are neighbours. A shard between hosts of different sizes may be
  /// several ranges.
  std::vector<SharedRange> shard_ranges(const Node& node, std::int64_t bytes, int first, int shards) const {
    constexpr std::int64_t kAligned = 64;  // bytes of a cache line
    const Exchange exchange(options_.topology, node.gpus);
    const std::vector<int> turns = exchange.in_turns();
    std::vector<int> owners;
    for (int s = 0; s < shards; ++s)
      owners.push_back(turns[static_cast<std::size_t>(first + s) % turns.size()]);
    if (shards == 1) return {{exchange.whole(owners[0]), 0, bytes}};
    if (exchange.stages() > 1)
      std::stable_sort(owners.begin(), owners.end(),
                       [&](int a, int b) { return exchange.shards_before(a, b); });
    return shared_ranges(exchange, owners, bytes, kAligned, true);
  }

  const Graph& graph_;
  const Target& target_;
  const PlanOptions& options_;
  NetBuffers made_;
  std::int64_t rates_ = 0;  ///< entries of the table of rates
  int next_owner_ = 0;      ///< the replica whose turn it is to update a shard
};

}  // namespace

NetBuffers make_net_buffers(const Graph& graph, const std::vector<MatrixInfo>& matrices, const Target& target,
                            const PlanOptions& options) {
  return NetBuffersBuilder(graph, target, options).build(matrices);
}

}  // namespace convnet
