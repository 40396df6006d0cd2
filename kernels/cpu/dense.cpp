// Inner products with AVX2, forward and the gradient of the input. Their weights are the largest matrices of
// a net and are read once, but oneDNN 2.6 copies them first, at half of the speed that the products could
// have. With AVX-512 the library is as fast.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

#if defined(__AVX2__) && !defined(__AVX512F__)
constexpr int kLanes = kUsualBlock;
constexpr std::int64_t kLine = std::int64_t{2} * kLanes;  ///< numbers of a cache line
using Lane = Vector<float, kLanes>::Type;

/// Division of images into groups of nearly the same size, whose sums are in registers together.
class ImageGroups {
 public:
  ImageGroups(std::int64_t images, std::int64_t most) : images_(images), count_((images + most - 1) / most) {}
  std::int64_t count() const { return count_; }
  /// Returns the first image of a group, and of count() the number of images.
  std::int64_t begin(std::int64_t group) const { return images_ * group / count_; }

 private:
  std::int64_t images_, count_;
};

/// Calls f(size) with the number `size`, 1 to Most, as a constant.
template <int Most, class F>
void with_constant(std::int64_t size, const F& f) {
  if (size == Most)
    f(std::integral_constant<int, Most>{});
  else if constexpr (Most > 1)
    with_constant<Most - 1>(size, f);
}

/// Fetches the line of a number into the second-level cache.
[[gnu::always_inline]] inline void fetch(const float* p) { __builtin_prefetch(p, 0, 2); }

/// Each output is the sum over lanes of the products of two rows of memory: an image's and a filter's.
class DenseForward : public PreparedOp {
 public:
  explicit DenseForward(const InnerProductForward& op) : op_(op), g_(op.g), groups_(g_.n, kImages) {
    args_ = argument_tensors(op);
    algorithm_ = "dense:own";
  }

  void run(std::span<std::byte* const> pointers, std::byte*, Queue*) const override {
    const float* const src = as<float>(pointers[0]);
    const float* const weights = as<float>(pointers[1]);
    const float* const bias = op_.bias ? as<float>(pointers[2]) : nullptr;
    float* const dst = as<float>(pointers.back());
#pragma omp parallel
    {
      std::vector<Sums> sums(static_cast<std::size_t>(g_.n * kFilters));
#pragma omp for schedule(static)
      for (std::int64_t first = 0; first < g_.out; first += kFilters)
        compute(src, weights, bias, first, sums.data()->lanes, dst);
    }
  }

 private:
  static constexpr int kImages = 3, kFilters = 4;
  /// As many numbers of a few images and filters stay in the first-level cache, also where all of them are a
  /// multiple of 4096 bytes apart and so compete for the same lines.
  static constexpr std::int64_t kColumns = 1024;
  struct alignas(sizeof(Lane)) Sums {
    float lanes[kLanes] = {};
  };

  /// Computes the outputs of filters [first, first + kFilters), as far as they exist. `sums` is
  /// [image][filter].
  void compute(const float* src, const float* weights, const float* bias, std::int64_t first, float* sums,
               float* dst) const {
    const std::int64_t filters = std::min<std::int64_t>(kFilters, g_.out - first);
    std::fill_n(sums, g_.n * kFilters * kLanes, 0.0F);
    const float* const rows = weights + first * g_.in;
    for (std::int64_t column = 0; column < g_.in; column += kColumns) {
      const std::int64_t columns = std::min(kColumns, g_.in - column);
      // Two groups of images fetch what comes next: other columns, or the first ones of other filters.
      const float* const next =
          column + kColumns < g_.in ? rows + column + kColumns : rows + kFilters * g_.in;
      for (std::int64_t group = 0; group < groups_.count(); ++group) {
        const std::int64_t image = groups_.begin(group);
        const float* const from = src + image * g_.in + column;
        float* const group_sums = sums + image * kFilters * kLanes;
        const float* const ahead =
            group < 2 && first + kFilters < g_.out ? next + 2 * group * g_.in : nullptr;
        with_constant<kImages>(groups_.begin(group + 1) - image, [&](auto images) {
          if (filters == kFilters)
            add<images(), kFilters>(from, rows + column, columns, ahead, group_sums);
          else
            for (std::int64_t i = 0; i < filters; ++i)
              add<images(), 1>(from, rows + column + i * g_.in, columns, nullptr, group_sums + i * kLanes);
        });
      }
    }
    for (std::int64_t n = 0; n < g_.n; ++n)
      for (std::int64_t i = 0; i < filters; ++i)
        finish(sums + (n * kFilters + i) * kLanes, bias, first + i, dst + n * g_.out);
  }

