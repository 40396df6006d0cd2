#include "convnet/plan/verify.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <stdexcept>
#include <utility>

#include "convnet/base/cores.h"
#include "convnet/base/share_work.h"
#include "convnet/plan/order.h"
#include "convnet/plan/ranges.h"

namespace convnet {
namespace {

class Verifier {
 public:
  Verifier(const Plan& plan, const Graph& graph) : plan_(plan), graph_(graph), order_(checked_devices()) {}

  void run() {
    collect_replicas();
    collect_uses();
    for (const TaskId t : plan_.tasks.ids()) check_task(t);
    // The other checks rely on this one only, and threads may do them at the same time.
    constexpr int kPieces = 8;
    constexpr std::size_t kFewTasks = 4096;  // for which starting threads takes longer than the checks
    std::vector<std::function<void()>> checks;
    for (int piece = 0; piece < kPieces; ++piece) {
      checks.emplace_back([this, piece] {
        for (int b = piece; b < std::ssize(plan_.buffers); b += kPieces) check_buffer(BufferId(b));
      });
    }
    checks.emplace_back([this] {
      for (const TaskId t : plan_.tasks.ids()) check_copy(t);
      for (const TaskId t : plan_.tasks.ids()) check_rounding(t);
      check_messages();
      check_fetches();
    });
    const auto together = check_places();
    for (const auto& [place, buffers] : together)
      checks.emplace_back([this, &buffers = buffers] { check_sharing(buffers); });
    checks.emplace_back([this] { check_results(); });
    share_work(checks.size(), plan_.tasks.size() < kFewTasks ? 1 : usable_cores(),
               [&](std::size_t i) { checks[i](); });
  }

 private:
  /// A task that uses a buffer: by its argument `argument`, or as workspace if that is -1.
  struct UseOf {
    TaskId task;
    int argument;
  };
  struct Use {
    TaskId task;
    bool writes;
    bool reads;
    int version;  ///< writes that must come before; -1: scratch memory
    std::int64_t begin, end;
  };

  const Plan& checked_devices() const {
    for (const TaskId t : plan_.tasks.ids()) {
      if (!plan_.memory.has(plan_.tasks[t].device)) fail(task_name(t) + " is on a device that is not there");
    }
    return plan_;
  }

  std::string task_name(TaskId t) const {
    return "task " + std::to_string(t.value()) + " (" + describe(plan_, plan_.tasks[t], graph_) + ")";
  }

  [[noreturn]] void fail(const std::string& what) const { throw std::logic_error("plan is wrong: " + what); }

  bool is_before(TaskId a, TaskId b) const { return order_.is_before(a, b); }
  bool ordered(TaskId a, TaskId b) const { return is_before(a, b) || is_before(b, a); }

  void collect_replicas() {
    std::map<std::pair<NodeId, std::size_t>, std::vector<BufferId>> rounded;
    for (const BufferId b : plan_.buffers.ids()) {
      const Buffer& buffer = plan_.buffers[b];
      if (buffer.kind == BufferKind::weights) replicas_[{buffer.node, buffer.index}].push_back(b);
      if (buffer.kind == BufferKind::rounded) rounded[{buffer.node, buffer.index}].push_back(b);
    }
    for (const auto& [matrix, copies] : rounded) {
      const auto found = replicas_.find(matrix);
      if (found == replicas_.end() || found->second.size() != copies.size())
        fail("'" + plan_.buffers[copies[0]].name + "' is not there for each replica of its matrix");
      for (std::size_t r = 0; r < copies.size(); ++r) rounded_of_[found->second[r]] = copies[r];
    }
  }

  void collect_uses() {
    uses_.resize(plan_.buffers.size());
    for (const TaskId t : plan_.tasks.ids()) {
      const Task& task = plan_.tasks[t];
      const auto add = [&](BufferId buffer, int argument) {
        if (!plan_.buffers.has(buffer)) fail(task_name(t) + " uses a buffer that is not there");
        uses_[buffer].push_back({t, argument});
      };
      for (std::size_t k = 0; k < task.uses.size(); ++k) add(task.uses[k].buffer, static_cast<int>(k));
      if (task.workspace.exists()) add(task.workspace, -1);
    }
  }

