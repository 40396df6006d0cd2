// Locally-connected layers: for every position one matrix product over the images, with the position's window
// gathered into the second-level cache. Activations are nChw16c and weights hold their channels innermost, so
// that whole vectors are gathered; backward-data gathers too, for every input pixel, and adds nothing up in
// memory. Threads share positions (or pixels) and fixed groups of images.
#include <omp.h>

#include <atomic>
#include <numeric>
#include <utility>

#include "kernels/cpu/interleave.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/own_kernel.h"
#include "kernels/cpu/relayout.h"

namespace convnet::cpu::own {
namespace {

constexpr int kLanes = 16;

std::int64_t padded(std::int64_t channels) { return (channels + kLanes - 1) / kLanes * kLanes; }

/// Activations as [n][blocks][pixels][16].
struct Blocked {
  Blocked(std::int64_t channels, std::int64_t pixels_) : blocks(padded(channels) / kLanes), pixels(pixels_) {}
  std::int64_t blocks, pixels;
  std::int64_t offset(std::int64_t n, std::int64_t channel, std::int64_t pixel) const {
    return ((n * blocks + channel / kLanes) * pixels + pixel) * kLanes + channel % kLanes;
  }
};

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

/// Copies the 16 channels of a pixel in each of `blocks` blocks to `out`, and returns the end of the copy.
/// `in` points to the pixel in the first block; `ahead` is the distance to the floats that are prefetched.
float* copy_blocks(const float* in, std::int64_t blocks, std::int64_t block_floats, std::int64_t ahead,
                   float* out) {
  for (std::int64_t i = 0; i < blocks; ++i, in += block_floats, out += kLanes) {
    // Images lie too far apart for the processor to foresee what is read next.
    __builtin_prefetch(in + ahead);
    Vector<float, kLanes>::Type lanes;
    load(in, lanes);
    store(out, lanes);
  }
  return out;
}

/// Makes a row for each image, of the `channels` of the given pixels, one pixel after the other. Rows are
/// row_floats apart. Writes up to 15 floats past the last row.
void gather(const float* tensor, const Blocked& view, Range images, const std::vector<std::int64_t>& pixels,
            Range channels, float* rows, std::int64_t row_floats) {
  const std::int64_t block_floats = view.pixels * kLanes;
  const std::int64_t ahead = 2 * view.blocks * block_floats;
  // The channels up to the first whole block, then blocks, of which the last may be taken in part.
  const std::int64_t head = std::min((kLanes - channels.begin % kLanes) % kLanes, channels.size());
  const std::int64_t rest = channels.size() - head, blocks = padded(rest) / kLanes;
  for (std::int64_t n = images.begin; n < images.end; ++n, rows += row_floats) {
    float* out = rows;
    for (const std::int64_t pixel : pixels) {
      if (head > 0) out = std::copy_n(tensor + view.offset(n, channels.begin, pixel), head, out);
      const float* in = tensor + view.offset(n, channels.begin + head, pixel);
      out = copy_blocks(in, blocks, block_floats, ahead, out);
      out -= blocks * kLanes - rest;  // what the last block has too many is overwritten
    }
  }
}

/// The work that is done on results while they are written: dst = [dst +] rows [+ bias], then max(0,x).
struct Finish {
  bool accumulate = false, relu = false;
};
/// Writes a row for each image to all channels of one pixel, the opposite of gather(). Rows and `bias` hold
/// 16 * blocks floats.
template <bool Accumulate, bool Relu>
void scatter(const float* rows, const float* bias, const Blocked& view, Range images, std::int64_t pixel,
             float* tensor) {
  for (std::int64_t n = images.begin; n < images.end; ++n) {
    for (std::int64_t block = 0; block < view.blocks; ++block, rows += kLanes) {
      float* out = tensor + view.offset(n, block * kLanes, pixel);
#pragma omp simd
      for (std::int64_t i = 0; i < kLanes; ++i) {
        float v = rows[i] + bias[block * kLanes + i];
        if constexpr (Accumulate) v += out[i];
        if constexpr (Relu) v = v < 0 ? 0 : v;
        out[i] = v;
      }
    }
  }
}
void scatter(Finish finish, const float* rows, const float* bias, const Blocked& view, Range images,
             std::int64_t pixel, float* tensor) {
  const auto with = [&](auto accumulate, auto relu) {
    scatter<accumulate(), relu()>(rows, bias, view, images, pixel, tensor);
  };
  if (finish.accumulate)
    return finish.relu ? with(std::true_type{}, std::true_type{}) : with(std::true_type{}, std::false_type{});
  finish.relu ? with(std::false_type{}, std::true_type{}) : with(std::false_type{}, std::false_type{});
}

/// The part of a window that lies inside the image, row by row.
struct Window {
  std::vector<std::int64_t> pixels;  ///< indices in the image
  std::vector<Range> runs;           ///< taps of these pixels, as runs of consecutive taps
};
/// Returns the window of output position `p`.
Window window(const LocalGeometry& g, std::int64_t p) {
  Window w;
  const WindowLine rows = g.rows(), columns = g.columns();
  for (std::int64_t tap = 0; tap < g.filter.area(); ++tap) {
    const std::int64_t y = rows.origin(p / g.ow) + tap / g.filter.x * g.dilation.y;
    const std::int64_t x = columns.origin(p % g.ow) + tap % g.filter.x * g.dilation.x;
    if (!rows.holds(y) || !columns.holds(x)) continue;
    w.pixels.push_back(y * g.w + x);
    if (w.runs.empty() || w.runs.back().end != tap) w.runs.push_back({tap, tap});
    w.runs.back().end = tap + 1;
  }
  return w;
}

/// The output positions whose windows hold an input pixel, and the tap of each window that lies on it.
struct Users {
  std::vector<std::int64_t> positions, taps;
};
Users users_of(const LocalGeometry& g, std::int64_t pixel) {
  Users users;
  for (std::int64_t fy = 0; fy < g.filter.y; ++fy) {
    for (std::int64_t fx = 0; fx < g.filter.x; ++fx) {
      const std::int64_t y = pixel / g.w + g.pad.y - fy * g.dilation.y;
      const std::int64_t x = pixel % g.w + g.pad.x - fx * g.dilation.x;
      if (y < 0 || x < 0 || y % g.stride.y != 0 || x % g.stride.x != 0) continue;
      if (y / g.stride.y >= g.oh || x / g.stride.x >= g.ow) continue;
      users.positions.push_back(y / g.stride.y * g.ow + x / g.stride.x);
      users.taps.push_back(fy * g.filter.x + fx);
    }
  }
  return users;
}

/// Sizes of the matrix products of one position and one group.
struct Sizes {
  explicit Sizes(const LocalGeometry& g)
      : inputs(g.c / g.groups),
        outputs(g.k / g.groups),
        taps(g.filter.area()),
        row(taps * inputs),
        src(g.c, g.h * g.w),
        dst(g.k, g.oh * g.ow) {}
  std::int64_t inputs, outputs;  ///< channels of a group
  std::int64_t taps, row;        ///< number of pixels, and of values, in a window
  Blocked src, dst;
};

/// Transposes the filters of a group and position, for the taps inside the image: columns[i][k] is value i of
/// filter k. The rows of `columns` are padded(outputs) apart. (oneDNN's product of rows with rows would take
/// a third longer.)
void transpose_filters(const Sizes& s, const Window& taps, const float* filters, float* columns) {
  const std::int64_t stride = padded(s.outputs);
  for (const Range& run : taps.runs) {
    const std::int64_t length = run.size() * s.inputs;
    for (std::int64_t k = 0; k < s.outputs; k += kRows)
      interleave(filters + k * s.row + run.begin * s.inputs, s.row,
                 std::min<std::int64_t>(kRows, s.outputs - k), length, columns + k, stride);
    columns += length * stride;
  }
}

/// The division of the images into `count` pieces, whose gathered rows fit into the second-level cache.
struct Pieces {
  Pieces(std::int64_t n, std::int64_t row_floats) {
    constexpr std::int64_t kRowsFloats = 131072;
    const std::int64_t most = std::max<std::int64_t>(kRowsFloats / std::max<std::int64_t>(row_floats, 1), 16);
    count = std::max<std::int64_t>((n + most - 1) / most, 1);
    images = (n + count - 1) / count;
    all = n;
  }
  std::int64_t count, images, all;
  Range operator[](std::int64_t i) const {
    return {std::min(all, i * images), std::min(all, (i + 1) * images)};
  }
};

/// Returns `used` floats rounded up to whole cache lines.
std::int64_t scratch_floats(std::int64_t used) { return padded(used); }

/// An operation whose threads each have scratch memory.
class ThreadedOp : public PreparedOp {
 public:
  /// `task(pointers, index, scratch)` is called for all indices below `tasks`; false means that it failed.
  using Task = std::function<bool(std::span<std::byte* const>, std::int64_t, float*)>;
  ThreadedOp(std::string name, std::vector<TensorDesc> args, std::int64_t tasks,
             std::int64_t floats_per_thread, Task task)
      : name_(std::move(name)),
        tasks_(tasks),
        floats_(floats_per_thread),
        threads_(omp_get_max_threads()),
        task_(std::move(task)) {
    args_ = std::move(args);
    workspace_bytes_ = threads_ * floats_ * size_of(DataType::f32);
  }
  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue*) const override {
    std::atomic<bool> good = true;
#pragma omp parallel num_threads(std::min(threads_, omp_get_max_threads()))
    {
      // This holds in this region only. Without it, oneDNN's matrix product would use all threads if this
      // team has only one.
      omp_set_num_threads(1);
      float* scratch = as_floats(workspace) + omp_get_thread_num() * floats_;
#pragma omp for schedule(dynamic)
      for (std::int64_t i = 0; i < tasks_; ++i)
        if (!task_(pointers, i, scratch)) good = false;
    }
    if (!good) throw DeviceError(name_ + ": oneDNN's matrix product failed, perhaps for want of memory");
  }