  /// Adds the products of `columns` columns to the sums of some images and filters. Fetches as many columns
  /// of two filters at `ahead`, unless it is null.
  template <int Images, int Filters>
  void add(const float* src, const float* weights, std::int64_t columns, const float* ahead,
           float* sums) const {
    const std::int64_t in = g_.in;
    std::array<std::array<Lane, Filters>, Images> own;
    for (int n = 0; n < Images; ++n)
      for (int i = 0; i < Filters; ++i) load(sums + (std::int64_t{n} * kFilters + i) * kLanes, own[n][i]);
    const auto add_lanes = [&](std::int64_t at, auto count) __attribute__((always_inline)) {
      std::array<Lane, Images> x;
#pragma GCC unroll 3
      for (int n = 0; n < Images; ++n) load_floats<kLanes>(src + n * in + at, count, x[n]);
#pragma GCC unroll 4
      for (int i = 0; i < Filters; ++i) {
        Lane w;
        load_floats<kLanes>(weights + i * in + at, count, w);
#pragma GCC unroll 3
        for (int n = 0; n < Images; ++n) own[n][i] += x[n] * w;
      }
    };
    constexpr AllLanes<kLanes> all{};
    std::int64_t at = 0;
    if (ahead != nullptr) {
      for (; at + kLine <= columns; at += kLine) {
        fetch(ahead + at);
        fetch(ahead + in + at);
        add_lanes(at, all);
        add_lanes(at + kLanes, all);
      }
    }
    for (; at + kLanes <= columns; at += kLanes) add_lanes(at, all);
    if (at < columns) add_lanes(at, static_cast<std::size_t>(columns - at));
    for (int n = 0; n < Images; ++n)
      for (int i = 0; i < Filters; ++i) store(sums + (std::int64_t{n} * kFilters + i) * kLanes, own[n][i]);
  }

  void finish(const float* sums, const float* bias, std::int64_t output, float* dst) const {
    float y = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
    if (bias != nullptr) y += bias[output];
    if (op_.accumulate) y += dst[output];
    dst[output] = op_.relu && y < 0 ? 0 : y;  // keeps NaN
  }

  const InnerProductForward op_;
  const InnerProductGeometry g_;
  const ImageGroups groups_;
};

/// A panel is some columns of the inputs and weights. Its gradients are sums over filters, of which a few are
/// copied to where their lines do not compete.
class DenseBackwardData : public PreparedOp {
 public:
  explicit DenseBackwardData(const InnerProductBackwardData& op) : g_(op.g), groups_(g_.n, kImages) {
    args_ = argument_tensors(op);
    algorithm_ = "dense:own";
  }

  void run(std::span<std::byte* const> pointers, std::byte*, Queue*) const override {
    const float* const dst = as<float>(pointers[0]);
    const float* const weights = as<float>(pointers[1]);
    float* const src = as<float>(pointers[2]);
#pragma omp parallel
    {
      std::vector<Columns> filters(static_cast<std::size_t>(kFilters)), sums(static_cast<std::size_t>(g_.n));
#pragma omp for schedule(static)
      for (std::int64_t column = 0; column < g_.in; column += kColumns) {
        const std::int64_t columns = std::min(kColumns, g_.in - column);
        std::fill(sums.begin(), sums.end(), Columns{});
        for (std::int64_t first = 0; first < g_.out; first += kFilters)
          add_filters(dst, weights + column, first, columns, filters.data()->numbers, sums.data()->numbers);
        for (std::int64_t n = 0; n < g_.n; ++n)
          std::copy_n(sums[static_cast<std::size_t>(n)].numbers, columns, src + n * g_.in + column);
      }
    }
  }

