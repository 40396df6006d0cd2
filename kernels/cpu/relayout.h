// Runs an operation on arguments in other layouts than those that its kernel supports.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/prepare.h"

namespace convnet::cpu {

/// Runs `inner`. Arguments whose layouts differ from those of `inner` are copied to the workspace before, or
/// from there afterwards.
class RelaidOp : public PreparedOp {
 public:
  /// `outer` are the arguments of `op` in the layouts that the caller has.
  RelaidOp(const OpDesc& op, Prepared inner, std::vector<TensorDesc> outer) : inner_(std::move(inner)) {
    args_ = std::move(outer);
    algorithm_ = inner_->algorithm();
    const std::vector<Argument> arguments_of_op = arguments(op);
    std::int64_t shared = inner_->workspace_bytes();
    for (std::size_t i = 0; i < args_.size(); ++i) {
      const TensorDesc& wanted = inner_->args()[i];
      if (same_layout(args_[i], wanted)) continue;
      Copy copy{i, workspace_bytes_, nullptr, nullptr};
      if (arguments_of_op[i].access != Access::write) copy.in = prepare(Reorder{args_[i], wanted}, {});
      if (arguments_of_op[i].access != Access::read) copy.out = prepare(Reorder{wanted, args_[i]}, {});
      for (const Prepared& reorder : {copy.in, copy.out})
        if (reorder) shared = std::max(shared, reorder->workspace_bytes());
      workspace_bytes_ += aligned(wanted.bytes());
      copies_.push_back(std::move(copy));
    }
    shared_offset_ = workspace_bytes_;
    workspace_bytes_ += shared;
  }

  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const override {
    std::vector<std::byte*> inner(pointers.begin(), pointers.end());
    for (const Copy& copy : copies_) inner[copy.arg] = workspace + copy.offset;
    std::byte* shared = workspace + shared_offset_;
    for (const Copy& copy : copies_)
      if (copy.in) copy.in->run(std::vector{pointers[copy.arg], inner[copy.arg]}, shared, queue);
    inner_->run(inner, shared, queue);
    for (const Copy& copy : copies_)
      if (copy.out) copy.out->run(std::vector{inner[copy.arg], pointers[copy.arg]}, shared, queue);
  }

 private:
  struct Copy {
    std::size_t arg;
    std::int64_t offset;  ///< byte offset in the workspace
    Prepared in, out;     ///< reorders before and after; null if the argument is not read, or not written
  };

  Prepared inner_;
  std::vector<Copy> copies_;
  std::int64_t shared_offset_ = 0;  ///< offset of the workspace that the reorders and `inner` share
};

}  // namespace convnet::cpu
