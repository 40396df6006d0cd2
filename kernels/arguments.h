// Lists of arguments, for the own kernels of all backends.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace convnet {

/// The layout of argument `index`, of type `type`, where it is decided already; null (plain) otherwise.
inline std::shared_ptr<const Layout> hinted_layout(const LayoutHints& hints, std::size_t index,
                                                   DataType type = DataType::f32) {
  return index < hints.size() && hints[index] ? with_type(*hints[index], type).layout : nullptr;
}

/// The type of argument `index` where it is one that activations are stored as, else f32: what operations
/// that read either follow.
inline DataType hinted_type(const LayoutHints& hints, std::size_t index) {
  const bool bf16 = index < hints.size() && hints[index] && hints[index]->type == DataType::bf16;
  return bf16 ? DataType::bf16 : DataType::f32;
}
/// Argument `index` as it lies, and is stored, now; a plain tensor of f32 where that is not decided.
inline TensorDesc hinted_activation(const Dims& dims, const LayoutHints& hints, std::size_t index) {
  const DataType type = hinted_type(hints, index);
  return {dims, type, hinted_layout(hints, index, type)};
}

/// The arguments of `op`: `layout` for those with the first one's dims and type, plain for the others.
inline std::vector<TensorDesc> argument_tensors(const OpDesc& op,
                                                const std::shared_ptr<const Layout>& layout = nullptr) {
  const std::vector<Argument> args = arguments(op);
  std::vector<TensorDesc> tensors;
  for (const Argument& arg : args) {
    const bool like_first = arg.dims == args[0].dims && arg.type == args[0].type;
    tensors.push_back({arg.dims, arg.type, like_first ? layout : nullptr});
  }
  return tensors;
}

/// The same, where `main` says how the first argument lies and of what type it is.
inline std::vector<TensorDesc> argument_tensors(const OpDesc& op, const TensorDesc& main) {
  std::vector<TensorDesc> tensors = argument_tensors(op);
  const TensorDesc first = tensors[0];
  for (TensorDesc& tensor : tensors)
    if (tensor.dims == first.dims && tensor.type == first.type) tensor = main;
  return tensors;
}

inline float* as_floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }

}  // namespace convnet
