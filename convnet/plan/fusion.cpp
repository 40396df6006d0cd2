#include "convnet/plan/fusion.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace convnet {
namespace {

/// Returns the argument with which an operation that takes an addend writes its result; none for other
/// operations, and for those whose result is changed before or after it could be added.
std::optional<std::size_t> result_without_addend(const OpDesc& op) {
  const auto last = [&] { return arguments(op).size() - 1; };
  if (const auto* conv = std::get_if<ConvForward>(&op))
    return conv->accumulate || conv->relu || is_fused(op) ? std::nullopt : std::optional(last());
  if (const auto* norm = std::get_if<BatchNormForward>(&op))
    return !norm->neuron.is_ident() || is_fused(op) ? std::nullopt : std::optional(last());
  if (std::holds_alternative<ConvBackwardData>(op) || std::holds_alternative<BatchNormBackwardData>(op))
    return is_fused(op) ? std::nullopt : std::optional(last());
  return std::nullopt;
}

OpDesc with_addend(OpDesc op) {
  std::visit(
      [](auto& desc) {
        if constexpr (requires { desc.sum; }) desc.sum = true;
      },
      op);
  return op;
}

/// The sum of two tensors: the arguments that are its terms, and the one it is written to.
struct Sum {
  std::size_t first = 0, second = 1, result = 0;
};
std::optional<Sum> sum_of(const OpDesc& op) {
  if (std::holds_alternative<Accumulate>(op)) return Sum{.result = 1};
  const auto* sum = std::get_if<EltwiseSum>(&op);
  if (sum == nullptr || sum->coeffs != std::vector<float>{1, 1}) return std::nullopt;
  return Sum{.result = 2};
}

class Fuser {
 public:
  Fuser(Plan& plan, const Graph& graph, const Target& target)
      : plan_(plan), graph_(graph), target_(target), uses_(plan.buffers.size()), gone_(plan.tasks.size()) {
    for (const TaskId t : plan.tasks.ids()) add_uses(t);
  }

  void run() {
    for (const TaskId t : plan_.tasks.ids()) fuse_sum(t);
    for (const TaskId t : plan_.tasks.ids()) fuse_relu(t);
    for (const TaskId t : plan_.tasks.ids()) fuse_moments(t);
    for (const TaskId t : plan_.tasks.ids()) fuse_track(t);
    for (const TaskId t : plan_.tasks.ids()) {
      TaskId sums = t;
      while (sums.exists()) sums = fuse_gradient(sums);
    }
    if (std::find(gone_.begin(), gone_.end(), true) == gone_.end()) return;
    Table<TaskId, Task> left;
    for (const TaskId t : plan_.tasks.ids()) {
      if (!gone_[t]) left.push_back(std::move(plan_.tasks[t]));
    }
    plan_.tasks = std::move(left);
    drop_unused_buffers();
  }

 private:
  struct UseOf {
    TaskId task;
    std::size_t argument;
  };

  void add_uses(TaskId t) {
    for (std::size_t k = 0; k < plan_.tasks[t].uses.size(); ++k) {
      std::vector<UseOf>& uses = uses_[plan_.tasks[t].uses[k].buffer];
      const auto behind = std::find_if(uses.rbegin(), uses.rend(), [&](UseOf use) { return use.task <= t; });
      uses.insert(behind.base(), {t, k});
    }
  }
  void remove_uses(TaskId t) {
    for (const BufferUse& use : plan_.tasks[t].uses)
      std::erase_if(uses_[use.buffer], [&](UseOf of) { return of.task == t; });
  }

  static bool run_together(const Task& a, const Task& b) {
    return a.device == b.device && a.stream == b.stream && a.pass == b.pass;
  }
  static bool is_whole(const BufferUse& use) { return use.begin == 0 && use.bytes < 0; }
  bool writes(UseOf use) const { return plan_.tasks[use.task].uses[use.argument].access != Access::read; }

  /// Returns the last task before `t` that writes the buffer, if it exists.
  TaskId last_writer(BufferId buffer, TaskId t) const {
    TaskId last;
    for (const UseOf use : uses_[buffer]) {
      if (use.task < t && writes(use)) last = use.task;
    }
    return last;
  }
  /// Whether a task between `first` and `last`, without these, uses the buffer; `only_writes`: writes it.
  bool used_between(BufferId buffer, TaskId first, TaskId last, bool only_writes) const {
    return std::any_of(uses_[buffer].begin(), uses_[buffer].end(), [&](UseOf use) {
      return use.task > first && use.task < last && (!only_writes || writes(use));
    });
  }
  bool used_after(BufferId buffer, TaskId t) const {
    return !uses_[buffer].empty() && uses_[buffer].back().task > t;
  }