  Use look_up(UseOf of) const {
    const Task& task = plan_.tasks[of.task];
    if (of.argument < 0) {
      const BufferUse workspace{task.workspace, Access::write, -1};
      return {of.task, true, false, -1, 0, bytes_of(plan_, workspace)};
    }
    const BufferUse& use = task.uses[static_cast<std::size_t>(of.argument)];
    return {of.task,   use.access != Access::read,      use.access != Access::write, use.version,
            use.begin, use.begin + bytes_of(plan_, use)};
  }
  template <class Visit>
  void for_uses(BufferId buffer, const Visit& visit) const {
    for (const UseOf use : uses_[buffer]) visit(look_up(use));
  }

  /// Checks that a buffer is on the task's device and has the layout that the operation expects.
  void check_task(TaskId t) const {
    const Task& task = plan_.tasks[t];
    if (task.uses.size() != task.form->args.size())
      fail(task_name(t) + " has another number of buffers than arguments");
    for (std::size_t k = 0; k < task.uses.size(); ++k) {
      check_use(t, task.uses[k], task.form->args[k]);
    }
    const std::int64_t workspace = task.workspace.exists() ? plan_.buffers[task.workspace].bytes : 0;
    if (workspace < task.form->workspace_bytes) fail(task_name(t) + " has too small a workspace");
  }

  void check_use(TaskId t, const BufferUse& use, const TensorDesc& arg) const {
    const Task& task = plan_.tasks[t];
    const Buffer& b = plan_.buffers[use.buffer];
    const bool host = b.kind == BufferKind::input;
    // Only communication reads other devices, and no task writes there.
    if (b.device != task.device && !host && (!communicates(task.kind) || use.access != Access::read))
      fail(task_name(t) + " touches '" + b.name + "' of another device");
    if (!host && !plan_.topology.same_process(b.device, task.device))
      fail(task_name(t) + " touches '" + b.name + "' of another process");
    if (use.begin < 0 || use.begin + bytes_of(plan_, use) > b.bytes)
      fail(task_name(t) + " reaches beyond '" + b.name + "'");
    if (b.kind == BufferKind::step || b.kind == BufferKind::costs || arg.dims == Dims{0}) return;
    // Layouts know their own size, so this does not rely on them: elements take at least their types' bytes.
    if (arg.bytes() / size_of(arg.type) < element_count(arg.dims))
      fail(task_name(t) + " expects '" + b.name + "' in a layout that is too small for " +
           to_string(arg.dims) + " " + to_string(arg.type));
    if (arg.bytes() > bytes_of(plan_, use)) fail(task_name(t) + " reaches beyond '" + b.name + "'");
    if (use.bytes >= 0) {  // ranges are flat memory, which only updates take for numbers of one type
      const bool updates =
          std::holds_alternative<Update>(*task.op) || std::holds_alternative<UpdateSquares>(*task.op);
      if (updates && b.desc.type != arg.type && b.desc.type != DataType::u8)
        fail(task_name(t) + " takes '" + b.name + "' for " + to_string(arg.type));
      return;
    }
    if (element_count(arg.dims) != element_count(b.desc.dims))
      fail(task_name(t) + " uses " + std::to_string(element_count(arg.dims)) + " of the " +
           std::to_string(element_count(b.desc.dims)) + " elements of '" + b.name + "'");
    if (!same_layout(b.desc, arg))
      fail(task_name(t) + " expects '" + b.name + "' as " + arg.layout_name() + ", but it is " +
           b.desc.layout_name());
    // Plain memory has the same order of elements for every shape; other layouts belong to one.
    if (!arg.plain() && b.desc.dims != arg.dims)
      fail(task_name(t) + " expects '" + b.name + "' as " + to_string(arg.dims) + ", but it is " +
           to_string(b.desc.dims));
  }

