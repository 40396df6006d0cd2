// The functions that prepare operations for the CPU. Target::form and Backend::bind (kernels/) have the
// contract.
#pragma once

#include <functional>
#include <memory>

#include "kernels/backend.h"

namespace convnet::cpu {

using Prepared = std::shared_ptr<const PreparedOp>;

/// Prepares any operation, with oneDNN or with our own kernels for the instruction set in use. `type` is the
/// type of the factors of products, and of the activations that they make.
Prepared prepare(const OpDesc& op, const LayoutHints& hints, DataType type = DataType::f32);

/// Prepares a product whose activations are stored as bf16, and which computes with f32 numbers, for
/// processors without products of bf16 numbers. Factors are rounded to bf16 as elsewhere.
Prepared prepare_in_f32(const OpDesc& op, const LayoutHints& hints);

/// Implements Target::fuses(): our own kernels can fuse, oneDNN's convolutions cannot.
bool fuses(const OpDesc& op, DataType type);

/// The operations that oneDNN carries out.
namespace onednn {
Prepared prepare(const ConvForward& op, const LayoutHints& hints, DataType type);
Prepared prepare(const ConvBackwardData& op, const LayoutHints& hints, DataType type);
Prepared prepare(const ConvBackwardWeights& op, const LayoutHints& hints, DataType type);
Prepared prepare(const InnerProductForward& op, const LayoutHints& hints, DataType type);
Prepared prepare(const InnerProductBackwardData& op, const LayoutHints& hints, DataType type);
Prepared prepare(const InnerProductBackwardWeights& op, const LayoutHints& hints, DataType type);
Prepared prepare(const Reorder& op, const LayoutHints& hints);
}  // namespace onednn

/// The operations of oneDNN whose factors have a type: convolutions and matrix products.
template <class Op>
concept OnednnProduct = requires(const Op& op, const LayoutHints& hints, DataType type) {
  onednn::prepare(op, hints, type);
};
/// All operations that oneDNN carries out. Our own kernels do the others.
template <class Op>
concept OnednnOp = OnednnProduct<Op> || requires(const Op& op, const LayoutHints& hints) {
  onednn::prepare(op, hints);
};

/// An operation without a workspace that calls a function with the memory of its arguments.
class KernelOp : public PreparedOp {
 public:
  using Kernel = std::function<void(std::span<std::byte* const>)>;
  KernelOp(std::vector<TensorDesc> args, Kernel kernel) : kernel_(std::move(kernel)) {
    args_ = std::move(args);
  }
  void run(std::span<std::byte* const> pointers, std::byte*, Queue*) const override { kernel_(pointers); }

 private:
  Kernel kernel_;
};

}  // namespace convnet::cpu
