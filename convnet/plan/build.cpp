// From the graph to tasks: walks the layers forward and backward, and answers their Lowering calls with
// buffers, layouts, reorders and gradient sums.
#include <algorithm>
#include <stdexcept>

#include "convnet/plan/plan.h"
#include "kernels/philox.h"

namespace convnet {

/// One tensor of the plan under construction. It may exist in several layouts at once: `buffer` is the
/// primary one, `copies` are made by reorders and die when the tensor is written.
struct PlannedTensor {
  std::string name;
  BufferKind kind = BufferKind::activation;
  int device = 0;
  Dims dims;
  DataType type = DataType::f32;
  int buffer = -1;
  std::vector<int> copies;
  std::optional<TensorDesc> preferred;  ///< layout to suggest to the operation that first writes it
  bool pinned = false;                  ///< must not be overwritten in place
};

/// State of one replica of a node in one microbatch.
struct NodeState {
  Value output, gradient;
  bool recompute = false;  ///< the output is gone: backward makes it again where it reads it
  std::map<std::string, Value> kept;
};

/// A gradient that the operation being written down makes, to be added to what is there.
struct PendingSum {
  Value from;
  Value* into = nullptr;
  int node = -1;  ///< whose gradient it is; -1: of weights
};

class PlanBuilder : public Lowering {
 public:
  PlanBuilder(PlanSet& set, Phase phase, std::int64_t images)
      : set_(set), graph_(set.graph_), states_(set.graph_.nodes.size()) {
    plan_.phase = phase;
    plan_.images = images;
    plan_.buffers = set.persistent_;
    plan_.costs = set.cost_slots_;
    plan_.inputs.assign(set.matrices_.size(), -1);
    for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
      const Buffer& b = plan_.buffers[i];
      PlannedTensor t;
      t.name = b.name;
      t.kind = b.kind;
      t.device = b.device;
      t.dims = b.desc.dims;
      t.type = b.desc.type;
      // Weights get their layout, and with it their buffer, from the first operation that reads them.
      if (b.bytes > 0) t.buffer = static_cast<int>(i);
      tensors_.push_back(std::move(t));
    }
  }

