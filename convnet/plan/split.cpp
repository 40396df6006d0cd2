#include "convnet/plan/split.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

namespace convnet {
namespace {

class Splitter {
 public:
  explicit Splitter(Plan& plan) : plan_(plan) {}

  void split() {
    Table<TaskId, Task> tasks = std::exchange(plan_.tasks, {});
    for (Task& task : tasks) {
      if (communicates(task.kind)) fetch(task);
      for (const BufferUse& use : task.uses) {
        if (use.access != Access::read) note_write(use);
      }
      if (!task.uses.empty()) plan_.tasks.push_back(std::move(task));
    }
  }

 private:
  /// A part of another process's buffer that is in this process, too: as many bytes as `copy`, from `begin`
  /// on.
  struct Landed {
    std::int64_t begin = 0;
    BufferUse copy;
  };
  using Key = std::pair<BufferId, int>;  ///< a buffer, and a process of another device

  /// A message brings `from` to `to`, or to a landing buffer if there is none.
  struct Piece {
    BufferUse from;
    std::optional<BufferUse> to;
    NodeId owner;  ///< the layer of the matrix that it is for; none if the task is for no layer's matrix
  };

  bool is_elsewhere(const Task& task, const BufferUse& use) const {
    const Buffer& buffer = plan_.buffers[use.buffer];
    return buffer.kind != BufferKind::input && !plan_.topology.same_process(buffer.device, task.device);
  }

  /// Makes the task read buffers of other processes from landing buffers of its own process. What the task
  /// would only copy is received where it copies it to; nothing is left of a task that does no more.
  void fetch(Task& task) {
    const auto* copies = std::get_if<CopyRuns>(&*task.op);
    std::map<DeviceId, std::vector<Piece>> missing;  // by the device that has it
    NodeId owner;
    for (std::size_t k = 0; k < task.uses.size(); ++k) {
      const BufferUse& use = task.uses[k];
      // A matrix's gradients follow it, or its sum, in the list of arguments.
      if (plan_.buffers[use.buffer].node.exists()) owner = plan_.buffers[use.buffer].node;
      if (!is_elsewhere(task, use) || find(task, use) != nullptr) continue;
      const bool is_copied = copies != nullptr && !copies->runs[k].rounds;
      missing[plan_.buffers[use.buffer].device].push_back(
          {use, is_copied ? std::optional(task.uses[copies->runs.size() + k]) : std::nullopt, owner});
    }
    for (const auto& [device, pieces] : missing) add_message(device, task, pieces);
    for (BufferUse& use : task.uses) {
      if (is_elsewhere(task, use)) use = find(task, use)->copy;
    }
    if (copies != nullptr) leave_out_received(task, *copies);
  }

  /// Leaves out the runs of a task that copy from where they copy to.
  static void leave_out_received(Task& task, const CopyRuns& copies) {
    const std::size_t count = copies.runs.size();
    CopyRuns op;
    std::vector<BufferUse> uses;
    std::vector<TensorDesc> args;
    std::vector<bool> kept;
    for (std::size_t i = 0; i < count; ++i) {
      const BufferUse &from = task.uses[i], &to = task.uses[count + i];
      kept.push_back(from.buffer != to.buffer || from.begin != to.begin);
      if (kept[i]) op.runs.push_back(copies.runs[i]);
    }
    if (op.runs.size() == count) return;
    for (std::size_t k = 0; k < task.uses.size(); ++k) {
      if (k < 2 * count && !kept[k % count]) continue;  // runs that are rounded are kept
      uses.push_back(task.uses[k]);
      args.push_back(task.form->args[k]);
    }
    task.uses = std::move(uses);
    task.form.change().args = std::move(args);
    task.op = OpDesc(std::move(op));
  }

  const Landed* find(const Task& task, const BufferUse& use) const {
    const auto of_buffer = landed_.find({use.buffer, plan_.topology.process(task.device)});
    if (of_buffer == landed_.end()) return nullptr;
    for (const Landed& landed : of_buffer->second) {
      if (landed.begin == use.begin && landed.copy.bytes == use.bytes) return &landed;
    }
    return nullptr;
  }

  /// Adds the two ends of a message from device `from` with the data that `task` needs from there.
  void add_message(DeviceId from, const Task& task, const std::vector<Piece>& pieces) {
    Task send;
    send.kind = TaskKind::send;
    const bool for_layers = is_for_layers(task.stream);
    send.stream = for_layers ? Stream::send : Stream::send_update;
    send.device = from;
    send.node = task.node;
    send.microbatch = task.microbatch;
    send.pass = task.pass;
    Task receive = send;
    receive.kind = TaskKind::receive;
    receive.stream = for_layers ? Stream::receive : Stream::receive_update;
    receive.device = task.device;
    for (const Piece& piece : pieces) {
      const BufferUse& use = piece.from;
      if (find(task, use) != nullptr) continue;  // the task reads it twice
      const Buffer& source = plan_.buffers[use.buffer];
      const bool whole = use.bytes < 0;
      const TensorDesc desc = whole ? source.desc : TensorDesc{{use.bytes}, DataType::u8, nullptr};
      BufferUse copy{BufferId(), Access::read, 0, 0, use.bytes};
      if (piece.to) {
        copy.buffer = piece.to->buffer;
        copy.begin = piece.to->begin;
        note_write(*piece.to);
      } else {
        copy.buffer = add_buffer(plan_.buffers, source.name, BufferKind::landing, task.device, desc);
        plan_.buffers[copy.buffer].node = piece.owner;
      }
      const Key key{use.buffer, plan_.topology.process(task.device)};
      landed_[key].push_back({use.begin, copy});
      landed_in_[copy.buffer].insert(key);
      send.uses.push_back({use.buffer, Access::read, 0, use.begin, use.bytes});
      receive.uses.push_back({copy.buffer, Access::write, 0, copy.begin, use.bytes});
      send.form.change().args.push_back(desc);
      receive.form.change().args.push_back(desc);
    }
    send.partner = TaskId(plan_.tasks.next_id().value() + 1);
    receive.partner = plan_.tasks.next_id();
    plan_.tasks.push_back(std::move(send));
    plan_.tasks.push_back(std::move(receive));
  }

  /// Forgets what has landed of a buffer that is written, and what had landed in the bytes that are.
  void note_write(const BufferUse& use) {
    landed_.erase(landed_.lower_bound({use.buffer, 0}),
                  landed_.lower_bound({use.buffer, plan_.topology.processes()}));
    const auto sources = landed_in_.find(use.buffer);
    if (sources == landed_in_.end()) return;
    const auto end = [&](const BufferUse& of) { return of.begin + bytes_of(plan_, of); };
    for (const Key& key : sources->second) {
      const auto landed = landed_.find(key);
      if (landed == landed_.end()) continue;
      std::erase_if(landed->second, [&](const Landed& l) {
        return l.copy.buffer == use.buffer && l.copy.begin < end(use) && use.begin < end(l.copy);
      });
    }
  }

  Plan& plan_;
  std::map<Key, std::vector<Landed>> landed_;
  std::map<BufferId, std::set<Key>> landed_in_;  ///< by the buffer that has the copies
};

}  // namespace

void split_between_processes(Plan& plan) {
  if (plan.topology.processes() > 1) Splitter(plan).split();
}

}  // namespace convnet
