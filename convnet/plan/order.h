// The order of a plan's tasks: what each must wait for, and what that implies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "convnet/plan/plan.h"

namespace convnet {

/// Which tasks are certainly done when another starts, by the order of streams and dependencies.
class TaskOrder {
 public:
  /// Throws std::logic_error if a task waits for one that does not come before it in the list. The plan must
  /// outlive the order.
  explicit TaskOrder(const Plan& plan);
  bool is_before(std::size_t a, std::size_t b) const { return has(&before_[b * words_], a); }

  /// Some tasks, and what comes before them.
  struct Group {
    std::vector<std::size_t> last;            ///< the last task of the group on each stream
    std::vector<std::uint64_t> before_first;  ///< a bit for each task that is before all of them
  };
  Group group(std::vector<std::size_t> tasks) const;
  /// Whether every task of `a` is before every task of `b`.
  static bool all_before(const Group& a, const Group& b);

 private:
  static bool has(const std::uint64_t* bits, std::size_t task) {
    return ((bits[task / 64] >> (task % 64)) & 1U) != 0;
  }

  const Plan& plan_;
  std::size_t words_;
  std::vector<std::uint64_t> before_;  ///< by task, a bit per task
};

/// Versions of all uses, and from them the dependencies: tasks.after is made anew.
void find_dependencies(Plan& plan);

}  // namespace convnet
