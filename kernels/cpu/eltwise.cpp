// Sums, maxima and products of several tensors: flat loops over the memory, whatever the layout; padding
// holds zeros everywhere and so gives zeros. Products by map go over the maps.
#include <array>
#include <stdexcept>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/own_kernel.h"
#include "kernels/functors.h"

namespace convnet::cpu::own {
namespace {

/// The arguments of `op`, all as the first one lies and is stored, and their numbers in memory.
struct Flat {
  std::vector<TensorDesc> tensors;
  DataType type;
  std::int64_t count = 0;

  Flat(const OpDesc& op, const Dims& dims, std::size_t inputs, const LayoutHints& hints)
      : tensors(argument_tensors(op, hinted_activation(dims, hints, 0))), type(tensors[0].type) {
    if (inputs == 0) throw std::logic_error(op_name(op) + ": no inputs");
    count = stored_numbers(tensors[0]);
  }
};

// These are functions, not lambdas, because compilers do not vectorise loops over captured pointers well.

template <class Source, class T>
void scale(const Source* __restrict src, float coeff, std::int64_t count, T* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = stored_as<T>(coeff * to_float(src[i]));
}

template <class T, class Sum>
void scale_two(const T* __restrict a, float coeff_a, const T* __restrict b, float coeff_b, std::int64_t count,
               Sum* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    dst[i] = stored_as<Sum>(coeff_a * to_float(a[i]) + coeff_b * to_float(b[i]));
}

template <class T>
void max_of_two(const T* __restrict a, const T* __restrict b, std::int64_t count, T* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = beats(to_float(b[i]), to_float(a[i])) ? b[i] : a[i];
}

template <class T>
void max_of(const T* __restrict src, std::int64_t count, T* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    dst[i] = beats(to_float(src[i]), to_float(dst[i])) ? src[i] : dst[i];
}

/// Zeroes `diff` where a value of `own` is not the maximum because of `other`, which comes before it or
/// after.
template <class T>
void keep_winners(const T* __restrict own, const T* __restrict other, bool before, std::int64_t count,
                  T* __restrict diff) {
  // NOLINTNEXTLINE(bugprone-branch-clone): clang-tidy does not see that the two loops differ
  if (before) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i)
      diff[i] = beats(to_float(own[i]), to_float(other[i])) ? diff[i] : T{};
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i)
      diff[i] = beats(to_float(other[i]), to_float(own[i])) ? T{} : diff[i];
  }
}

template <class T>
void multiply(const T* __restrict a, const T* __restrict b, std::int64_t count, T* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = stored_as<T>(to_float(a[i]) * to_float(b[i]));
}

// The maps that are stored together as a block are a run of memory, whose number i belongs to map i % block.
// Blocks divide kLanes, so each lane of a row of kLanes numbers belongs to one map.
constexpr int kLanes = 16;
using Floats = Lanes<float, kLanes>;
using Doubles = Lanes<double, kLanes>;

/// Calls body(position, numbers) for a run's rows of kLanes numbers; the last one may have fewer.
template <class Body>
void for_rows_of(std::int64_t run, const Body& body) {
  std::int64_t at = 0;
  for (; at + kLanes <= run; at += kLanes) body(at, AllLanes<kLanes>{});
  if (at < run) body(at, static_cast<std::size_t>(run - at));
}

/// Calls body(first map, number of maps, offset of the run) for the blocks of maps of all images, in
/// parallel. Maps are counted over all images, each of which has view.c.
template <class Body>
void for_blocks(const ActivationView& view, const Body& body) {
  const std::int64_t blocks = view.padded_c / view.block, run = view.spatial * view.block;
#pragma omp parallel for schedule(static) if (view.size() >= kParallelElements)
  for (std::int64_t i = 0; i < view.n * blocks; ++i)
    body(i / blocks * view.c + i % blocks * view.block,
         std::min(view.block, view.c - i % blocks * view.block), i * run);
}

/// The arguments of an operation on maps (N,C,H,W) or vectors (N,C): those with the dims of the first one lie
/// as that one does, the others, with a number for each map, are plain. All have its type.
struct Maps {
  std::vector<TensorDesc> tensors;
  DataType type;
  ActivationView view;

  Maps(const OpDesc& op, const Dims& dims, const LayoutHints& hints) {
    const TensorDesc first = walkable(dims, hints);
    tensors = argument_tensors(op, first);
    type = first.type;
    for (TensorDesc& tensor : tensors) tensor.type = type;
    view = activation_view(first).value();
  }
};

}  // namespace

