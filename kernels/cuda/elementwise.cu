// Neurons, scaling, sums and copies: flat over the memory, whatever its layout.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/cuda/flat.h"
#include "kernels/cuda/ranges.h"
#include "kernels/cuda/sizes.h"
#include "kernels/functors.h"

namespace convnet::cuda {
namespace {

// These are classes because nvcc allows no device lambdas in generic lambdas.
template <class Functor>
struct Forward {
  Functor f;
  CONVNET_DEVICE float operator()(float x) const { return f.forward(x); }
};
template <class Functor>
struct Backward {
  Functor f;
  CONVNET_DEVICE float operator()(float saved, float diff_dst) const { return f.backward(saved, diff_dst); }
};
struct MultiplyBy {
  float factor;
  CONVNET_DEVICE float operator()(float x) const { return x * factor; }
};
struct Add {
  CONVNET_DEVICE float operator()(float x, float sum) const { return sum + x; }
};

/// The runs that one launch copies.
struct CopiedRuns {
  const float* src[Ranges::kMost];
  float* dst[Ranges::kMost];
  BFloat16* rounded[Ranges::kMost];  ///< null for runs that are not rounded
  bool aligned[Ranges::kMost];

  template <int Lanes>
  CONVNET_DEVICE void at(int run, std::int64_t i) const {
    const Vector<float, Lanes> values = reinterpret_cast<const Vector<float, Lanes>*>(src[run])[i];
    reinterpret_cast<Vector<float, Lanes>*>(dst[run])[i] = values;
    if (rounded[run] != nullptr)
      reinterpret_cast<Vector<BFloat16, Lanes>*>(rounded[run])[i] =
          Numbers<BFloat16, Lanes>::as_stored(values);
  }
};

/// The runs that one launch sums. They are its parameters, which have room for kMostGradients sources.
struct SummedRuns {
  struct Run {
    float* dst;
    bool adds;  ///< whether the sum continues that of an earlier launch
    short first_source, end_source;
  };
  Run runs[Ranges::kMost];
  bool aligned[Ranges::kMost];
  const float* sources[kMostGradients];  ///< sources of all runs

  template <int Lanes>
  CONVNET_DEVICE void at(int index, std::int64_t i) const {
    using Values = Vector<float, Lanes>;
    const Run& run = runs[index];
    Values* dst = reinterpret_cast<Values*>(run.dst);
    int k = run.first_source;
    Values total = run.adds ? dst[i] : reinterpret_cast<const Values*>(sources[k++])[i];
    CONVNET_UNROLL_BY(4)
    for (; k < run.end_source; ++k) {
      const Values more = reinterpret_cast<const Values*>(sources[k])[i];
      CONVNET_UNROLL
      for (int lane = 0; lane < Lanes; ++lane) total.lane[lane] += more.lane[lane];
    }
    dst[i] = total;
  }
};

/// A launch of SummedRuns under construction.
struct SumsLaunch {
  OverRuns<SummedRuns> work;
  int source_count = 0;

  /// Returns the number of sources that another run may have.
  int room() const { return work.pieces.full() ? 0 : static_cast<int>(kMostGradients) - source_count; }
  void add(float* dst, bool adds, std::span<std::byte* const> from, std::int64_t floats) {
    const int run = work.pieces.count();
    work.runs.runs[run] = {dst, adds, static_cast<short>(source_count),
                           static_cast<short>(source_count + static_cast<int>(from.size()))};
    work.runs.aligned[run] = is_aligned(dst) && all_aligned(from);
    for (std::byte* const source : from) work.runs.sources[source_count++] = as_floats(source);
    work.pieces.add(floats);
  }
};
void launch(Stream stream, const SumsLaunch& sums) { for_teams(stream, sums.work.pieces.total(), sums.work); }

/// Returns `v` as it is stored in type To.
template <class To, class From>
CONVNET_DEVICE To converted(From v) {
  if constexpr (std::is_same_v<From, To>)
    return v;
  else
    return stored_as<To>(to_float(v));
}

/// Copies elements from one layout and type to another.
template <class From, class To>
struct Relay {
  View from, to;
  const From* src;
  To* dst;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place p = to.place(i);
    dst[i] = converted<To>(src[from.index(p.n, p.c, p.s)]);
  }
};

/// Transposes a matrix for each image, from rows x columns to columns x rows. A team copies a square through
/// shared memory, so that neighbouring threads read, and then write, neighbouring elements.
template <class From, class To>
struct Transpose {
  static constexpr int kSide = sizeof(To) < 4 ? 64 : 32;  ///< of a square
  static constexpr int kPitch =
      kSide + 4 / static_cast<int>(sizeof(To));  ///< its columns are in several banks
  std::int64_t rows, columns, squares_up, squares_across;
  Divisor by_image, by_row;
  const From* src;
  To* dst;