  Plan build() {
    for (int device = 0; device < set_.devices(); ++device)
      emit(TaskKind::zero, FillZero{buffer(set_.costs_buffer(device)).desc},
           {Value{set_.costs_buffer(device)}});
    for (const Node& node : graph_.nodes) forward_node(node);
    if (training()) {
      for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
        if (node->gets_gradient) backward_node(*node);
      }
    }
    finish_persistent();
    number_versions();
    for (Task& task : plan_.tasks) {
      for (const BufferUse& use : task.uses) task.bytes += buffer(use.buffer).bytes;
    }
    return std::move(plan_);
  }

  // --- Lowering ---------------------------------------------------------------------------------
  std::int64_t images() const override { return plan_.images; }
  std::int64_t first_image() const override { return 0; }
  bool training() const override { return plan_.phase != Phase::test; }
  bool random() const override { return plan_.phase == Phase::train; }
  bool fused() const override { return node_->fused; }
  std::uint64_t random_key() const override { return philox_key(set_.options_.seed, node_->name); }

  Value input(std::size_t i) override { return output_of(node_->inputs[i]); }

  Value output() override {
    NodeState& s = state(node_->id);
    if (!s.output.exists()) set_output(in_place_output());
    return output_of(node_->id);
  }

  Value output_gradient() override { return state(node_->id).gradient; }

  bool wants_input_gradient(std::size_t i) const override {
    return graph_.nodes[static_cast<std::size_t>(node_->inputs[i])].gets_gradient;
  }

  Value input_gradient(std::size_t i) override {
    NodeState& in = state(node_->inputs[i]);
    // A cost has no output gradient to overwrite.
    const bool in_place = node_->layer->backward_in_place && i == 0 && output_gradient().exists() &&
                          !shared_gradient(output_gradient(), {node_->id});
    Value written;
    if (in_place) {
      written = output_gradient();
    } else {
      const PlannedTensor& activation = tensor(in.output);
      PlannedTensor t = like(activation, "d " + graph_.nodes[static_cast<std::size_t>(node_->inputs[i])].name,
                             BufferKind::gradient);
      t.preferred = desc_of(activation);
      written = add(std::move(t));
    }
    if (!in.gradient.exists()) {
      in.gradient = written;
    } else {
      pending_sums_.push_back({written, &in.gradient, node_->inputs[i]});
    }
    return written;
  }

  Value weights(std::size_t i) override { return Value{weight_buffers(i).weights}; }

  bool wants_weights_gradient(std::size_t i) const override { return graph_.learns(*node_, i); }

  /// Of several users of shared weights each writes its own, summed in the order of the backward pass.
  Value weights_gradient(std::size_t i) override {
    const WeightBuffers& w = weight_buffers(i);
    PlannedTensor t = like(tensor(Value{w.weights}), "d " + w.name, BufferKind::weights_gradient);
    t.preferred = desc_of(tensor(Value{w.weights}));
    const Value written = add(std::move(t));
    if (!wants_weights_gradient(i)) return written;  // dropped
    Value& gradient = weight_gradients_[w.weights];
    if (!gradient.exists()) {
      gradient = written;
    } else {
      pending_sums_.push_back({written, &gradient, -1});
    }
    return written;
  }

  Value kept(const std::string& name, const Dims& dims, DataType type) override {
    Value& value = state(node_->id).kept[name];
    if (!value.exists()) {
      PlannedTensor t;
      t.name = node_->name + "." + name;
      t.device = device();
      t.dims = dims;
      t.type = type;
      value = add(std::move(t));
    }
    return value;
  }

  Value source(std::size_t matrix) override {
    int& bound = plan_.inputs[matrix];
    if (bound < 0) {
      const MatrixInfo& info = set_.matrices_[matrix];
      Buffer b;
      b.name = info.name;
      b.kind = BufferKind::input;
      b.device = device();
      b.desc.dims = info.dims;
      b.desc.dims.insert(b.desc.dims.begin(), images());
      b.desc.type = info.type;
      b.bytes = b.desc.bytes();
      bound = add_buffer(std::move(b));
    }
    PlannedTensor t;
    const Buffer& b = buffer(bound);
    t.name = b.name;
    t.kind = b.kind;
    t.device = b.device;
    t.dims = b.desc.dims;
    t.type = b.desc.type;
    t.buffer = bound;
    t.pinned = true;
    return add(std::move(t));
  }

  Value mean_image() override { return node_->layer->data_matrix == 0 ? Value{set_.mean_} : Value{}; }
  Value step() override { return Value{set_.step_buffer(device())}; }
  Value costs() override { return Value{set_.costs_buffer(device())}; }
  std::int64_t cost_slot() const override {
    for (const CostSlot& c : set_.cost_slots_) {
      if (c.node == node_->id) return c.slot;
    }
    throw std::logic_error("plan: '" + node_->name + "' has no cost slot");
  }

  void run(const OpDesc& op, const std::vector<Value>& values) override {
    const bool load = std::holds_alternative<LoadImages>(op) || std::holds_alternative<LoadLabels>(op);
    emit(load                         ? TaskKind::load
         : backward_ && !recomputing_ ? TaskKind::backward
                                      : TaskKind::forward,
         op, values);
    // Sums follow at once, in the order of the users: always the same.
    for (const PendingSum& sum : std::exchange(pending_sums_, {})) {
      if (sum.from.id != sum.into->id) add_gradient(sum.from, *sum.into, sum.node);
    }
  }

  void forward_unchanged() override {
    set_output(input(0));
    if (!node_->fused) note("passes", input_node().name, "on without a copy");
  }

  void backward_unchanged(std::size_t i) override {
    NodeState& in = state(node_->inputs[i]);
    if (!in.gradient.exists()) {
      in.gradient = output_gradient();
    } else {
      add_gradient(output_gradient(), in.gradient, node_->inputs[i]);
    }
  }

 private:
  NodeState& state(int node) { return states_[static_cast<std::size_t>(node)]; }
  PlannedTensor& tensor(Value v) { return tensors_.at(static_cast<std::size_t>(v.id)); }
  Buffer& buffer(int id) { return plan_.buffers[static_cast<std::size_t>(id)]; }
  int device() const { return node_ == nullptr ? 0 : node_->gpus[0]; }

  /// Whether a node that has still to run backward, other than those of `except`, reads this gradient as its
  /// own: then nobody may write over it.
  bool shared_gradient(Value gradient, std::initializer_list<int> except) const {
    for (int id = 0; id <= node_->id; ++id) {
      if (std::find(except.begin(), except.end(), id) == except.end() &&
          states_[static_cast<std::size_t>(id)].gradient.id == gradient.id)
        return true;
    }
    return false;
  }

  /// sum += part, where `sum` is the gradient of node `of` (-1: of weights). What others still read is not
  /// written over: the sum then goes to `part` if that is nobody else's, or to a new tensor.
  void add_gradient(Value part, Value& sum, int of) {
    if (part.id != sum.id && !(of >= 0 && shared_gradient(sum, {of}))) {
      emit(TaskKind::accumulate, Accumulate{tensor(sum).dims}, {part, sum});
      return;
    }
    PlannedTensor t = like(tensor(sum), tensor(sum).name, BufferKind::gradient);
    t.preferred = desc_of(tensor(sum));
    const Value total = add(std::move(t));
    emit(TaskKind::accumulate, EltwiseSum{tensor(sum).dims, {1, 1}}, {sum, part, total});
    sum = total;
  }

  Value add(PlannedTensor t) {
    tensors_.push_back(std::move(t));
    return Value{static_cast<int>(tensors_.size()) - 1};
  }

  int add_buffer(Buffer b) {
    plan_.buffers.push_back(std::move(b));
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  PlannedTensor like(const PlannedTensor& other, std::string name, BufferKind kind) const {
    PlannedTensor t;
    t.name = std::move(name);
    t.kind = kind;
    t.device = other.device;
    t.dims = other.dims;
    t.type = other.type;
    return t;
  }

  std::optional<TensorDesc> desc_of(const PlannedTensor& t) {
    if (t.buffer < 0) return std::nullopt;
    return buffer(t.buffer).desc;
  }

  const WeightBuffers& weight_buffers(std::size_t i) const {
    return set_
        .weights_[static_cast<std::size_t>(set_.weights_of_.at(static_cast<std::size_t>(node_->id)).at(i))];
  }

  void forward_node(const Node& node) {
    node_ = &node;
    backward_ = false;
    node.layer->forward(*this);
    NodeState& s = state(node.id);
    s.recompute = set_.options_.conserve_memory && training() && node.layer->cheap && inputs_stay(node);
  }

  /// Whether backward can get at the inputs that `node` had: it has not written over them, or they can be
  /// made again.
  bool inputs_stay(const Node& node) {
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
      return state(input).recompute || state(input).output.id != state(node.id).output.id;
    });
  }

  Value output_of(int id) {
    NodeState& s = state(id);
    if (!backward_ || !s.recompute) return s.output;
    const Node* reader = std::exchange(node_, &graph_.nodes[static_cast<std::size_t>(id)]);
    const bool nested = std::exchange(recomputing_, true);
    const std::vector<PendingSum> pending = std::exchange(pending_sums_, {});
    s.recompute = false;
    s.output = {};
    node_->layer->recompute(*this);
    pending_sums_ = pending;
    recomputing_ = nested;
    node_ = reader;
    return s.output;
  }

  const Node& input_node() const { return graph_.nodes[static_cast<std::size_t>(node_->inputs[0])]; }

  /// A line of Plan::rewrites; the same again, when backward recomputes, says nothing new.
  void note(const char* does, const std::string& what, const char* how) {
    std::string line = "'" + node_->name + "' " + does + " '" + what + "' " + how;
    if (std::find(plan_.rewrites.begin(), plan_.rewrites.end(), line) == plan_.rewrites.end())
      plan_.rewrites.push_back(std::move(line));
  }

  void backward_node(const Node& node) {
    node_ = &node;
    backward_ = true;
    node.layer->backward(*this);
    for (int w : set_.last_used_[static_cast<std::size_t>(node.id)])
      update(set_.weights_[static_cast<std::size_t>(w)]);
  }

  void update(const WeightBuffers& w) {
    const auto gradient = weight_gradients_.find(w.weights);
    if (gradient == weight_gradients_.end()) return;
    // The increment lies in memory like its weights.
    if (PlannedTensor& inc = tensor(Value{w.increment}); inc.buffer < 0)
      decide_persistent(inc, w.increment, buffer(w.weights).desc);
    emit(TaskKind::update, Update{buffer(w.weights).desc, images(), w.rate_index},
         {Value{w.weights}, Value{w.increment}, gradient->second, step(), costs()});
    const WeightConstraint& c = graph_.weight({w.node, w.index}).constraint;
    if (c.acts() && random())
      emit(TaskKind::update,
           Constrain{buffer(w.weights).desc, c.outer, c.groups, c.inner, static_cast<float>(c.norm_min),
                     static_cast<float>(c.norm_max), static_cast<float>(c.ball), c.shrink},
           {Value{w.weights}});
  }

  /// The input's tensor if this layer may write over it, else a new one.
  Value in_place_output() {
    const Layer& layer = *node_->layer;
    if (graph_.in_place && layer.in_place && !tensor(input(0)).pinned &&
        !(training() && layer.backward_reads_input)) {
      note("writes over", input_node().name, "in place");
      return input(0);
    }
    PlannedTensor t;
    t.name = node_->name;
    t.device = device();
    t.dims = layer.output.dims(images());
    t.type = layer.label_classes > 0 ? DataType::s32 : DataType::f32;
    if (t.type == DataType::s32) t.dims = {images(), 1};
    return add(std::move(t));
  }

  void set_output(Value v) {
    state(node_->id).output = v;
    const bool read_in_backward = training() && node_->gets_gradient && node_->layer->backward_reads_output;
    if (read_in_backward || node_->users.size() > 1) tensor(v).pinned = true;
  }

  void decide_persistent(PlannedTensor& t, int id, const TensorDesc& desc) {
    Buffer& b = buffer(id);
    b.desc = desc;
    b.bytes = desc.bytes();
    t.buffer = id;
  }

  /// A tensor read as another shape of as many elements must lie dense.
  static TensorDesc dense(const PlannedTensor& t) { return {t.dims, t.type, nullptr}; }

  /// The buffer that holds `t` in layout `want`, reordering if there is none yet.
  int version(PlannedTensor& t, const TensorDesc& want) {
    if (t.buffer < 0) {
      if (t.kind != BufferKind::weights)
        throw std::logic_error("plan: '" + t.name + "' is read before it is written");
      decide_persistent(t, static_cast<int>(&t - tensors_.data()), want);
      return t.buffer;
    }
    if (same_layout(buffer(t.buffer).desc, want)) return t.buffer;
    for (int copy : t.copies) {
      if (same_layout(buffer(copy).desc, want)) return copy;
    }
    Buffer b;
    b.name = t.name + " (" + want.layout_name() + ")";
    b.kind = t.kind == BufferKind::weights ? BufferKind::workspace : t.kind;
    b.device = t.device;
    b.desc = want;
    b.desc.dims = t.dims;
    b.bytes = b.desc.bytes();
    const int from = t.buffer;
    const int copy = add_buffer(std::move(b));
    add_reorder(from, copy);
    t.copies.push_back(copy);
    return copy;
  }

  void add_reorder(int from, int to) {
    const Reorder op{buffer(from).desc, buffer(to).desc};
    Task task = new_task(TaskKind::reorder, op, set_.backend_.prepare(op, {op.from, op.to}));
    task.uses = {{from, Access::read}, {to, Access::write}};
    plan_.tasks.push_back(std::move(task));
  }

  Task new_task(TaskKind kind, OpDesc op, std::shared_ptr<const PreparedOp> prepared) const {
    Task task;
    task.kind = kind;
    task.node = node_ == nullptr ? -1 : node_->id;
    task.device = device();
    task.op = std::move(op);
    task.prepared = std::move(prepared);
    task.flops = op_flops(task.op);
    return task;
  }

  LayoutHints hints_for(const std::vector<Argument>& args, const std::vector<Value>& values) {
    LayoutHints hints(args.size());
    for (std::size_t k = 0; k < args.size(); ++k) {
      const PlannedTensor& t = tensor(values[k]);
      const bool viewed = t.kind != BufferKind::step && t.kind != BufferKind::costs && args[k].dims != t.dims;
      if (viewed) {
        hints[k] = TensorDesc{args[k].dims, args[k].type, nullptr};
      } else if (t.buffer >= 0) {
        hints[k] = buffer(t.buffer).desc;
      } else if (t.preferred) {
        hints[k] = t.preferred;
      }
    }
    return hints;
  }

  /// The buffer argument k reads or writes, in the layout the operation wants.
  int bind(PlannedTensor& t, const Argument& arg, TensorDesc want) {
    if (t.kind == BufferKind::step || t.kind == BufferKind::costs) return t.buffer;
    if (arg.dims != t.dims) {
      if (!want.plain() || element_count(arg.dims) != element_count(t.dims))
        throw std::logic_error("plan: '" + t.name + "' " + to_string(t.dims) + " cannot be read as " +
                               to_string(arg.dims));
      want = dense(t);
    }
    if (arg.access == Access::read) return version(t, want);
    if (arg.access == Access::read_write && !(t.kind == BufferKind::weights_gradient && t.buffer < 0)) {
      const int id = version(t, want);
      rebind(t, id);
      return id;
    }
    // Whole overwrite: a version in the wanted layout is reused, the others are dead.
    int id = -1;
    if (t.buffer >= 0 && same_layout(buffer(t.buffer).desc, want)) id = t.buffer;
    for (int copy : t.copies) {
      if (id < 0 && same_layout(buffer(copy).desc, want)) id = copy;
    }
    if (id < 0) {
      Buffer b;
      b.name = t.name;
      b.kind = t.kind;
      b.device = t.device;
      b.desc = want;
      b.bytes = want.bytes();
      id = add_buffer(std::move(b));
    }
    rebind(t, id);
    return id;
  }

  void rebind(PlannedTensor& t, int id) {
    if (t.buffer >= 0 && id != t.buffer && buffer(t.buffer).persistent())
      throw std::logic_error("plan: '" + t.name + "' is written in another layout than its master's");
    t.buffer = id;
    t.copies.clear();
  }

  void emit(TaskKind kind, const OpDesc& op, const std::vector<Value>& values) {
    const std::vector<Argument> args = arguments(op);
    if (args.size() != values.size())
      throw std::logic_error("plan: " + op_name(op) + " has another number of arguments");
    Task task = new_task(kind, op, set_.backend_.prepare(op, hints_for(args, values)));
    const std::vector<TensorDesc>& wants = task.prepared->args();
    // Reads first: an operation in place reads the version that its write then replaces.
    task.uses.resize(args.size());
    for (const bool reads : {true, false}) {
      for (std::size_t k = 0; k < args.size(); ++k) {
        if ((args[k].access == Access::read) != reads) continue;
        task.uses[k] = {bind(tensor(values[k]), args[k], wants[k]), args[k].access};
      }
    }
    if (task.prepared->workspace_bytes() > 0) {
      Buffer b;
      b.name = "workspace";
      b.kind = BufferKind::workspace;
      b.device = task.device;
      b.bytes = task.prepared->workspace_bytes();
      b.desc = {{b.bytes}, DataType::u8, nullptr};
      task.workspace = add_buffer(std::move(b));
    }
    plan_.tasks.push_back(std::move(task));
  }

  /// After the first plan every persistent buffer has its layout: fix their places for all plans.
  void finish_persistent() {
    if (set_.persistent_.empty() || set_.persistent_.back().offset >= 0) return;
    for (const WeightBuffers& w : set_.weights_) {
      // Weights that this plan does not touch lie plain.
      if (buffer(w.weights).bytes == 0)
        decide_persistent(tensor(Value{w.weights}), w.weights,
                          {buffer(w.weights).desc.dims, DataType::f32, nullptr});
      if (w.increment < 0 || buffer(w.increment).bytes > 0) continue;
      decide_persistent(tensor(Value{w.increment}), w.increment, buffer(w.weights).desc);
    }
    std::vector<std::int64_t> end(static_cast<std::size_t>(set_.devices()), 0);
    for (std::size_t i = 0; i < set_.persistent_.size(); ++i) {
      Buffer& b = plan_.buffers[i];
      std::int64_t& place = end[static_cast<std::size_t>(b.device)];
      b.offset = place;
      place += (b.bytes + 63) / 64 * 64;
      set_.persistent_[i] = b;
    }
  }

  /// The order in which the layers wrote their operations down is that of the mathematics.
  void number_versions() {
    std::vector<int> writes(plan_.buffers.size(), 0);
    for (Task& task : plan_.tasks) {
      for (BufferUse& use : task.uses) use.version = writes[static_cast<std::size_t>(use.buffer)];
      for (const BufferUse& use : task.uses) {
        if (use.access != Access::read) ++writes[static_cast<std::size_t>(use.buffer)];
      }
    }
  }

  PlanSet& set_;
  const Graph& graph_;
  Plan plan_;
  std::vector<PlannedTensor> tensors_;  ///< the first ones are the persistent buffers, by their index
  std::vector<NodeState> states_;
  std::map<int, Value> weight_gradients_;  ///< by the weights' buffer
  std::vector<PendingSum> pending_sums_;
  const Node* node_ = nullptr;
  bool backward_ = false;
  bool recomputing_ = false;  ///< a forward within backward
};

