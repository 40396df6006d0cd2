// Proves that a plan computes what it says in every order its dependencies allow.
#include <algorithm>
#include <stdexcept>

#include "convnet/plan/plan.h"

namespace convnet {
namespace {

class Verifier {
 public:
  Verifier(const Plan& plan, const Graph& graph)
      : plan_(plan), graph_(graph), words_((plan.tasks.size() + 63) / 64) {}

  void run() {
    find_order();
    collect_uses();
    for (std::size_t t = 0; t < plan_.tasks.size(); ++t) check_task(t);
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) check_buffer(b);
    check_memory();
    check_results();
  }

 private:
  struct Use {
    std::size_t task;
    bool writes;
    bool reads;
    int version;  ///< writes that must come before; -1: scratch memory
  };

  std::string task_name(std::size_t t) const {
    return "task " + std::to_string(t) + " (" + describe(plan_.tasks[t], graph_) + ")";
  }

  [[noreturn]] void fail(const std::string& what) const { throw std::logic_error("plan is wrong: " + what); }

  /// before_[t]: the tasks that are certainly done when t starts. Dependencies point to earlier tasks of the
  /// list, so there are no cycles and one sweep finds the closure.
  void find_order() {
    before_.assign(plan_.tasks.size() * words_, 0);
    std::vector<int> last_on_device(plan_.memory.size(), -1);
    for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
      const Task& task = plan_.tasks[t];
      if (task.device < 0 || task.device >= static_cast<int>(last_on_device.size()))
        fail(task_name(t) + " is on a device that is not there");
      int& last = last_on_device[static_cast<std::size_t>(task.device)];
      if (last >= 0) add_before(t, static_cast<std::size_t>(last));
      last = static_cast<int>(t);
      for (int after : task.after) {
        if (after < 0 || after >= static_cast<int>(t))
          fail(task_name(t) + " waits for a task that does not come before it");
        add_before(t, static_cast<std::size_t>(after));
      }
    }
  }

  void add_before(std::size_t t, std::size_t earlier) {
    for (std::size_t w = 0; w < words_; ++w) before_[t * words_ + w] |= before_[earlier * words_ + w];
    before_[t * words_ + earlier / 64] |= std::uint64_t{1} << (earlier % 64);
  }

  bool is_before(std::size_t a, std::size_t b) const {
    return ((before_[b * words_ + a / 64] >> (a % 64)) & 1U) != 0;
  }
  bool ordered(std::size_t a, std::size_t b) const { return is_before(a, b) || is_before(b, a); }

