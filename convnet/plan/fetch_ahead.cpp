#include "convnet/plan/fetch_ahead.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace convnet {
namespace {

class Mover {
 public:
  explicit Mover(Plan& plan) : plan_(plan), buffers_(plan.buffers.size()) {
    for (const TaskId t : plan.tasks.ids()) {
      const Task& task = plan.tasks[t];
      if (task.kind == TaskKind::backward) first_backward_.try_emplace({task.node, task.pass}, t);
      if (task.kind != TaskKind::copy) continue;
      for (const BufferUse& use : task.uses) buffers_[use.buffer].travels = true;
    }
  }

  void run() {
    std::map<TaskId, std::vector<TaskId>> before;  // by task: those that are moved to before it
    std::set<TaskId> moved;
    for (const TaskId t : plan_.tasks.ids()) {
      const TaskId place = place_of(t);
      if (place.exists()) {
        before[place].push_back(t);
        moved.insert(t);
      }
      for (const BufferUse& use : plan_.tasks[t].uses) {
        BufferState& buffer = buffers_[use.buffer];
        if (!place.exists()) buffer.used_by_others = true;
        if (use.access == Access::read) continue;
        if (place.exists())
          buffer.moved = std::max(buffer.moved, place);
        else
          buffer.stays = t;
      }
    }
    if (moved.empty()) return;
    Table<TaskId, Task> old = std::exchange(plan_.tasks, {});
    for (const TaskId t : old.ids()) {
      for (const TaskId early : before[t]) plan_.tasks.push_back(std::move(old[early]));
      if (moved.count(t) == 0) plan_.tasks.push_back(std::move(old[t]));
    }
  }

 private:
  struct BufferState {
    bool travels = false;         ///< a copy reads or writes it
    bool used_by_others = false;  ///< by a task that stays where it is
    // Several tasks may write chunks of it, and some of them be moved, to different places.
    TaskId stays;  ///< its last writer so far that stays where it is
    TaskId moved;  ///< the last task before which a moved writer goes
  };

  /// Returns the task before which a copy goes, or none if it stays. A reorder goes along with the copy that
  /// reads its result. A stage of a pipeline may run forward on the images of a pass before it runs backward
  /// on those of the pass before; such a copy is early where it is.
  TaskId place_of(TaskId t) const {
    const Task& task = plan_.tasks[t];
    const bool copies = task.kind == TaskKind::copy && is_for_layers(task.stream);
    if (task.pass == 0 || !(copies || task.kind == TaskKind::reorder)) return {};
    const auto backward = first_backward_.find({task.node, task.pass - 1});
    if (backward == first_backward_.end()) return {};
    TaskId place = backward->second;
    for (const BufferUse& use : task.uses) {
      const BufferState& buffer = buffers_[use.buffer];
      if (use.access != Access::read) {
        if (buffer.used_by_others || !buffer.travels) return {};
      } else {
        if (!buffer.stays.exists() && !buffer.moved.exists()) return {};
        place = std::max(place, buffer.moved);
        if (buffer.stays > place) return {};
      }
    }
    if (place > t) return {};
    return place;
  }

  Plan& plan_;
  std::map<std::pair<NodeId, int>, TaskId> first_backward_;  ///< by layer and pass
  Table<BufferId, BufferState> buffers_;
};

}  // namespace

void fetch_ahead(Plan& plan) { Mover(plan).run(); }

}  // namespace convnet