PlanSet::PlanSet(const Graph& graph, const std::vector<MatrixInfo>& matrices, const Backend& backend,
                 const PlanOptions& options)
    : graph_(graph), matrices_(matrices), backend_(backend), options_(options) {
  const auto add = [&](std::string name, BufferKind kind, int device, TensorDesc desc, bool decided) {
    Buffer b;
    b.name = std::move(name);
    b.kind = kind;
    b.device = device;
    b.bytes = decided ? desc.bytes() : 0;
    b.desc = std::move(desc);
    persistent_.push_back(std::move(b));
    return static_cast<int>(persistent_.size()) - 1;
  };
  std::int64_t slot = 1;  // slot 0 says whether a cost was not finite
  for (const Node& node : graph_.nodes) {
    const int device = node.gpus[0];
    weights_of_.emplace_back();
    for (std::size_t i = 0; i < node.layer->weights.size(); ++i) {
      const WeightSpec& spec = node.layer->weights[i];
      const WeightOwner& owner = node.owners[i];
      std::vector<int>& of_node = weights_of_.back();
      if (owner != WeightOwner{node.id, static_cast<int>(i)}) {
        of_node.push_back(
            weights_of_[static_cast<std::size_t>(owner.node)][static_cast<std::size_t>(owner.index)]);
        continue;
      }
      of_node.push_back(static_cast<int>(weights_.size()));
      WeightBuffers w;
      w.node = node.id;
      w.index = static_cast<int>(i);
      w.name = node.name + "." + spec.name;
      w.weights = add(w.name, BufferKind::weights, device, {spec.dims, DataType::f32, nullptr}, false);
      if (options_.learns && !spec.state)
        w.increment =
            add("inc " + w.name, BufferKind::increment, device, {spec.dims, DataType::f32, nullptr}, false);
      w.rate_index = static_cast<std::int64_t>(weights_.size());
      weights_.push_back(std::move(w));
    }
    if (node.is_cost()) {
      cost_slots_.push_back({node.id, slot, node.layer->cost_values});
      slot += node.layer->cost_values;
    }
  }
  // Backward runs from the last node to the first.
  last_used_.resize(graph_.nodes.size());
  std::vector<bool> found(weights_.size(), false);
  for (const Node& node : graph_.nodes) {
    for (std::size_t i = 0; node.gets_gradient && i < node.owners.size(); ++i) {
      const int w = weights_of_[static_cast<std::size_t>(node.id)][i];
      if (found[static_cast<std::size_t>(w)] || !graph_.learns(node, i)) continue;
      found[static_cast<std::size_t>(w)] = true;
      last_used_[static_cast<std::size_t>(node.id)].push_back(w);
    }
  }
  if (options_.mean) {
    Dims dims = matrices_[0].dims;
    dims.insert(dims.begin(), 1);
    mean_ = add("mean", BufferKind::mean, 0, {dims, DataType::f32, nullptr}, true);
  }
  for (int device = 0; device < devices(); ++device) {
    step_.push_back(
        add("step", BufferKind::step, device,
            {{step_block_bytes(static_cast<std::int64_t>(weights_.size()))}, DataType::u8, nullptr}, true));
    costs_.push_back(add("costs", BufferKind::costs, device, {{slot}, DataType::f64, nullptr}, true));
  }
}