  /// Every read has its write before it; any two tasks that touch a buffer, one of them writing, are ordered.
  void check_buffer(BufferId b) const {
    const Buffer& buffer = plan_.buffers[b];
    const bool filled_before = buffer.persistent() || buffer.kind == BufferKind::input;
    std::vector<RangeList<TaskId>::Range> ranges;
    for_uses(b, [&](const Use& use) {
      if (use.writes) ranges.push_back({use.begin, use.end, use.task});
    });
    RangeList<TaskId> writes;  // their tasks
    writes.add(ranges, buffer.bytes);
    for_uses(b, [&](const Use& use) {
      int writes_before = 0;
      writes.visit_overlapping(use.begin, use.end, [&](TaskId other) {
        if (other == use.task) return;
        if (!ordered(use.task, other))
          fail(task_name(use.task) + " and " + task_name(other) + " touch '" + buffer.name +
               "' in no fixed order");
        writes_before += is_before(other, use.task) ? 1 : 0;
      });
      if (use.reads && !filled_before && writes_before == 0)
        fail(task_name(use.task) + " reads '" + buffer.name + "' before anything wrote it");
      if (use.version >= 0 && writes_before != use.version)
        fail(task_name(use.task) + " uses '" + buffer.name + "' after " + std::to_string(writes_before) +
             " writes, not after " + std::to_string(use.version));
    });
  }

  /// Checks that a copy of weights, in another layout or type, is not read in a later pass once the weights
  /// have been updated.
  void check_copy(TaskId t) const {
    const Task& task = plan_.tasks[t];
    if (!std::holds_alternative<Reorder>(*task.op)) return;
    const BufferId from = task.uses[0].buffer, to = task.uses[1].buffer;
    const BufferKind kind = plan_.buffers[from].kind;
    if (kind != BufferKind::weights && kind != BufferKind::rounded) return;
    for_uses(from, [&](const Use& change) {
      if (!change.writes || !is_before(t, change.task)) return;
      for_uses(to, [&](const Use& read) {
        if (read.reads && plan_.tasks[change.task].pass < plan_.tasks[read.task].pass)
          fail(task_name(read.task) + " reads a copy of '" + plan_.buffers[from].name +
               "' that is older than its update");
      });
    });
  }

  /// Checks that a task which writes weights writes the same range of their bf16 copies, if these are kept,
  /// in the same layout, and that it writes no other copies.
  void check_rounding(TaskId t) const {
    const Task& task = plan_.tasks[t];
    std::size_t pairs = 0;
    const auto check_pair = [&](const BufferUse& weights, const BufferUse* rounded) {
      const auto copy = rounded_of_.find(weights.buffer);
      const bool wanted = copy != rounded_of_.end();
      if (wanted != (rounded != nullptr)) fail(task_name(t) + " does not write weights as they are kept");
      if (!wanted) return;
      ++pairs;
      const TensorDesc &from = plan_.buffers[weights.buffer].desc, &to = plan_.buffers[rounded->buffer].desc;
      if (rounded->buffer != copy->second || weights.begin != 2 * rounded->begin ||
          bytes_of(plan_, weights) != 2 * bytes_of(plan_, *rounded) || from.bytes() != 2 * to.bytes() ||
          from.plain() != to.plain())
        fail(task_name(t) + " rounds other weights than it writes");
    };
    if (const auto* update = std::get_if<Update>(&*task.op)) {
      std::size_t at = 0;
      for (const Update::Part& part : update->parts) {
        check_pair(task.uses[at], part.rounds ? &task.uses[at + part.rounded()] : nullptr);
        at += part.arguments();
      }
    }
    if (const auto* copies = std::get_if<CopyRuns>(&*task.op); copies != nullptr && !is_message(task.kind)) {
      std::size_t rounded = 2 * copies->runs.size();
      for (std::size_t i = 0; i < copies->runs.size(); ++i)
        check_pair(task.uses[copies->runs.size() + i],
                   copies->runs[i].rounds ? &task.uses[rounded++] : nullptr);
    }
    std::size_t masters = 0, written = 0;
    for (const BufferUse& use : task.uses) {
      if (use.access == Access::read) continue;
      if (rounded_of_.contains(use.buffer)) ++masters;
      if (plan_.buffers[use.buffer].kind == BufferKind::rounded) ++written;
    }
    if (masters != pairs || written != pairs)
      fail(task_name(t) + " writes weights without their bf16 copies, or the copies alone");
  }