  Transpose(std::int64_t rows_, std::int64_t columns_, std::span<std::byte* const> args)
      : rows(rows_),
        columns(columns_),
        squares_up((rows_ + kSide - 1) / kSide),
        squares_across((columns_ + kSide - 1) / kSide),
        by_image(squares_up * squares_across),
        by_row(squares_across),
        src(reinterpret_cast<const From*>(args[0])),
        dst(reinterpret_cast<To*>(args[1])) {}
  /// Returns whether squares are mostly full.
  static bool suits(std::int64_t rows, std::int64_t columns) { return std::min(rows, columns) >= kSide / 2; }
  std::int64_t teams(std::int64_t images) const { return images * squares_up * squares_across; }

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t i) const {
    To* const square = team.shared<To, kSide * kPitch>();
    const Quotient image = by_image.divide_index(i);
    const Quotient place = by_row.divide(static_cast<std::uint32_t>(image.rest));
    const std::int64_t row = place.value * kSide, column = place.rest * kSide;
    const From* const from = src + image.value * rows * columns;
    To* const to = dst + image.value * rows * columns;
    CONVNET_UNROLL_BY(4)
    for (int k = team.rank(); k < kSide * kSide; k += team.size()) {
      const int y = k / kSide, x = k % kSide;
      if (row + y < rows && column + x < columns)
        square[x * kPitch + y] = converted<To>(from[(row + y) * columns + column + x]);
    }
    team.wait();
    CONVNET_UNROLL_BY(4)
    for (int k = team.rank(); k < kSide * kSide; k += team.size()) {
      const int x = k / kSide, y = k % kSide;
      if (row + y < rows && column + x < columns) to[(column + x) * rows + row + y] = square[x * kPitch + y];
    }
    team.wait();  // the next square is written to the same memory
  }
};

template <class From, class To>
void relay(Stream stream, const View& from, const View& to, std::span<std::byte* const> args) {
  // Tensors of one channel or one pixel are the same in both layouts.
  if constexpr (!std::is_same_v<From, To>)
    if (from.last == to.last || to.c == 1 || to.spatial() == 1)
      return flat_unary<From, To>(stream, to.size(), args, Forward<IdentFunctor>{});
  const std::int64_t rows = from.last ? from.spatial() : from.c,
                     columns = from.last ? from.c : from.spatial();
  if (from.last != to.last && Transpose<From, To>::suits(rows, columns)) {
    const Transpose<From, To> transpose(rows, columns, args);
    return for_teams(stream, transpose.teams(to.n), transpose);
  }
  for_each(stream, to.size(),
           Relay<From, To>{from, to, reinterpret_cast<const From*>(args[0]), reinterpret_cast<To*>(args[1])});
}

}  // namespace

template <>
Prepared prepare(const NeuronForward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [f = op.f, type = form.args[0].type, count = element_count(op.dims)](
                Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          if (gives_probabilities(f))
            return flat_unary<T, float>(stream, count, args, Forward<LogisticFunctor>{});
          visit_neuron(f, [&](auto functor) {
            flat_unary<T, T>(stream, count, args, Forward<decltype(functor)>{functor});
          });
        });
      });
}

template <>
Prepared prepare(const NeuronBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [f = op.f, type = form.args.back().type, count = element_count(op.dims)](
                Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          if (gives_probabilities(f))
            return flat_binary<float, float, T>(stream, count, args, Backward<LogisticFunctor>{});
          visit_neuron(f, [&](auto functor) {
            flat_binary<T>(stream, count, args, Backward<decltype(functor)>{functor});
          });
        });
      });
}

template <>
Prepared prepare(const Scale& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [factor = op.factor, count = element_count(op.dims), type = form.args[0].type](
                Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          flat_unary<decltype(stored), decltype(stored)>(stream, count, args, MultiplyBy{factor});
        });
      });
}

