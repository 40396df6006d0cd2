// Concatenation, its inverse, and other selections of maps: copies of runs of each image's memory.
#include <array>
#include <cstring>
#include <stdexcept>

#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

std::int64_t features(const Dims& dims) { return element_count({dims.begin() + 1, dims.end()}); }

/// The most maps that layouts store together (ActivationView::block).
constexpr std::size_t kMostMaps = 16;

using Part = Split::Part;  // part of the features of a larger tensor

/// Returns whether each part is a run of the memory of `whole` if all of them are stored as nChw{block}c.
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

/// The layout and the type of all arguments of a copy.
struct Form {
  std::int64_t block;  ///< 1 is plain
  DataType type;
};

/// Chooses the block of the first argument with a blocked layout into which the parts fit; if there is none,
/// the arguments are plain. Their type is that of the first argument.
Form choose_form(const OpDesc& op, const Dims& whole, const std::vector<Part>& parts,
                 const LayoutHints& hints) {
  Form form{1, hinted_type(hints, 0)};
  const std::vector<Argument> args = arguments(op);
  for (std::size_t i = 0; i < std::min(args.size(), hints.size()); ++i) {
    if (!hints[i]) continue;
    const auto view = activation_view({args[i].dims, hints[i]->type, hints[i]->layout});
    if (view && view->block > 1 && fits_blocks(whole, parts, view->block)) {
      form.block = view->block;
      break;
    }
  }
  return form;
}

std::vector<TensorDesc> tensors_in(const Form& form, const OpDesc& op) {
  std::vector<TensorDesc> tensors = argument_tensors(op);
  for (TensorDesc& t : tensors) {
    if (form.block > 1)
      t = blocked_activations(t.dims, static_cast<int>(form.block), form.type);
    else
      t.type = form.type;
  }
  return tensors;
}

/// Returns the number of bytes of one image in memory.
std::int64_t stored_bytes(const Dims& dims, const Form& form) {
  if (form.block == 1) return features(dims) * size_of(form.type);
  return (dims[1] + form.block - 1) / form.block * form.block * dims[2] * dims[3] * size_of(form.type);
}

/// The bytes of each image of the whole tensor that are a part.
struct Run {
  std::int64_t begin, bytes;
};
std::vector<Run> runs_of(const std::vector<Part>& parts, const Form& form) {
  std::vector<Run> runs;
  for (const Part& part : parts)
    runs.push_back({part.offset * size_of(form.type), stored_bytes(part.dims, form)});
  return runs;
}

/// Copies `count` bytes of every image.
void copy_runs(std::int64_t n, const std::byte* src, std::int64_t src_stride, std::byte* dst,
               std::int64_t dst_stride, std::int64_t count) {
#pragma omp parallel for schedule(static) if (n * count >= kParallelElements * size_of(DataType::f32))
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(dst + i * dst_stride, src + i * src_stride, static_cast<std::size_t>(count));
}

/// The maps that a block of the result takes. Tensors may have a block of one map, which is plain.
class BlockOfMaps {
 public:
  /// `first`: the block's first map. `from` and `to` are the views of the source and of the result.
  BlockOfMaps(const MapOrder& order, std::int64_t first, const ActivationView& from, const ActivationView& to)
      : block_(to.block), spatial_(to.spatial) {
    for (std::int64_t lane = 0; lane < std::min(block_, to.c - first); ++lane) {
      const std::int64_t map = order.source(first + lane);
      if (map < 0) continue;
      const std::int64_t at = map / from.block * from.block * from.spatial + map % from.block;
      sources_[static_cast<std::size_t>(count_++)] = {at, lane};
    }
    is_run_ = count_ == block_ && sources_[0].at % block_ == 0;
    for (std::int64_t i = 0; i < count_; ++i)
      is_run_ = is_run_ && sources_[static_cast<std::size_t>(i)].at == sources_[0].at + i;
  }

  /// Copies the block of one image.
  template <class T>
  void copy(const T* image, T* dst) const {
    const std::int64_t numbers = spatial_ * block_;
    if (is_run_) {
      std::copy_n(image + sources_[0].at, numbers, dst);
      return;
    }
    if (count_ < block_) std::fill_n(dst, numbers, T{});
    for (std::int64_t s = 0; s < numbers; s += block_)
      for (std::int64_t i = 0; i < count_; ++i) {
        const Source& source = sources_[static_cast<std::size_t>(i)];
        dst[s + source.lane] = image[source.at + s];
      }
  }

 private:
  struct Source {
    std::int64_t at = 0;    ///< where the map begins in its image
    std::int64_t lane = 0;  ///< its place in the block
  };
  std::int64_t block_, spatial_, count_ = 0;
  std::array<Source, kMostMaps> sources_;
  bool is_run_ = false;  ///< the maps are a block of the source
};

}  // namespace

Prepared prepare(const Concat& op, const LayoutHints& hints) {
  std::vector<Part> parts;
  std::int64_t offset = 0;
  for (const Dims& dims : op.from) {
    parts.push_back({dims, offset});
    offset += features(dims);
  }
  if (offset != features(op.to)) throw std::logic_error("concat: the inputs do not fill " + to_string(op.to));
  const Form form = choose_form(op, op.to, parts, hints);
  return std::make_shared<KernelOp>(
      tensors_in(form, op), [runs = runs_of(parts, form), stride = stored_bytes(op.to, form),
                             n = op.to[0]](std::span<std::byte* const> args) {
        for (std::size_t k = 0; k < runs.size(); ++k)
          copy_runs(n, args[k], runs[k].bytes, args.back() + runs[k].begin, stride, runs[k].bytes);
      });
}

Prepared prepare(const Split& op, const LayoutHints& hints) {
  for (const Part& part : op.to) {
    if (part.offset < 0 || part.offset + features(part.dims) > features(op.from))
      throw std::logic_error("split: " + to_string(part.dims) + " does not fit into " + to_string(op.from));
  }
  const Form form = choose_form(op, op.from, op.to, hints);
  return std::make_shared<KernelOp>(
      tensors_in(form, op), [runs = runs_of(op.to, form), stride = stored_bytes(op.from, form),
                             n = op.from[0]](std::span<std::byte* const> args) {
        for (std::size_t k = 0; k < runs.size(); ++k)
          copy_runs(n, args[0] + runs[k].begin, stride, args[k + 1], runs[k].bytes, runs[k].bytes);
      });
}

Prepared prepare(const TakeMaps& op, const LayoutHints& hints) {
  const MapOrder order = op.order();
  const TensorDesc src = walkable(op.from, hints);
  const ActivationView from = activation_view(src).value();
  const TensorDesc dst = in_view(from, op.to, src.type);
  const ActivationView to = activation_view(dst).value();
  std::vector<BlockOfMaps> blocks;
  for (std::int64_t map = 0; map < to.c; map += to.block) blocks.emplace_back(order, map, from, to);
  return std::make_shared<KernelOp>(
      std::vector<TensorDesc>{src, dst},
      [blocks = std::move(blocks), from, to, type = src.type](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          const T* const images = as<T>(args[0]);
          T* const dst_blocks = as<T>(args[1]);
          const std::int64_t in_image = std::ssize(blocks);
#pragma omp parallel for schedule(static) if (to.size() >= kParallelElements)
          for (std::int64_t i = 0; i < to.n * in_image; ++i)
            blocks[static_cast<std::size_t>(i % in_image)].copy(
                images + i / in_image * from.padded_c * from.spatial, dst_blocks + i * to.block * to.spatial);
        });
      });
}

}  // namespace convnet::cpu::own
