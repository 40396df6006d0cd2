// Makes the lists of argument tensors of our own kernels, for all backends.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace convnet {

/// Returns the layout of argument `index` for elements of type `type` if `hints` decide it; else null
/// (plain).
inline std::shared_ptr<const Layout> hinted_layout(const LayoutHints& hints, std::size_t index,
                                                   DataType type = DataType::f32) {
  return index < hints.size() && hints[index] ? with_type(*hints[index], type).layout : nullptr;
}

/// Returns the type in which argument `index`, an activation, is stored: bf16 if `hints` say so, else f32.
inline DataType hinted_type(const LayoutHints& hints, std::size_t index) {
  const bool bf16 = index < hints.size() && hints[index] && hints[index]->type == DataType::bf16;
  return bf16 ? DataType::bf16 : DataType::f32;
}
/// Returns argument `index`, an activation, with the layout and the type that `hints` give it; a plain tensor
/// of f32 if they leave that open.
inline TensorDesc hinted_activation(const Dims& dims, const LayoutHints& hints, std::size_t index) {
  const DataType type = hinted_type(hints, index);
  return {dims, type, hinted_layout(hints, index, type)};
}

/// Returns the arguments of `op`. Those with the dims and the type of the first one have `layout`, the others
/// are plain.
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

/// Returns the arguments of `op`. Those with the dims and the type of the first one are replaced by `main`,
/// the others are plain.
inline std::vector<TensorDesc> argument_tensors(const OpDesc& op, const TensorDesc& main) {
  std::vector<TensorDesc> tensors = argument_tensors(op);
  const TensorDesc first = tensors[0];
  for (TensorDesc& tensor : tensors)
    if (tensor.dims == first.dims && tensor.type == first.type) tensor = main;
  return tensors;
}

inline float* as_floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }

}  // namespace convnet