  void collect_uses() {
    uses_.resize(plan_.buffers.size());
    for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
      const auto add = [&](int b, Access access, int version) {
        if (b < 0 || b >= static_cast<int>(plan_.buffers.size()))
          fail(task_name(t) + " uses a buffer that is not there");
        uses_[static_cast<std::size_t>(b)].push_back(
            {t, access != Access::read, access != Access::write, version});
      };
      for (const BufferUse& use : plan_.tasks[t].uses) add(use.buffer, use.access, use.version);
      if (plan_.tasks[t].workspace >= 0) add(plan_.tasks[t].workspace, Access::write, -1);
    }
  }

  /// Memory is the task's device's, and lies as the prepared operation expects.
  void check_task(std::size_t t) const {
    const Task& task = plan_.tasks[t];
    if (task.uses.size() != task.prepared->args().size())
      fail(task_name(t) + " has another number of buffers than arguments");
    for (std::size_t k = 0; k < task.uses.size(); ++k) {
      const Buffer& b = plan_.buffers[static_cast<std::size_t>(task.uses[k].buffer)];
      if (b.device != task.device) fail(task_name(t) + " touches '" + b.name + "' of another device");
      if (b.kind == BufferKind::step || b.kind == BufferKind::costs) continue;
      if (!same_layout(b.desc, task.prepared->args()[k]))
        fail(task_name(t) + " expects '" + b.name + "' as " + task.prepared->args()[k].layout_name() +
             ", but it is " + b.desc.layout_name());
      if (task.prepared->args()[k].bytes() > b.bytes) fail(task_name(t) + " reaches beyond '" + b.name + "'");
    }
    const std::int64_t workspace =
        task.workspace < 0 ? 0 : plan_.buffers[static_cast<std::size_t>(task.workspace)].bytes;
    if (workspace < task.prepared->workspace_bytes()) fail(task_name(t) + " has too small a workspace");
  }

  /// Every read has its write before it; any two tasks that touch a buffer, one of them writing, are ordered.
  void check_buffer(std::size_t b) const {
    const Buffer& buffer = plan_.buffers[b];
    const bool filled_before = buffer.persistent() || buffer.kind == BufferKind::input;
    for (const Use& use : uses_[b]) {
      if (use.reads && !filled_before) {
        const bool written = std::any_of(uses_[b].begin(), uses_[b].end(), [&](const Use& other) {
          return other.writes && is_before(other.task, use.task);
        });
        if (!written) fail(task_name(use.task) + " reads '" + buffer.name + "' before anything wrote it");
      }
      for (const Use& other : uses_[b]) {
        if (other.task == use.task || !(use.writes || other.writes)) continue;
        if (!ordered(use.task, other.task))
          fail(task_name(use.task) + " and " + task_name(other.task) + " touch '" + buffer.name +
               "' in no fixed order");
      }
      const auto writes_before = std::count_if(uses_[b].begin(), uses_[b].end(), [&](const Use& other) {
        return other.writes && is_before(other.task, use.task);
      });
      if (use.version >= 0 && writes_before != use.version)
        fail(task_name(use.task) + " uses '" + buffer.name + "' after " + std::to_string(writes_before) +
             " writes, not after " + std::to_string(use.version));
    }
  }

  /// What the graph asks for and no other task reads: every cost is computed, and every matrix that learns is
  /// updated once.
  void check_results() const {
    for (const Node& node : graph_.nodes) {
      const auto tasks = [&](TaskKind kind) {
        return std::count_if(plan_.tasks.begin(), plan_.tasks.end(),
                             [&](const Task& t) { return t.node == node.id && t.kind == kind; });
      };
      for (std::size_t i = 0; i < node.owners.size(); ++i) {
        if (node.owners[i] == WeightOwner{node.id, static_cast<int>(i)}) check_updates(node, i);
      }
      if (node.is_cost() && tasks(TaskKind::forward) != 1)
        fail("cost '" + node.name + "' is not computed once");
    }
  }

  /// A matrix is updated once if any layer that uses it makes a gradient of it.
  void check_updates(const Node& owner, std::size_t i) const {
    const std::string name = owner.name + "." + owner.layer->weights[i].name;
    const bool learns = std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& user) {
      for (std::size_t k = 0; k < user.owners.size(); ++k) {
        if (user.gets_gradient && user.owners[k] == WeightOwner{owner.id, static_cast<int>(i)} &&
            graph_.learns(user, k))
          return true;
      }
      return false;
    });
    const auto updates = std::count_if(plan_.tasks.begin(), plan_.tasks.end(), [&](const Task& t) {
      return std::holds_alternative<Update>(t.op) &&
             plan_.buffers[static_cast<std::size_t>(t.uses[0].buffer)].name == name;
    });
    const std::ptrdiff_t wanted = plan_.phase != Phase::test && learns ? 1 : 0;
    if (updates != wanted)
      fail("'" + name + "' has " + std::to_string(updates) + " updates, not " + std::to_string(wanted));
  }

  bool share_memory(const Buffer& a, const Buffer& b) const {
    return a.device == b.device && a.persistent() == b.persistent() && a.offset >= 0 && b.offset >= 0 &&
           a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
  }

  /// Buffers that share memory: all uses of one come before all uses of the other.
  void check_memory() const {
    for (std::size_t a = 0; a < plan_.buffers.size(); ++a) {
      const Buffer& first = plan_.buffers[a];
      if (first.kind != BufferKind::input && first.offset < 0 && !uses_[a].empty())
        fail("'" + first.name + "' has no place");
      const DeviceMemoryNeeds& needs = plan_.memory.at(static_cast<std::size_t>(first.device));
      if (!uses_[a].empty() &&
          first.offset + first.bytes > (first.persistent() ? needs.persistent : needs.transient))
        fail("'" + first.name + "' lies outside the memory asked for");
      for (std::size_t b = a + 1; b < plan_.buffers.size(); ++b) {
        const Buffer& second = plan_.buffers[b];
        if (!share_memory(first, second) || uses_[a].empty() || uses_[b].empty()) continue;
        const auto all_before = [&](const std::vector<Use>& x, const std::vector<Use>& y) {
          return std::all_of(x.begin(), x.end(), [&](const Use& p) {
            return std::all_of(y.begin(), y.end(), [&](const Use& q) { return is_before(p.task, q.task); });
          });
        };
        if (first.persistent() || !(all_before(uses_[a], uses_[b]) || all_before(uses_[b], uses_[a])))
          fail("'" + first.name + "' and '" + second.name + "' share memory while both are in use");
      }
    }
  }

  const Plan& plan_;
  const Graph& graph_;
  std::size_t words_;
  std::vector<std::uint64_t> before_;
  std::vector<std::vector<Use>> uses_;
};

}  // namespace

void verify(const Plan& plan, const Graph& graph) { Verifier(plan, graph).run(); }

}  // namespace convnet