Prepared prepare(const EltwiseSum& op, const LayoutHints& hints) {
  const Flat flat(op, op.dims, op.coeffs.size(), hints);
  return std::make_shared<KernelOp>(flat.tensors, [coeffs = op.coeffs, type = flat.type,
                                                   count = flat.count](std::span<std::byte* const> args) {
    with_stored(type, [&]<class T>(T) {
      T* dst = as<T>(args.back());
      for_pieces(count, [=, &coeffs](std::int64_t begin, std::int64_t end) {
        const auto src = [=](std::size_t k) -> const T* { return as<T>(args[k]) + begin; };
        if (coeffs.size() == 1) return scale(src(0), coeffs[0], end - begin, dst + begin);
        if (coeffs.size() == 2)
          return scale_two(src(0), coeffs[0], src(1), coeffs[1], end - begin, dst + begin);
        std::array<float, kPieceElements> sums;  // rounded once
        scale_two(src(0), coeffs[0], src(1), coeffs[1], end - begin, sums.data());
        for (std::size_t k = 2; k < coeffs.size(); ++k)
          add_scaled(src(k), coeffs[k], end - begin, sums.data());
        scale(sums.data(), 1, end - begin, dst + begin);
      });
    });
  });
}

Prepared prepare(const EltwiseMax& op, const LayoutHints& hints) {
  const auto inputs = static_cast<std::size_t>(op.inputs);
  const Flat flat(op, op.dims, inputs, hints);
  return std::make_shared<KernelOp>(
      flat.tensors, [inputs, type = flat.type, count = flat.count](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          T* dst = as<T>(args.back());
          for_pieces(count, [=](std::int64_t begin, std::int64_t end) {
            const auto src = [=](std::size_t k) -> const T* { return as<T>(args[k]) + begin; };
            if (inputs == 1)
              std::copy_n(src(0), end - begin, dst + begin);
            else
              max_of_two(src(0), src(1), end - begin, dst + begin);
            for (std::size_t k = 2; k < inputs; ++k) max_of(src(k), end - begin, dst + begin);
          });
        });
      });
}

Prepared prepare(const EltwiseMaxBackward& op, const LayoutHints& hints) {
  const auto inputs = static_cast<std::size_t>(op.inputs), index = static_cast<std::size_t>(op.index);
  const Flat flat(op, op.dims, inputs, hints);
  if (index >= inputs) throw std::logic_error("eltmax: no input " + std::to_string(index));
  return std::make_shared<KernelOp>(
      flat.tensors, [inputs, index, type = flat.type, count = flat.count](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          const T* diff_dst = as<T>(args[inputs]);
          T* diff_src = as<T>(args[inputs + 1]);
          for_pieces(count, [=](std::int64_t begin, std::int64_t end) {
            std::copy_n(diff_dst + begin, end - begin, diff_src + begin);
            for (std::size_t k = 0; k < inputs; ++k)
              if (k != index)
                keep_winners<T>(as<T>(args[index]) + begin, as<T>(args[k]) + begin, k < index, end - begin,
                                diff_src + begin);
          });
        });
      });
}

Prepared prepare(const EltwiseProduct& op, const LayoutHints& hints) {
  if (!op.by_map) {
    const Flat flat(op, op.dims, 2, hints);
    return std::make_shared<KernelOp>(
        flat.tensors, [type = flat.type, count = flat.count](std::span<std::byte* const> args) {
          with_stored(type, [&]<class T>(T) {
            const T *a = as<T>(args[0]), *b = as<T>(args[1]);
            T* dst = as<T>(args[2]);
            for_pieces(count, [=](std::int64_t begin, std::int64_t end) {
              multiply(a + begin, b + begin, end - begin, dst + begin);
            });
          });
        });
  }
  const Maps maps(op, op.dims, hints);
  return std::make_shared<KernelOp>(
      maps.tensors, [type = maps.type, view = maps.view](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          const T *a = as<T>(args[0]), *b = as<T>(args[1]);
          T* dst = as<T>(args[2]);
          for_blocks(view, [=](std::int64_t map, std::int64_t maps_here, std::int64_t offset) {
            Floats factors;
            for (int lane = 0; lane < kLanes; ++lane)
              if (lane % view.block < maps_here) factors.set(lane, to_float(b[map + lane % view.block]));
            for_rows_of(view.spatial * view.block, [&](std::int64_t at, auto numbers) {
              Floats v;
              load_lanes(a + offset + at, numbers, v);
              store_lanes(dst + offset + at, numbers, v * factors);
            });
          });
        });
      });
}

Prepared prepare(const MapProductSums& op, const LayoutHints& hints) {
  const Maps maps(op, op.dims, hints);
  return std::make_shared<KernelOp>(
      maps.tensors, [type = maps.type, view = maps.view](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          const T *a = as<T>(args[0]), *b = as<T>(args[1]);
          T* sums = as<T>(args[2]);
          for_blocks(view, [=](std::int64_t map, std::int64_t maps_here, std::int64_t offset) {
            Doubles total;
            for_rows_of(view.spatial * view.block, [&](std::int64_t at, auto numbers) {
              Floats x, y;
              load_lanes(a + offset + at, numbers, x);
              load_lanes(b + offset + at, numbers, y);
              total += to_doubles(x) * to_doubles(y);
            });
            for (std::int64_t m = 0; m < maps_here; ++m) {
              double sum = 0;
              for (std::int64_t lane = m; lane < kLanes; lane += view.block) sum += total[lane];
              sums[map + m] = stored_as<T>(static_cast<float>(sum));
            }
          });
        });
      });
}

}  // namespace convnet::cpu::own