 private:
  std::string name_;
  std::int64_t tasks_, floats_;
  int threads_;
  Task task_;
};

/// Returns the tensor (OH,OW,O,I/groups,H,W) of the weights, with the input channels innermost in memory.
TensorDesc local_weights(const LocalGeometry& g) {
  const Sizes s(g);
  const Dims strides = {g.ow * g.k * s.row, g.k * s.row, s.row, 1, g.filter.x * s.inputs, s.inputs};
  return from_dnnl({g.weights(), dnnl::memory::data_type::f32, strides}, g.weights());
}

/// Returns the arguments as the kernels want them: blocked activations, weights as local_weights() lays them,
/// plain biases.
std::vector<TensorDesc> inner_tensors(const OpDesc& op, const LocalGeometry& g) {
  std::vector<TensorDesc> tensors = argument_tensors(op);
  for (TensorDesc& t : tensors) {
    if (t.dims.size() == 4) t = blocked_activations(t.dims, kLanes);
    if (t.dims.size() == 6) t = local_weights(g);
  }
  return tensors;
}

/// Runs `inner` on activations that stay plain if they are hinted plain: they may be flat vectors that are
/// read as maps, which no other operation can reorder.
Prepared in_hinted_layouts(const OpDesc& op, const Prepared& inner, const LayoutHints& hints) {
  std::vector<TensorDesc> outer = inner->args();
  for (std::size_t i = 0; i < outer.size(); ++i)
    if (outer[i].dims.size() == 4 && i < hints.size() && hints[i] && hints[i]->plain())
      outer[i].layout = nullptr;
  return std::make_shared<RelaidOp>(op, inner, outer);
}

}  // namespace