template <>
Prepared prepare(const Accumulate& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [from = form.args[0].type, to = form.args[1].type, count = element_count(op.dims)](
                Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(from, [&](auto added) {
          with_stored_type(
              to, [&](auto sum) { flat_binary<decltype(added), decltype(sum)>(stream, count, args, Add{}); });
        });
      });
}

template <>
Prepared prepare(const CopyRuns& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [all = op.runs](Stream stream, std::span<std::byte* const> args, std::byte*) {
        std::size_t rounded = 2 * all.size();
        for (std::size_t run = 0; run < all.size();) {
          OverRuns<CopiedRuns> work;
          for (; run < all.size() && !work.pieces.full(); ++run) {
            std::byte *const from = args[run], *const to = args[all.size() + run],
                             *const also_to = all[run].rounds ? args[rounded++] : nullptr;
            const int k = work.pieces.count();
            work.runs.src[k] = as_floats(from);
            work.runs.dst[k] = as_floats(to);
            work.runs.rounded[k] = reinterpret_cast<BFloat16*>(also_to);
            work.runs.aligned[k] = is_aligned(from) && is_aligned(to) && is_aligned(also_to);
            work.pieces.add(all[run].count);
          }
          for_teams(stream, work.pieces.total(), work);
        }
      });
}

template <>
Prepared prepare(const SumRuns& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [runs = op.runs](Stream stream, std::span<std::byte* const> args, std::byte*) {
        SumsLaunch sums;
        for (const SumRuns::Run& run : runs) {
          // A run whose destination is one of its sources reads all of them before it writes: in one launch.
          const auto own = args.subspan(1, static_cast<std::size_t>(run.sources));
          const bool in_place = std::find(own.begin(), own.end(), args[0]) != own.end();
          if (in_place && run.sources > sums.room()) launch(stream, std::exchange(sums, {}));
          if (in_place && run.sources > sums.room())
            throw std::logic_error("sum: a destination is one of " + std::to_string(run.sources) +
                                   " sources, which is more than a launch can read");
          // Any other run of more sources than fit goes on in the next launch, where its sum so far comes
          // first.
          for (int summed = 0; summed < run.sources;) {
            if (sums.room() == 0) launch(stream, std::exchange(sums, {}));
            const int more = std::min(sums.room(), run.sources - summed);
            sums.add(as_floats(args[0]), summed > 0,
                     args.subspan(1 + static_cast<std::size_t>(summed), static_cast<std::size_t>(more)),
                     run.count);
            summed += more;
          }
          args = args.subspan(1 + static_cast<std::size_t>(run.sources));
        }
        launch(stream, sums);
      });
}

template <>
Prepared prepare(const FillZero& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [bytes = op.what.bytes()](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    std::byte* memory = args[0];
    // Arguments are aligned to kArgumentAlignment. Most of them consist of whole words of four bytes.
    auto* words = reinterpret_cast<std::uint32_t*>(memory);
    for_each(stream, bytes / 4, [=] CONVNET_DEVICE(std::int64_t i) { words[i] = 0; });
    const std::int64_t done = bytes / 4 * 4;
    for_each(stream, bytes - done, [=] CONVNET_DEVICE(std::int64_t i) { memory[done + i] = std::byte{0}; });
  });
}

template <>
Prepared prepare(const Reorder& op, const OpForm& form, const Context&) {
  const View from = view_of(op.from), to = view_of(op.to);
  const DataType source = op.from.type;
  const bool converts = source != op.to.type;
  return std::make_shared<KernelOp>(
      form, [=, size = size_of(source)](Stream stream, std::span<std::byte* const> args, std::byte*) {
        if (converts && source == DataType::f32) return relay<float, BFloat16>(stream, from, to, args);
        if (converts) return relay<BFloat16, float>(stream, from, to, args);
        if (size == 1) return relay<std::uint8_t, std::uint8_t>(stream, from, to, args);
        if (size == 2) return relay<std::uint16_t, std::uint16_t>(stream, from, to, args);
        // Values of four bytes; of eight there are only costs, which never change their layout.
        relay<std::uint32_t, std::uint32_t>(stream, from, to, args);
      });
}

}  // namespace convnet::cuda
