#include "convnet/plan/split.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
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
        if (use.access != Access::read) forget(use.buffer);
      }
      plan_.tasks.push_back(std::move(task));
    }
  }

 private:
  /// A part of another process's buffer that is in this process, too.
  struct Landed {
    std::int64_t begin = 0, bytes = -1;
    BufferId landing;
  };

  bool is_elsewhere(const Task& task, const BufferUse& use) const {
    const Buffer& buffer = plan_.buffers[use.buffer];
    return buffer.kind != BufferKind::input && !plan_.topology.same_process(buffer.device, task.device);
  }

  /// Makes the task read buffers of other processes from landing buffers of its own process.
  void fetch(Task& task) {
    std::map<DeviceId, std::vector<BufferUse>> missing;  // by the device that has it
    for (const BufferUse& use : task.uses) {
      if (is_elsewhere(task, use) && !find(task, use))
        missing[plan_.buffers[use.buffer].device].push_back(use);
    }
    for (const auto& [device, uses] : missing) add_message(device, task, uses);
    for (BufferUse& use : task.uses) {
      if (is_elsewhere(task, use)) use = {*find(task, use), Access::read, 0, 0, use.bytes};
    }
  }

  std::optional<BufferId> find(const Task& task, const BufferUse& use) const {
    const auto of_buffer = landed_.find({use.buffer, plan_.topology.process(task.device)});
    if (of_buffer == landed_.end()) return std::nullopt;
    for (const Landed& landed : of_buffer->second) {
      if (landed.begin == use.begin && landed.bytes == use.bytes) return landed.landing;
    }
    return std::nullopt;
  }

  /// Adds the two ends of a message from device `from` with the data that `task` needs from there.
  void add_message(DeviceId from, const Task& task, const std::vector<BufferUse>& uses) {
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
    for (const BufferUse& use : uses) {
      if (find(task, use)) continue;  // the task reads it twice
      const Buffer& source = plan_.buffers[use.buffer];
      const bool whole = use.bytes < 0;
      const TensorDesc desc = whole ? source.desc : TensorDesc{{use.bytes}, DataType::u8, nullptr};
      const BufferId landing = add_buffer(plan_.buffers, source.name, BufferKind::landing, task.device, desc);
      landed_[{use.buffer, plan_.topology.process(task.device)}].push_back({use.begin, use.bytes, landing});
      send.uses.push_back({use.buffer, Access::read, 0, use.begin, use.bytes});
      receive.uses.push_back({landing, Access::write, 0, 0, use.bytes});
      send.form.change().args.push_back(desc);
      receive.form.change().args.push_back(desc);
    }
    send.partner = TaskId(plan_.tasks.next_id().value() + 1);
    receive.partner = plan_.tasks.next_id();
    plan_.tasks.push_back(std::move(send));
    plan_.tasks.push_back(std::move(receive));
  }

  /// Forgets the landing buffers of a buffer, which has been written again.
  void forget(BufferId buffer) {
    landed_.erase(landed_.lower_bound({buffer, 0}),
                  landed_.lower_bound({buffer, plan_.topology.processes()}));
  }

  Plan& plan_;
  std::map<std::pair<BufferId, int>, std::vector<Landed>> landed_;  ///< by buffer and process
};

}  // namespace

void split_between_processes(Plan& plan) {
  if (plan.topology.processes() > 1) Splitter(plan).split();
}

}  // namespace convnet
