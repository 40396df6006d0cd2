// Keeps the forms of operations. A plan has few different operations, each many times: for every device and
// microbatch.
#pragma once

#include <string>
#include <unordered_map>

#include "convnet/base/shared.h"
#include "kernels/target.h"

namespace convnet {

/// Asks a target once for each operation, and lets all tasks that run it share it and the answer.
class FormCache {
 public:
  /// The target must outlive the cache.
  explicit FormCache(const Target& target) : target_(target) {}

  struct Formed {
    Shared<OpDesc> op;
    Shared<OpForm> form;
  };
  /// Returns the operation and Target::form(op, hints).
  const Formed& form(const OpDesc& op, LayoutHints hints);

 private:
  /// The operation and its hints are kept because their layouts identify them.
  struct Known {
    Formed formed;
    LayoutHints hints;
  };

  const Target& target_;
  std::unordered_map<std::string, Known> known_;  ///< by all fields of operation and hints
  std::string key_;                               ///< memory that form() reuses
};

}  // namespace convnet