  /// Fuses the sum `t` with the later of the tasks that make its terms, if one may be fused.
  void fuse_sum(TaskId t) {
    const Task& task = plan_.tasks[t];
    const std::optional<Sum> sum = sum_of(*task.op);
    if (!sum || task.stream != Stream::compute || !std::all_of(task.uses.begin(), task.uses.end(), is_whole))
      return;
    const auto maker = [&](std::size_t term) { return last_writer(task.uses[term].buffer, t); };
    const bool first_is_later = maker(sum->first) > maker(sum->second);
    for (const bool later : {true, false}) {
      const std::size_t term = later == first_is_later ? sum->first : sum->second;
      const std::size_t addend = term == sum->first ? sum->second : sum->first;
      if (term != sum->result && fuse_sum(t, *sum, term, addend)) return;
    }
  }

  /// Moves the task that makes `term` to the place of the sum, unless its inputs have changed by then.
  bool fuse_sum(TaskId t, const Sum& sum, std::size_t term, std::size_t addend) {
    const Task& adds = plan_.tasks[t];
    const BufferUse part = adds.uses[term], other = adds.uses[addend], total = adds.uses[sum.result];
    const TaskId maker = last_writer(part.buffer, t);
    if (!maker.exists() || part.buffer == other.buffer || part.buffer == total.buffer) return false;
    const Task& makes = plan_.tasks[maker];
    const std::optional<std::size_t> result = result_without_addend(*makes.op);
    if (!result || !run_together(makes, adds)) return false;
    if (makes.uses[*result].buffer != part.buffer || plan_.buffers[part.buffer].persistent() ||
        used_between(part.buffer, maker, t, false) || used_after(part.buffer, t))
      return false;
    for (std::size_t k = 0; k < *result; ++k) {
      const BufferId reads = makes.uses[k].buffer;
      if (reads == total.buffer || used_between(reads, maker, t, true)) return false;
    }
    Task fused = makes;
    fused.op = with_addend(*makes.op);
    fused.uses.insert(fused.uses.begin() + static_cast<std::ptrdiff_t>(*result),
                      {other.buffer, Access::read});
    fused.uses[*result + 1] = {total.buffer, Access::write};
    return fuse(maker, t, t, std::move(fused));
  }

  /// Fuses the relu `t` of a sum into the batch normalisation that adds up the sum, if nobody else reads it.
  void fuse_relu(TaskId t) {
    const Task& applies = plan_.tasks[t];
    const auto* neuron = std::get_if<NeuronForward>(&*applies.op);
    if (neuron == nullptr || neuron->f.kind != NeuronKind::relu) return;
    const BufferId sum = applies.uses[0].buffer, result = applies.uses[1].buffer;
    const TaskId maker = last_writer(sum, t);
    if (!maker.exists() || !is_whole(applies.uses[0])) return;
    const Task& makes = plan_.tasks[maker];
    const auto* norm = std::get_if<BatchNormForward>(&*makes.op);
    if (norm == nullptr || !norm->neuron.is_ident() || !norm->sum || !run_together(makes, applies) ||
        makes.uses.back().buffer != sum || used_between(sum, maker, t, false))
      return;
    if (result != sum) {
      const bool is_read = std::any_of(makes.uses.begin(), makes.uses.end(),
                                       [&](const BufferUse& use) { return use.buffer == result; });
      if (is_read || used_after(sum, t) || used_between(result, maker, t, false)) return;
    }
    BatchNormForward op = *norm;
    op.neuron = neuron->f;
    Task fused = makes;
    fused.op = OpDesc(op);
    fused.uses.back().buffer = result;
    fuse(maker, t, maker, std::move(fused));
  }