 private:
  static constexpr int kImages = 6;
  static constexpr std::int64_t kFilters = 64, kColumns = 128;
  struct alignas(kLine * sizeof(float)) Columns {
    float numbers[kColumns] = {};
  };

  /// Adds the products of filters [first, first + kFilters), as far as they exist. `filters` and `sums` have
  /// rows of kColumns numbers.
  void add_filters(const float* dst, const float* weights, std::int64_t first, std::int64_t columns,
                   float* filters, float* sums) const {
    const std::int64_t count = std::min(kFilters, g_.out - first);
    for (std::int64_t i = 0; i < count; ++i)
      std::copy_n(weights + (first + i) * g_.in, columns, filters + i * kColumns);
    for (std::int64_t group = 0; group < groups_.count(); ++group) {
      const std::int64_t image = groups_.begin(group);
      // The first group of images fetches the next filters.
      const bool fetches = group == 0 && first + kFilters + count <= g_.out;
      const float* const ahead = fetches ? weights + (first + kFilters) * g_.in : nullptr;
      with_constant<kImages>(groups_.begin(group + 1) - image, [&](auto images) {
        for (std::int64_t at = 0; at < columns; at += kLine)
          add<images()>(dst + image * g_.out + first, filters + at, count,
                        ahead == nullptr ? nullptr : ahead + at, sums + image * kColumns + at);
      });
    }
  }

  /// Adds the products of `count` filters to the sums of a line of columns of some images. Fetches the line
  /// of as many filters at `ahead`, unless it is null.
  template <int Images>
  void add(const float* dst, const float* filters, std::int64_t count, const float* ahead,
           float* sums) const {
    const std::int64_t out = g_.out, in = g_.in;
    std::array<std::array<Lane, 2>, Images> own;
    for (int n = 0; n < Images; ++n)
      for (int half = 0; half < 2; ++half)
        load(sums + n * kColumns + half * std::int64_t{kLanes}, own[n][half]);
    const auto add_filter = [&](std::int64_t i) __attribute__((always_inline)) {
      Lane low, high;
      load(filters + i * kColumns, low);
      load(filters + i * kColumns + kLanes, high);
#pragma GCC unroll 6
      for (int n = 0; n < Images; ++n) {
        const float dy = dst[n * out + i];
        own[n][0] += low * dy;
        own[n][1] += high * dy;
      }
    };
    if (ahead != nullptr) {
      for (std::int64_t i = 0; i < count; ++i, ahead += in) {
        fetch(ahead);
        add_filter(i);
      }
    } else {
      for (std::int64_t i = 0; i < count; ++i) add_filter(i);
    }
    for (int n = 0; n < Images; ++n)
      for (int half = 0; half < 2; ++half)
        store(sums + n * kColumns + half * std::int64_t{kLanes}, own[n][half]);
  }

  const InnerProductGeometry g_;
  const ImageGroups groups_;
};

/// Returns whether our kernels are faster. With few images, the library copies no weights.
bool dense_pays(const InnerProductGeometry& g, DataType type, std::int64_t least_weights) {
  constexpr std::int64_t kLeastImages = 4;
  return type == DataType::f32 && g.parts == 0 && g.n >= kLeastImages && g.in * g.out >= least_weights;
}
#endif

}  // namespace

Prepared prepare_dense([[maybe_unused]] const InnerProductForward& op, [[maybe_unused]] DataType type) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  if (dense_pays(op.g, type, 1 << 18)) return std::make_shared<DenseForward>(op);
#endif
  return nullptr;
}
Prepared prepare_dense([[maybe_unused]] const InnerProductBackwardData& op, [[maybe_unused]] DataType type) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  if (dense_pays(op.g, type, 1 << 20)) return std::make_shared<DenseBackwardData>(op);
#endif
  return nullptr;
}

}  // namespace convnet::cpu::own
