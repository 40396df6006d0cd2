#include "kernels/cuda/conv_edges.h"

#include <array>
#include <type_traits>

#include "kernels/cuda/flat.h"
#include "kernels/cuda/sum_rows.h"
#include "kernels/functors.h"

namespace convnet::cuda {
namespace {

/// See to_blocks(): a thread fills some channels of a block.
template <int Lanes, class T>
struct ToBlocks {
  View from, to;  ///< elements of `to` are vectors
  int side, pad_y, pad_x;
  Divisor by_channels, by_side;
  const T* src;
  Vector<T, Lanes>* dst;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = to.place(i);
    const Pixel block(to, at);
    Vector<T, Lanes> values;
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) {
      const Quotient pixel = by_channels.divide(static_cast<std::uint32_t>(at.c * Lanes + lane));
      const Quotient row = by_side.divide(static_cast<std::uint32_t>(pixel.value));
      const std::int64_t y = block.y * side + row.value - pad_y;
      const std::int64_t x = block.x * side + row.rest - pad_x;
      const bool inside = row.value < side && y >= 0 && y < from.h && x >= 0 && x < from.w;
      values.lane[lane] = inside ? src[from.index(at.n, pixel.rest, y, x)] : T{};
    }
    dst[i] = values;
  }
};

/// See add_bias_relu(): a thread changes some columns of a row.
template <int Lanes, class T, class B>
struct AddBiasRelu {
  Numbers<B, Lanes> bias;  ///< may be null
  std::int64_t vectors;    ///< number of vectors in a row
  bool relu;
  Numbers<T, Lanes> y;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    Vector<float, Lanes> v = y[i];
    Vector<float, Lanes> b{};
    if (bias.memory != nullptr) b = bias[divide(i, vectors).rest];
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) {
      if (bias.memory != nullptr) v.lane[lane] += b.lane[lane];
      if (relu) v.lane[lane] = ReluFunctor{}.forward(v.lane[lane]);
    }
    y.set(i, v);
  }
};

struct Unchanged {
  CONVNET_DEVICE float operator()(float x) const { return x; }
};

/// See from_blocks(): a thread copies a number.
template <class From, class To>
struct FromBlocks {
  View from, to;
  int side, pad_y, pad_x;
  Divisor by_side;
  const From* src;
  To* dst;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = to.place(i);
    const Pixel pixel(to, at);
    const Quotient y = by_side.divide(static_cast<std::uint32_t>(pixel.y + pad_y));
    const Quotient x = by_side.divide(static_cast<std::uint32_t>(pixel.x + pad_x));
    const bool inside = y.value < from.h && x.value < from.w;
    const std::int64_t channel = (y.rest * side + x.rest) * to.c + at.c;
    dst[i] = stored_as<To>(inside ? to_float(src[from.index(at.n, channel, y.value, x.value)]) : 0.0F);
  }
};

}  // namespace

void to_blocks(Stream stream, DataType type, const View& from, const std::byte* src, const Blocks& blocks,
               const View& to, std::byte* dst) {
  with_stored_type(type, [&](auto stored) {
    using T = decltype(stored);
    const auto copy = [&](auto lanes) {
      constexpr int kWidth = lanes();
      for_each(stream, to.size() / kWidth,
               ToBlocks<kWidth, T>{from, in_vectors(to, kWidth), static_cast<int>(blocks.side),
                                   static_cast<int>(blocks.pad.y), static_cast<int>(blocks.pad.x),
                                   Divisor(from.c), Divisor(blocks.side), reinterpret_cast<const T*>(src),
                                   as_vectors<T, kWidth>(dst)});
    };
    constexpr int kTogether = kLoadLanes<T>;
    if (to.last && to.c % kTogether == 0)
      copy(std::integral_constant<int, kTogether>{});
    else
      copy(std::integral_constant<int, 1>{});
  });
}

void from_blocks(Stream stream, DataType from_type, const View& from, const std::byte* src,
                 const Blocks& blocks, const View& to, DataType to_type, std::byte* dst) {
  with_stored_type(from_type, [&](auto stored) {
    with_stored_type(to_type, [&](auto wanted) {
      using From = decltype(stored);
      using To = decltype(wanted);
      for_each(stream, to.size(),
               FromBlocks<From, To>{from, to, static_cast<int>(blocks.side), static_cast<int>(blocks.pad.y),
                                    static_cast<int>(blocks.pad.x), Divisor(blocks.side),
                                    reinterpret_cast<const From*>(src), reinterpret_cast<To*>(dst)});
    });
  });
}

void add_bias_relu(Stream stream, std::int64_t rows, std::int64_t columns, const std::byte* bias,
                   DataType bias_type, bool relu, DataType type, std::byte* y) {
  if (bias == nullptr && !relu) return;
  auto* const biases = const_cast<std::byte*>(bias);  // it is only read
  with_stored_type(type, [&](auto stored) {
    with_stored_type(bias_type, [&](auto of_bias) {
      using T = decltype(stored);
      using B = decltype(of_bias);
      constexpr int kTogether = kLoadLanes<T>;
      const auto launch = [&](auto lanes) {
        for_each(stream, rows * columns / lanes(),
                 AddBiasRelu<lanes(), T, B>{Numbers<B, lanes()>(biases), columns / lanes(), relu,
                                            Numbers<T, lanes()>(y)});
      };
      // Biases of f32 beside eight numbers of bf16 are two loads; matrices begin at multiples of 64 bytes.
      if (columns % kTogether == 0 && is_aligned(y) && is_aligned(bias, 32))
        launch(std::integral_constant<int, kTogether>{});
      else
        launch(std::integral_constant<int, 1>{});
    });
  });
}

void round_sums(Stream stream, std::int64_t count, std::byte* sums, DataType type, std::byte* dst) {
  with_stored_type(type, [&](auto stored) {
    flat_unary<float, decltype(stored)>(stream, count, std::array{sums, dst}, Unchanged{});
  });
}

void bias_gradient(Stream stream, std::int64_t rows, std::int64_t columns, DataType type,
                   const std::byte* diff_dst, std::byte* workspace, float* diff_bias) {
  SumRows(rows, columns).run(stream, type, diff_dst, workspace, diff_bias);
}

}  // namespace convnet::cuda