  /// Fuses task `t`, which computes the moments of a convolution's output, into the convolution.
  void fuse_moments(TaskId t) {
    const Task& takes = plan_.tasks[t];
    if (gone_[t] || !std::holds_alternative<BatchNormMoments>(*takes.op) || !is_whole(takes.uses[0])) return;
    const TaskId maker = last_writer(takes.uses[0].buffer, t);
    if (!maker.exists()) return;
    const Task& makes = plan_.tasks[maker];
    const auto* conv = std::get_if<ConvForward>(&*makes.op);
    if (conv == nullptr || conv->moments || !run_together(makes, takes) ||
        makes.uses.back().buffer != takes.uses[0].buffer)
      return;
    for (const std::size_t statistic : {1, 2}) {
      if (uses_[takes.uses[statistic].buffer].front().task < t) return;
    }
    ConvForward op = *conv;
    op.moments = true;
    Task fused = makes;
    fused.op = OpDesc(op);
    fused.uses.insert(fused.uses.end(), takes.uses.begin() + 1, takes.uses.end());
    fuse(maker, t, maker, std::move(fused));
  }

  /// Fuses task `t`, which moves running statistics, into the task that computes those of the batch.
  void fuse_track(TaskId t) {
    const Task& tracks = plan_.tasks[t];
    const auto* track = std::get_if<BatchNormTrack>(&*tracks.op);
    if (gone_[t] || track == nullptr) return;
    const TaskId maker = last_writer(tracks.uses[0].buffer, t);
    if (!maker.exists() || maker != last_writer(tracks.uses[1].buffer, t)) return;
    const Task& makes = plan_.tasks[maker];
    if (!run_together(makes, tracks)) return;
    for (const std::size_t running : {2, 3}) {
      if (used_between(tracks.uses[running].buffer, maker, t, false)) return;
    }
    Task fused = makes;
    if (const auto* moments = std::get_if<BatchNormMoments>(&*makes.op)) {
      if (moments->track || moments->values() != track->values) return;
      fused.op = OpDesc(BatchNormMoments{moments->dims, true, track->factor});
    } else if (const auto* merge = std::get_if<BatchNormMerge>(&*makes.op)) {
      if (merge->track || merge->all_values() != track->values) return;
      fused.op = OpDesc(BatchNormMerge{merge->channels, merge->values, true, track->factor});
    } else {
      return;
    }
    fused.uses.insert(fused.uses.end(), tracks.uses.begin() + 2, tracks.uses.end());
    fuse(maker, t, maker, std::move(fused));
  }

  /// Fuses the sum or the relu's mask that makes the gradient which the batch norm's task `t` sums into that
  /// task, which moves to its place. Returns the task's new place, none if nothing was fused.
  TaskId fuse_gradient(TaskId t) {
    const Task& takes = plan_.tasks[t];
    const auto* sums = std::get_if<BatchNormBackwardWeights>(&*takes.op);
    if (gone_[t] || sums == nullptr || sums->sum) return {};
    const BufferId gradient = takes.uses[1].buffer;
    const TaskId maker = last_writer(gradient, t);
    if (!maker.exists() || !is_whole(takes.uses[1])) return {};
    const Task& makes = plan_.tasks[maker];
    if (!run_together(makes, takes) || !std::all_of(makes.uses.begin(), makes.uses.end(), is_whole) ||
        makes.uses.back().buffer != gradient)
      return {};
    // A gradient that the task does not write is gone.
    const bool written = !sums->writes_dy() || takes.uses.back().buffer == gradient;
    if (!written && used_after(gradient, t)) return {};
    if (sums->writes_dy() && used_between(gradient, maker, t, false)) return {};
    for (const BufferUse& use : takes.uses) {
      if (use.buffer != gradient && used_between(use.buffer, maker, t, use.access == Access::read)) return {};
    }
    BatchNormBackwardWeights op = *sums;
    Task fused = takes;
    const std::size_t extras = sums->neuron.is_ident() ? 4 : 6;  // the place of arguments that fusions add
    const auto insert = [&](BufferId buffer) {
      fused.uses.insert(fused.uses.begin() + static_cast<std::ptrdiff_t>(extras), {buffer, Access::read});
    };
    const auto* neuron = std::get_if<NeuronBackward>(&*makes.op);
    if (neuron != nullptr && neuron->f.kind == NeuronKind::relu && !sums->mask) {
      op.mask = true;
      insert(makes.uses[0].buffer);
      fused.uses[1].buffer = makes.uses[1].buffer;
    } else if (const std::optional<Sum> sum = sum_of(*makes.op)) {
      op.sum = true;
      insert(makes.uses[sum->first].buffer);
      fused.uses[1].buffer = makes.uses[sum->second].buffer;
    } else {
      return {};
    }
    if (!sums->writes_dy()) fused.uses.push_back({gradient, Access::write});
    fused.op = OpDesc(op);
    return fuse(maker, t, maker, std::move(fused)) ? maker : TaskId();
  }