Prepared prepare(const LocalForward& op, const LayoutHints& hints) {
  const LocalGeometry g = op.g;
  const Sizes s(g);
  const Pieces pieces(g.n, s.row);
  const std::int64_t columns = scratch_floats(pieces.images * s.row + kLanes);
  const std::int64_t width = padded(g.k);
  const auto task = [=, bias = op.bias, finish = Finish{op.accumulate, op.relu}](
                        std::span<std::byte* const> args, std::int64_t index, float* scratch) {
    const std::int64_t position = index / pieces.count;
    const Range images = pieces[index % pieces.count];
    const Window taps = window(g, position);
    const std::int64_t terms = std::ssize(taps.pixels) * s.inputs;
    float* results = scratch + columns;
    float* biases = results + pieces.images * width;
    float* weights = biases + width;
    std::fill_n(biases, width, 0.0F);
    if (bias) std::copy_n(as_floats(args[2]) + position * g.k, g.k, biases);
    for (std::int64_t n = 0; n < images.size(); ++n)
      std::fill_n(results + n * width + g.k, width - g.k, 0.0F);
    for (std::int64_t group = 0; group < g.groups; ++group) {
      const Range channels{group * s.inputs, (group + 1) * s.inputs};
      gather(as_floats(args[0]), s.src, images, taps.pixels, channels, scratch, terms);
      const float* filters = as_floats(args[1]) + (position * g.k + group * s.outputs) * s.row;
      transpose_filters(s, taps, filters, weights);
      if (!multiply({.m = images.size(),
                     .n = s.outputs,
                     .k = terms,
                     .a = scratch,
                     .lda = terms,
                     .b = weights,
                     .ldb = padded(s.outputs),
                     .c = results + group * s.outputs,
                     .ldc = width}))
        return false;
    }
    scatter(finish, results, biases, s.dst, images, position, as_floats(args.back()));
    return true;
  };
  return in_hinted_layouts(
      op,
      std::make_shared<ThreadedOp>(op_name(op), inner_tensors(op, g), g.oh * g.ow * pieces.count,
                                   columns + (pieces.images + 1) * width + s.row * padded(s.outputs), task),
      hints);
}

