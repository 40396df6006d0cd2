// Sums of the columns of a row-major matrix: gradients of biases.
#pragma once

#include "kernels/cuda/activations.h"
#include "kernels/cuda/sizes.h"

namespace convnet::cuda {

/// sums[i] = sum of every `step`-th element from i on, for kSumLanes consecutive i at a time. `step` is a
/// multiple of the number of columns, so that neighbouring threads read consecutive memory even if there are
/// few columns. The order of the sum depends only on `step` and `count`, not on whether vectors or single
/// elements are read.
template <class T, bool Aligned>
struct SumEvery {
  using Lanes = Vector<float, kSumLanes>;
  static constexpr int kLanesAtOnce = kLoadLanes<T>;
  static_assert(kSumLanes % kLanesAtOnce == 0);

  std::byte* elements;
  std::int64_t step, count;
  float* sums;

  /// Returns the elements from `begin` on, one for each lane. All of them must exist.
  CONVNET_DEVICE Lanes at(std::int64_t begin) const {
    Lanes lanes;
    if constexpr (Aligned) {
      const Numbers<T, kLanesAtOnce> vectors(elements);
      CONVNET_UNROLL
      for (int part = 0; part < kSumLanes / kLanesAtOnce; ++part) {
        const Vector<float, kLanesAtOnce> v = vectors[begin / kLanesAtOnce + part];
        CONVNET_UNROLL
        for (int lane = 0; lane < kLanesAtOnce; ++lane) lanes.lane[part * kLanesAtOnce + lane] = v.lane[lane];
      }
    } else {
      CONVNET_UNROLL
      for (int lane = 0; lane < kSumLanes; ++lane) lanes.lane[lane] = element(begin + lane);
    }
    return lanes;
  }
  CONVNET_DEVICE float element(std::int64_t i) const {
    return to_float(reinterpret_cast<const T*>(elements)[i]);
  }

  /// Returns whether all lanes have elements in the next `Rows` steps.
  template <int Rows>
  CONVNET_DEVICE bool fit(std::int64_t begin) const {
    return begin + (Rows - 1) * step + kSumLanes <= count;
  }
  /// Adds the elements of `Rows` steps to the sum, in pairs and pairs of pairs. Their loads are independent.
  template <int Rows>
  CONVNET_DEVICE void add(std::int64_t& begin, Lanes& sum) const {
    Lanes rows[Rows];
    CONVNET_UNROLL
    for (int k = 0; k < Rows; ++k) rows[k] = at(begin + k * step);
    CONVNET_UNROLL
    for (int distance = 1; distance < Rows; distance *= 2) {
      CONVNET_UNROLL
      for (int k = 0; k < Rows; k += 2 * distance) {
        CONVNET_UNROLL
        for (int lane = 0; lane < kSumLanes; ++lane) rows[k].lane[lane] += rows[k + distance].lane[lane];
      }
    }
    CONVNET_UNROLL
    for (int lane = 0; lane < kSumLanes; ++lane) sum.lane[lane] += rows[0].lane[lane];
    begin += Rows * step;
  }

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    Lanes sum{};
    std::int64_t begin = i * kSumLanes;
    CONVNET_UNROLL_BY(1)
    while (fit<8>(begin)) add<8>(begin, sum);
    if (fit<4>(begin)) add<4>(begin, sum);
    if (fit<2>(begin)) add<2>(begin, sum);
    if (fit<1>(begin)) add<1>(begin, sum);
    // The matrix ends within the lanes: this is one row, or several if there are few columns.
    CONVNET_UNROLL_BY(1)
    for (; begin < count; begin += step) {
      CONVNET_UNROLL
      for (int lane = 0; lane < kSumLanes; ++lane)
        if (begin + lane < count) sum.lane[lane] += element(begin + lane);
    }
    CONVNET_UNROLL
    for (int lane = 0; lane < kSumLanes; ++lane)
      if (i * kSumLanes + lane < step) sums[i * kSumLanes + lane] = sum.lane[lane];
  }
};

/// Adds up the pieces of a column. The loads of a round are independent.
struct SumPieces {
  const float* pieces;  ///< [piece][column]
  std::int64_t count, columns;
  float* sums;
  CONVNET_DEVICE void operator()(const Team& team, std::int64_t column) const {
    float sum = 0;
    const auto at = [&](std::int64_t piece) { return pieces[piece * columns + column]; };
    std::int64_t piece = team.rank();
    const std::int64_t size = team.size();
    CONVNET_UNROLL_BY(1)
    for (; piece + 3 * size < count; piece += 4 * size)
      sum += (at(piece) + at(piece + size)) + (at(piece + 2 * size) + at(piece + 3 * size));
    CONVNET_UNROLL_BY(1)
    for (; piece < count; piece += size) sum += at(piece);
    sum = team.sum(sum);
    if (team.rank() == 0) sums[column] = sum;
  }
};

/// sums[c] = sum over r of matrix[r][c], in an order that depends on the shape alone. Row r belongs to piece
/// r % pieces. Each piece is summed separately, then the sums of the pieces are added.
class SumRows {
 public:
  SumRows(std::int64_t rows, std::int64_t columns)
      : columns_(columns), elements_(rows * columns), pieces_(sum_rows_pieces(rows, columns)) {}
  /// `matrix` is of f32 or bf16 numbers. `workspace` has sum_rows_bytes().
  void run(Stream stream, DataType type, const std::byte* matrix, std::byte* workspace, float* sums) const {
    const std::int64_t step = pieces_ * columns_;
    float* const pieces = pieces_ == 1 ? sums : reinterpret_cast<float*>(workspace);
    const bool aligned = step % kSumLanes == 0 && is_aligned(matrix);
    auto* const elements = const_cast<std::byte*>(matrix);  // it is only read
    with_stored_type(type, [&](auto stored) {
      using T = decltype(stored);
      const std::int64_t threads = (step + kSumLanes - 1) / kSumLanes;
      if (aligned)
        for_each(stream, threads, SumEvery<T, true>{elements, step, elements_, pieces});
      else
        for_each(stream, threads, SumEvery<T, false>{elements, step, elements_, pieces});
    });
    if (pieces_ > 1) for_teams(stream, columns_, SumPieces{pieces, pieces_, columns_, sums});
  }

 private:
  std::int64_t columns_, elements_, pieces_;
};

}  // namespace convnet::cuda