  /// Replaces tasks `maker` and `other` by `fused`, the work of `maker` with that of `other`, in the place
  /// `at` of one of them. Returns false, and changes nothing, where it does not run.
  bool fuse(TaskId maker, TaskId other, TaskId at, Task fused) {
    if (!prepare(fused)) return false;
    record_rewrite(plan_.tasks[other], plan_.tasks[maker]);
    for (const TaskId t : {maker, other}) {
      remove_uses(t);
      gone_[t] = t != at;
    }
    plan_.tasks[at] = std::move(fused);
    add_uses(at);
    return true;
  }

  /// Finds the form and the workspace of a fused task. Returns false if the target cannot run it, or wants
  /// one of its buffers in another layout.
  bool prepare(Task& task) {
    if (!target_.fuses(*task.op)) return false;
    LayoutHints hints;
    for (const BufferUse& use : task.uses) hints.emplace_back(plan_.buffers[use.buffer].desc);
    task.form = target_.form(*task.op, hints);
    for (std::size_t k = 0; k < task.uses.size(); ++k) {
      const TensorDesc &lies = plan_.buffers[task.uses[k].buffer].desc, &wanted = task.form->args[k];
      if (!same_layout(lies, wanted) || (!wanted.plain() && lies.dims != wanted.dims)) return false;
    }
    const std::int64_t bytes = task.form->workspace_bytes;
    if (bytes > 0 && (!task.workspace.exists() || plan_.buffers[task.workspace].bytes < bytes)) {
      task.workspace = add_buffer(plan_.buffers, "workspace", BufferKind::workspace, task.device,
                                  {{bytes}, DataType::u8, nullptr});
      uses_.emplace_back();
    }
    return true;
  }

  /// Removes the buffers and workspaces of tasks that were fused into others.
  void drop_unused_buffers() {
    Table<BufferId, char> stays(plan_.buffers.size());
    for (const BufferId b : plan_.buffers.ids())
      stays[b] = plan_.buffers[b].persistent() || plan_.buffers[b].kind == BufferKind::input;
    for (const Task& task : plan_.tasks) {
      for (const BufferUse& use : task.uses) stays[use.buffer] = true;
      if (task.workspace.exists()) stays[task.workspace] = true;
    }
    Table<BufferId, BufferId> ids(plan_.buffers.size());
    Table<BufferId, Buffer> left;
    for (const BufferId b : plan_.buffers.ids()) {
      if (!stays[b]) continue;
      ids[b] = left.next_id();
      left.push_back(std::move(plan_.buffers[b]));
    }
    plan_.buffers = std::move(left);
    for (Task& task : plan_.tasks) {
      for (BufferUse& use : task.uses) use.buffer = ids[use.buffer];
      if (task.workspace.exists()) task.workspace = ids[task.workspace];
    }
    for (BufferId& input : plan_.inputs) {
      if (input.exists()) input = ids[input];
    }
  }

  /// Adds a line about two tasks to Plan::rewrites; other microbatches would only repeat it.
  void record_rewrite(const Task& of, const Task& by) {
    if (!of.node.exists() || !by.node.exists()) return;
    std::string line = op_name(*by.op) + " of '" + graph_.nodes[by.node].name + "' does " + op_name(*of.op) +
                       (of.node == by.node ? "" : " of '" + graph_.nodes[of.node].name + "'") + " as well";
    if (std::find(plan_.rewrites.begin(), plan_.rewrites.end(), line) == plan_.rewrites.end())
      plan_.rewrites.push_back(std::move(line));
  }

  Plan& plan_;
  const Graph& graph_;
  const Target& target_;
  Table<BufferId, std::vector<UseOf>> uses_;  ///< by buffer, in the order of tasks
  Table<TaskId, char> gone_;                  ///< tasks that another one does
};

}  // namespace

void fuse_tasks(Plan& plan, const Graph& graph, const Target& target) { Fuser(plan, graph, target).run(); }

}  // namespace convnet
