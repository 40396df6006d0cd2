// Helpers of our own kernels: argument lists, and parallel loops whose results do not depend on the number of
// threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/bf16.h"
#include "kernels/cpu/activation_view.h"
#include "kernels/cpu/own_kernels.h"

namespace convnet::cpu {

/// Returns argument `index`, an activation, with the type and the layout that `hints` give it; plain if that
/// is a layout that ActivationView cannot describe.
inline TensorDesc walkable(const Dims& dims, const LayoutHints& hints, std::size_t index = 0) {
  TensorDesc tensor = hinted_activation(dims, hints, index);
  if (!activation_view(tensor)) tensor.layout = nullptr;
  return tensor;
}

/// Calls f(T{}) with the C++ type T in which numbers of `type`, f32 or bf16, are stored.
template <class F>
void with_stored(DataType type, const F& f) {
  if (type == DataType::bf16)
    f(BFloat16{});
  else
    f(float{});
}
/// Returns the memory of an argument as numbers of type T.
template <class T>
T* as(std::byte* memory) {
  return reinterpret_cast<T*>(memory);
}

/// Returns a tensor with the layout of `view`.
inline TensorDesc in_view(const ActivationView& view, const Dims& dims, DataType type = DataType::f32) {
  if (view.block == 1) return {dims, type, nullptr};
  return blocked_activations(dims, static_cast<int>(view.block), type);
}

/// Returns the arguments of `op`, all of them plain; activations have the type that `hints` give to argument
/// 0.
inline std::vector<TensorDesc> plain_activations(const OpDesc& op, const LayoutHints& hints) {
  std::vector<TensorDesc> tensors = argument_tensors(op);
  for (TensorDesc& t : tensors)
    if (t.type == DataType::f32 && t.dims.size() > 1) t.type = hinted_type(hints, 0);
  return tensors;
}

/// Returns the number of elements in memory, padding included.
inline std::int64_t stored_numbers(const TensorDesc& tensor) { return tensor.bytes() / size_of(tensor.type); }

/// dst[i] += factor * src[i]. This is a function of its own because compilers do not vectorise it well on
/// pointers that a lambda captures.
template <class Source, class T>
void add_scaled(const Source* __restrict src, float factor, std::int64_t count, T* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    dst[i] = stored_as<T>(to_float(dst[i]) + factor * to_float(src[i]));
}

/// dst[i] = src[i], rounded. It is a function for the same reason.
inline void round_to_bf16(const float* __restrict src, std::int64_t count, BFloat16* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = to_bf16(src[i]);
}

/// Below this many elements, waking a second thread costs more than it saves.
constexpr std::int64_t kParallelElements = 16384;

/// The most elements of a piece in for_pieces().
constexpr std::int64_t kPieceElements = 4096;

/// Calls body(begin, end) for pieces of [0, count), in parallel. The pieces are the same for any number of
/// threads, because vectorised loops may round their last elements differently.
template <class Body>
void for_pieces(std::int64_t count, const Body& body) {
  const std::int64_t pieces = (count + kPieceElements - 1) / kPieceElements;
#pragma omp parallel for schedule(static) if (count >= kParallelElements)
  for (std::int64_t i = 0; i < pieces; ++i)
    body(i * kPieceElements, std::min(count, (i + 1) * kPieceElements));
}

/// Kernels that sum over images divide them into at most so many parts with sums of their own, which are
/// added in order, so that sums do not depend on the number of threads.
constexpr std::int64_t kMostParts = 8;

/// Divides the blocks of each of `groups` groups of images into ranges of neighbours, so that there are
/// equally many ranges for each thread. Ranges are as long as they can be, because processors fetch long runs
/// of memory ahead, but not short ones.
class BlockRanges {
 public:
  BlockRanges(std::int64_t groups, std::int64_t blocks) : blocks_(blocks) {
    const std::int64_t threads = omp_get_max_threads();
    count_ = std::min(blocks, threads / std::gcd(groups, threads));
  }
  std::int64_t count() const { return count_; }
  /// Returns the first block of a range, and of count() the number of blocks.
  std::int64_t begin(std::int64_t range) const { return blocks_ * range / count_; }

 private:
  std::int64_t blocks_, count_;
};

/// Zeroes the padding behind the last channel in pixels [begin, end) of image `n`.
template <class T>
void zero_padding(const ActivationView& view, std::int64_t n, std::int64_t begin, std::int64_t end,
                  T* tensor) {
  if (view.c == view.padded_c) return;
  T* block = tensor + ((n + 1) * view.padded_c - view.block) * view.spatial;
  const std::int64_t used = view.block - (view.padded_c - view.c);
  for (std::int64_t s = begin; s < end; ++s)
    std::fill(block + s * view.block + used, block + (s + 1) * view.block, T{});
}

}  // namespace convnet::cpu