const Plan& PlanSet::plan(Phase phase, std::int64_t images) {
  std::unique_ptr<Plan>& cached = plans_[{phase, images}];
  if (!cached) {
    auto made = std::make_unique<Plan>(PlanBuilder(*this, phase, images).build());
    place_buffers(*made, devices());
#ifdef CONVNET_CHECKS
    verify(*made, graph_);
#endif
    cached = std::move(made);
  }
  return *cached;
}

std::map<std::string, std::string> PlanSet::algorithms() const {
  std::map<std::string, std::string> chosen;
  for (const auto& [key, plan] : plans_) {
    for (const Task& task : plan->tasks) {
      if (task.flops > 0)
        chosen[graph_.nodes[static_cast<std::size_t>(task.node)].name + " " + op_name(task.op) + " " +
               std::to_string(plan->images)] = task.prepared->algorithm();
    }
  }
  return chosen;
}

std::int64_t PlanSet::memory_needed(int device) const {
  std::int64_t persistent = 0;
  std::int64_t transient = 0;
  for (const auto& [key, plan] : plans_) {
    const DeviceMemoryNeeds& needs = plan->memory[static_cast<std::size_t>(device)];
    persistent = needs.persistent;
    transient = std::max(transient, needs.transient);
  }
  return persistent + transient;
}

}  // namespace convnet