Prepared prepare(const LocalBackwardData& op, const LayoutHints& hints) {
  const LocalGeometry g = op.g;
  const Sizes s(g);
  // No more windows than this have a tap on a pixel. Those along a side are as many as the taps whose
  // distances from it are multiples of the stride.
  const auto along = [](const WindowLine& line) {
    const std::int64_t taps_apart = line.stride / std::gcd(line.stride, line.dilation);
    return (line.size + taps_apart - 1) / taps_apart;
  };
  const std::int64_t most = along(g.rows()) * along(g.columns()) * s.outputs;
  const Pieces pieces(g.n, most);
  const std::int64_t rows = scratch_floats(pieces.images * most + kLanes);
  const std::int64_t weights_floats = scratch_floats(most * s.inputs);
  const std::int64_t width = padded(g.c);
  const auto task = [=](std::span<std::byte* const> args, std::int64_t index, float* scratch) {
    const std::int64_t pixel = index / pieces.count;
    const Range images = pieces[index % pieces.count];
    const Users users = users_of(g, pixel);
    const std::int64_t terms = std::ssize(users.positions) * s.outputs;
    float* weights = scratch + rows;
    float* results = weights + weights_floats;
    float* zeros = results + pieces.images * width;
    std::fill_n(zeros, width, 0.0F);
    for (std::int64_t n = 0; n < images.size(); ++n)
      std::fill_n(results + n * width + g.c, width - g.c, 0.0F);
    for (std::int64_t group = 0; group < g.groups; ++group) {
      const Range channels{group * s.outputs, (group + 1) * s.outputs};
      gather(as_floats(args[0]), s.dst, images, users.positions, channels, scratch, terms);
      float* out = weights;
      for (std::size_t u = 0; u < users.taps.size(); ++u) {
        const float* in = as_floats(args[1]) + (users.positions[u] * g.k + channels.begin) * s.row +
                          users.taps[u] * s.inputs;
        for (std::int64_t k = 0; k < s.outputs; ++k, in += s.row) out = std::copy_n(in, s.inputs, out);
      }
      if (!multiply({.m = images.size(),
                     .n = s.inputs,
                     .k = terms,
                     .a = scratch,
                     .lda = terms,
                     .b = weights,
                     .ldb = s.inputs,
                     .c = results + group * s.inputs,
                     .ldc = width}))
        return false;
    }
    scatter({}, results, zeros, s.src, images, pixel, as_floats(args[2]));
    return true;
  };
  return in_hinted_layouts(
      op,
      std::make_shared<ThreadedOp>(op_name(op), inner_tensors(op, g), g.h * g.w * pieces.count,
                                   rows + weights_floats + (pieces.images + 1) * width, task),
      hints);
}

Prepared prepare(const LocalBackwardWeights& op, const LayoutHints& hints) {
  const LocalGeometry g = op.g;
  const Sizes s(g);
  const Pieces pieces(g.n, s.row);
  const std::int64_t columns = scratch_floats(pieces.images * s.row + kLanes);
  const std::int64_t width = padded(g.k);
  const auto task = [=, bias = op.bias](std::span<std::byte* const> args, std::int64_t position,
                                        float* scratch) {
    const Window taps = window(g, position);
    const std::int64_t terms = std::ssize(taps.pixels) * s.inputs;
    if (std::ssize(taps.pixels) < s.taps)
      std::fill_n(as_floats(args[2]) + position * g.k * s.row, g.k * s.row, 0.0F);
    float* diffs = scratch + columns;
    float* bias_sums = diffs + pieces.images * width + kLanes;
    std::fill_n(bias_sums, width, 0.0F);
    for (std::int64_t i = 0; i < pieces.count; ++i) {
      const Range images = pieces[i];
      gather(as_floats(args[1]), s.dst, images, {position}, {0, width}, diffs, width);
      for (std::int64_t n = 0; n < images.size() && bias; ++n) {
#pragma omp simd
        for (std::int64_t k = 0; k < width; ++k) bias_sums[k] += diffs[n * width + k];
      }
      for (std::int64_t group = 0; group < g.groups; ++group) {
        const Range channels{group * s.inputs, (group + 1) * s.inputs};
        gather(as_floats(args[0]), s.src, images, taps.pixels, channels, scratch, terms);
        float* weights = as_floats(args[2]) + (position * g.k + group * s.outputs) * s.row;
        const float* inputs = scratch;
        for (const Range& run : taps.runs) {
          const std::int64_t length = run.size() * s.inputs;
          if (!multiply({.trans_a = 'T',
                         .m = s.outputs,
                         .n = length,
                         .k = images.size(),
                         .a = diffs + group * s.outputs,
                         .lda = width,
                         .b = inputs,
                         .ldb = terms,
                         .c = weights + run.begin * s.inputs,
                         .ldc = s.row,
                         .accumulate = i > 0}))
            return false;
          inputs += length;
        }
      }
    }
    if (bias) std::copy_n(bias_sums, g.k, as_floats(args[3]) + position * g.k);
    return true;
  };
  return in_hinted_layouts(
      op,
      std::make_shared<ThreadedOp>(op_name(op), inner_tensors(op, g), g.oh * g.ow,
                                   columns + scratch_floats((pieces.images + 1) * width + kLanes), task),
      hints);
}

}  // namespace convnet::cpu::own