  /// Checks that every message is sent and received once, between two processes, and that messages from one
  /// device's stream to another's are received in the order in which they are sent, because only the order
  /// identifies them. Tasks wait only for earlier tasks of the list, so there is no deadlock.
  void check_messages() const {
    // By the devices, and whether they are for updates.
    std::map<std::tuple<DeviceId, DeviceId, bool>, std::vector<TaskId>> sent, received;
    for (const TaskId t : plan_.tasks.ids()) {
      const Task& task = plan_.tasks[t];
      if ((task.stream >= Stream::send) != is_message(task.kind))
        fail(task_name(t) + " is on a wrong stream");
      if (!is_message(task.kind)) continue;
      const bool sends = task.kind == TaskKind::send;
      const bool for_updates = task.stream == (sends ? Stream::send_update : Stream::receive_update);
      if (!for_updates && task.stream != (sends ? Stream::send : Stream::receive))
        fail(task_name(t) + " is on a wrong stream");
      const TaskKind other_kind = sends ? TaskKind::receive : TaskKind::send;
      if (!plan_.tasks.has(task.partner) || plan_.tasks[task.partner].kind != other_kind ||
          plan_.tasks[task.partner].partner != t)
        fail(task_name(t) + " is a message without its other end");
      const Task& partner = plan_.tasks[task.partner];
      if (plan_.topology.same_process(task.device, partner.device))
        fail(task_name(t) + " is a message within a process");
      check_pieces(t, task.partner);
      if (sends)
        sent[{task.device, partner.device, for_updates}].push_back(t);
      else
        received[{partner.device, task.device, for_updates}].push_back(task.partner);
    }
    if (sent != received) fail("messages are received in another order than they are sent");
  }

  void check_pieces(TaskId t, TaskId partner) const {
    const Task& task = plan_.tasks[t];
    const Access access = task.kind == TaskKind::send ? Access::read : Access::write;
    if (task.uses.empty() || task.uses.size() != plan_.tasks[partner].uses.size())
      fail(task_name(t) + " has other pieces than its other end");
    for (std::size_t k = 0; k < task.uses.size(); ++k) {
      const BufferUse& use = task.uses[k];
      if (use.access != access || bytes_of(plan_, use) != bytes_of(plan_, plan_.tasks[partner].uses[k]))
        fail(task_name(t) + " has other pieces than its other end");
    }
  }

  /// Checks that a replica which fetches a range of weights gets exactly one update more than it has: the
  /// source's range has been written once more than its own. A fetch before the source's own fetch would
  /// violate this.
  void check_fetches() const {
    struct Write {
      TaskId task;
      std::int64_t begin, end;
    };
    std::map<BufferId, RangeList<Write>>
        writes;  // by the replicas of each matrix; a constraint changes a write
    for (const auto& [matrix, replicas] : replicas_) {
      for (const BufferId b : replicas) {
        std::vector<RangeList<Write>::Range> ranges;
        for_uses(b, [&](const Use& use) {
          if (use.writes && !std::holds_alternative<Constrain>(*plan_.tasks[use.task].op))
            ranges.push_back({use.begin, use.end, {use.task, use.begin, use.end}});
        });
        writes[b].add(ranges, plan_.buffers[b].bytes);
      }
    }
    const auto bytes_written = [&](const BufferUse& use, TaskId before) {
      const std::int64_t begin = use.begin, end = use.begin + bytes_of(plan_, use);
      std::int64_t bytes = 0;
      writes.at(use.buffer).visit_overlapping(begin, end, [&](const Write& write) {
        if (write.task != before && is_before(write.task, before))
          bytes += std::min(end, write.end) - std::max(begin, write.begin);
      });
      return bytes;
    };
    const auto check_fetch = [&](TaskId t, const BufferUse& to, const BufferUse& from, TaskId at) {
      if (!writes.contains(to.buffer) || !writes.contains(from.buffer))
        fail(task_name(t) + " fetches weights from no replica");
      if (bytes_written(from, at) != bytes_written(to, t) + bytes_of(plan_, to))
        fail(task_name(t) + " does not fetch the next version of '" + plan_.buffers[to.buffer].name + "'");
    };
    for (const TaskId t : plan_.tasks.ids()) {
      const Task& task = plan_.tasks[t];
      if (task.kind == TaskKind::receive) {
        for (std::size_t k = 0; k < task.uses.size(); ++k) {
          if (writes.contains(task.uses[k].buffer))
            check_fetch(t, task.uses[k], plan_.tasks[task.partner].uses[k], task.partner);
        }
      }
      if (task.kind != TaskKind::all_gather) continue;
      const auto* copies = std::get_if<CopyRuns>(&*task.op);
      if (copies == nullptr) fail(task_name(t) + " does not copy");
      for (std::size_t i = 0; i < copies->runs.size(); ++i) {
        const auto [from, at] = origin(t, task.uses[i]);
        check_fetch(t, task.uses[copies->runs.size() + i], from, at);
      }
    }
  }

