// Concatenation, its inverse, and sums of neighbouring features: copies of runs of each image's memory.
#include <cstring>
#include <stdexcept>

#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

std::int64_t features(const Dims& dims) { return element_count({dims.begin() + 1, dims.end()}); }

/// Part of the features of a larger tensor.
struct Part {
  Dims dims;
  std::int64_t offset = 0;  ///< in (C,H,W) order
};

/// Whether the parts are runs of memory of `whole` when all of them are stored as nChw{block}c.
bool fits_blocks(const Dims& whole, const std::vector<Part>& parts, std::int64_t block) {
  if (whole.size() != 4) return false;
  const std::int64_t spatial = whole[2] * whole[3];
  if (spatial == 0) return false;
  return std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
    if (part.dims.size() != 4 || part.dims[2] != whole[2] || part.dims[3] != whole[3]) return false;
    if (part.offset % (block * spatial) != 0) return false;
    // The last block of `whole` may be partly padding; the part that ends with it has the same padding.
    return part.dims[1] % block == 0 || part.offset + features(part.dims) == features(whole);
  });
}

/// The block of the layout that copies work in: that of the first argument that lies blocked now, if the
/// parts fit; else 1, plain.
std::int64_t choose_block(const OpDesc& op, const Dims& whole, const std::vector<Part>& parts,
                          const LayoutHints& hints) {
  const std::vector<Argument> args = arguments(op);
  for (std::size_t i = 0; i < std::min(args.size(), hints.size()); ++i) {
    if (!hints[i]) continue;
    const auto view = activation_view({args[i].dims, args[i].type, hints[i]->layout});
    if (view && view->block > 1 && fits_blocks(whole, parts, view->block)) return view->block;
  }
  return 1;
}

std::vector<TensorDesc> tensors_in(std::int64_t block, const OpDesc& op) {
  std::vector<TensorDesc> tensors = argument_tensors(op);
  if (block > 1)
    for (TensorDesc& t : tensors) t = blocked_activations(t.dims, static_cast<int>(block));
  return tensors;
}

/// Floats of one image in memory.
std::int64_t stored_features(const Dims& dims, std::int64_t block) {
  if (block == 1) return features(dims);
  return (dims[1] + block - 1) / block * block * dims[2] * dims[3];
}

/// Copies `count` floats of every image.
void copy_runs(std::int64_t n, const float* src, std::int64_t src_stride, float* dst, std::int64_t dst_stride,
               std::int64_t count) {
#pragma omp parallel for schedule(static) if (n * count >= kParallelElements)
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(dst + i * dst_stride, src + i * src_stride, static_cast<std::size_t>(count) * sizeof(float));
}

}  // namespace

Prepared prepare(const Concat& op, const LayoutHints& hints) {
  std::vector<Part> parts;
  std::int64_t offset = 0;
  for (const Dims& dims : op.from) {
    parts.push_back({dims, offset});
    offset += features(dims);
  }
  if (offset != features(op.to)) throw std::logic_error("concat: the inputs do not fill " + to_string(op.to));
  const std::int64_t block = choose_block(op, op.to, parts, hints);
  std::vector<std::int64_t> offsets, counts;
  for (const Part& part : parts) {
    offsets.push_back(part.offset);
    counts.push_back(stored_features(part.dims, block));
  }
  return std::make_shared<KernelOp>(
      tensors_in(block, op), [offsets, counts, n = op.to[0],
                              stride = stored_features(op.to, block)](std::span<std::byte* const> args) {
        for (std::size_t k = 0; k < counts.size(); ++k)
          copy_runs(n, as_floats(args[k]), counts[k], as_floats(args.back()) + offsets[k], stride, counts[k]);
      });
}

Prepared prepare(const Split& op, const LayoutHints& hints) {
  if (op.offset < 0 || op.offset + features(op.to) > features(op.from))
    throw std::logic_error("split: " + to_string(op.to) + " does not fit into " + to_string(op.from));
  const std::int64_t block = choose_block(op, op.from, {{op.to, op.offset}}, hints);
  const std::int64_t count = stored_features(op.to, block);
  return std::make_shared<KernelOp>(
      tensors_in(block, op), [=, n = op.to[0], offset = op.offset,
                              stride = stored_features(op.from, block)](std::span<std::byte* const> args) {
        copy_runs(n, as_floats(args[0]) + offset, stride, as_floats(args[1]), count, count);
      });
}

Prepared prepare(const GroupSumForward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const std::int64_t outputs = op.c / op.stride;
#pragma omp parallel for schedule(static) if (op.n * op.c >= kParallelElements)
    for (std::int64_t n = 0; n < op.n; ++n) {
      const float* src = as_floats(args[0]) + n * op.c;
      float* dst = as_floats(args[1]) + n * outputs;
      for (std::int64_t j = 0; j < outputs; ++j, src += op.stride) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t k = 0; k < op.stride; ++k) sum += src[k];
        dst[j] = sum;
      }
    }
  });
}

Prepared prepare(const GroupSumBackward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const std::int64_t outputs = op.c / op.stride;
#pragma omp parallel for schedule(static) if (op.n * op.c >= kParallelElements)
    for (std::int64_t n = 0; n < op.n; ++n) {
      const float* diff_dst = as_floats(args[0]) + n * outputs;
      float* diff_src = as_floats(args[1]) + n * op.c;
      for (std::int64_t j = 0; j < outputs; ++j)
        std::fill_n(diff_src + j * op.stride, op.stride, diff_dst[j]);
      std::fill(diff_src + outputs * op.stride, diff_src + op.c, 0.0F);  // of a last, incomplete group
    }
  });
}

}  // namespace convnet::cpu::own