  /// Returns what a task reads and when: where it reads a message, what was sent.
  std::pair<BufferUse, TaskId> origin(TaskId t, const BufferUse& use) const {
    if (plan_.buffers[use.buffer].kind != BufferKind::landing) return {use, t};
    for (const UseOf other : uses_[use.buffer]) {
      const Task& task = plan_.tasks[other.task];
      if (task.kind == TaskKind::receive)
        return {plan_.tasks[task.partner].uses[static_cast<std::size_t>(other.argument)], task.partner};
    }
    fail(task_name(t) + " reads a message that nobody receives");
  }

  /// Checks what the graph asks for and no other task reads: every cost is computed, and every matrix that
  /// learns is updated once.
  void check_results() const {
    for (const Node& node : graph_.nodes) {
      for (std::size_t i = 0; i < node.owners.size(); ++i) {
        if (node.owners[i] == WeightOwner{node.id, i}) check_updates(node, i);
      }
      if (!node.is_cost()) continue;
      const auto forward = std::count_if(plan_.tasks.begin(), plan_.tasks.end(), [&](const Task& t) {
        return t.node == node.id && t.kind == TaskKind::forward && adds_to_costs(t);
      });
      if (forward != microbatches_with_images(0, graph_.microbatches))
        fail("cost '" + node.name + "' is not computed once for each image");
    }
  }

  /// The other forward tasks of a cost prepare what it reads.
  bool adds_to_costs(const Task& task) const {
    return std::any_of(task.uses.begin(), task.uses.end(), [&](const BufferUse& use) {
      return plan_.buffers[use.buffer].kind == BufferKind::costs && use.access != Access::read;
    });
  }

  std::int64_t microbatches_with_images(int first, int last) const {
    std::int64_t count = 0;
    for (int m = first; m < last; ++m) count += graph_.images_of(plan_.images, m, plan_.views) > 0 ? 1 : 0;
    return count;
  }

  /// Checks that every matrix with a gradient is updated completely, once in each update period that has
  /// images.
  void check_updates(const Node& owner, std::size_t i) const {
    const WeightOwner self{owner.id, i};
    const bool learns = std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& user) {
      for (std::size_t k = 0; k < user.owners.size(); ++k) {
        if (user.gets_gradient && user.owners[k] == self && graph_.learns(user, k)) return true;
      }
      return false;
    });
    std::int64_t wanted = 0;
    const int window = microbatches_per_update(graph_, owner, plan_.phase);
    for (int m = 0; m < graph_.microbatches; m += window) {
      if (plan_.phase != Phase::test && learns && microbatches_with_images(m, m + window) > 0) ++wanted;
    }
    std::int64_t bytes = 0, updated = 0;
    for (const BufferId b : replicas_of(self)) {
      bytes = plan_.buffers[b].bytes;
      for_uses(b, [&](const Use& use) {
        if (std::holds_alternative<Update>(*plan_.tasks[use.task].op)) updated += use.end - use.begin;
      });
    }
    if (updated != wanted * bytes)
      fail("'" + owner.name + "." + owner.layer->weights[i].name + "' has " + std::to_string(updated) +
           " bytes updated, not " + std::to_string(wanted) + " times its " + std::to_string(bytes));
    check_replicas(self);
  }

  const std::vector<BufferId>& replicas_of(const WeightOwner& matrix) const {
    return replicas_.at({matrix.node, matrix.index});
  }

  /// Checks that all replicas' weights become the same: whatever is written to one is fetched by the others.
  void check_replicas(const WeightOwner& matrix) const {
    std::vector<std::int64_t> written;
    for (const BufferId b : replicas_of(matrix)) {
      written.push_back(0);
      for_uses(b, [&](const Use& use) {
        if (use.writes && !std::holds_alternative<Constrain>(*plan_.tasks[use.task].op))
          written.back() += use.end - use.begin;
      });
    }
    if (std::adjacent_find(written.begin(), written.end(), std::not_equal_to<>()) != written.end())
      fail("the replicas of '" + graph_.nodes[matrix.node].name + "." + graph_.weight(matrix).name +
           "' do not get the same updates");
  }

  /// Checks that every buffer has a place, and returns the buffers by device, and by whether they are
  /// persistent.
  std::map<std::pair<DeviceId, bool>, std::vector<BufferId>> check_places() const {
    std::map<std::pair<DeviceId, bool>, std::vector<BufferId>> together;
    for (const BufferId b : plan_.buffers.ids()) {
      const Buffer& buffer = plan_.buffers[b];
      if (buffer.kind == BufferKind::input) continue;  // the host's
      check_place(b);
      if (!uses_[b].empty()) together[{buffer.device, buffer.persistent()}].push_back(b);
    }
    return together;
  }

  void check_place(BufferId b) const {
    const Buffer& buffer = plan_.buffers[b];
    if (buffer.offset < 0 && !uses_[b].empty()) fail("'" + buffer.name + "' has no place");
    if (buffer.offset % kMemoryAlignment != 0) fail("'" + buffer.name + "' is not aligned");
    const DeviceMemoryNeeds& needs = plan_.memory.at(buffer.device);
    if (!uses_[b].empty() &&
        buffer.offset + buffer.bytes > (buffer.persistent() ? needs.persistent : needs.transient))
      fail("'" + buffer.name + "' lies outside the memory asked for");
  }

  /// Checks that where buffers of a device share memory, all uses of one come before all uses of the next.
  /// Walks through the memory, with the buffers that lie at each place in the order of their first uses.
  /// Since "before" is transitive, only neighbours in this order need to be compared, when one of them
  /// begins.
  void check_sharing(std::vector<BufferId> buffers) const {
    struct Later {
      const Verifier* verifier;
      bool operator()(BufferId a, BufferId b) const {
        return std::pair(verifier->uses_[a][0].task, a) < std::pair(verifier->uses_[b][0].task, b);
      }
    };
    const auto end_of = [&](BufferId b) { return plan_.buffers[b].offset + plan_.buffers[b].bytes; };
    std::erase_if(buffers, [&](BufferId b) { return plan_.buffers[b].bytes == 0; });
    std::sort(buffers.begin(), buffers.end(), [&](BufferId a, BufferId b) {
      return std::pair(plan_.buffers[a].offset, a) < std::pair(plan_.buffers[b].offset, b);
    });
    std::vector<BufferId> by_end = buffers;
    std::sort(by_end.begin(), by_end.end(), [&](BufferId a, BufferId b) { return end_of(a) < end_of(b); });
    std::map<BufferId, TaskOrder::Group, Later> here(Later{this});
    auto ended = by_end.begin();
    for (const BufferId b : buffers) {
      for (; end_of(*ended) <= plan_.buffers[b].offset; ++ended) here.erase(*ended);
      std::vector<TaskId> tasks;
      for (const UseOf use : uses_[b]) tasks.push_back(use.task);
      const auto own = here.emplace(b, order_.group(std::move(tasks))).first;
      const auto check = [&](auto first, auto second) {
        if (plan_.buffers[b].persistent() || !order_.all_before(first->second, second->second))
          fail("'" + plan_.buffers[first->first].name + "' and '" + plan_.buffers[second->first].name +
               "' share memory while both are in use");
      };
      if (own != here.begin()) check(std::prev(own), own);
      if (std::next(own) != here.end()) check(own, std::next(own));
    }
  }

  const Plan& plan_;
  const Graph& graph_;
  TaskOrder order_;
  std::map<std::pair<NodeId, std::size_t>, std::vector<BufferId>>
      replicas_;                             ///< buffers of weights, by node and index
  std::map<BufferId, BufferId> rounded_of_;  ///< the bf16 copies of weights, by the buffer of the weights
  Table<BufferId, std::vector<UseOf>> uses_;
};

}  // namespace

void verify(const Plan& plan, const Graph& graph) { Verifier(plan, graph).run(); }

}  // namespace convnet
