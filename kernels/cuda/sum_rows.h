// Sums of the columns of a row-major matrix: gradients of biases.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"
#include "kernels/cuda/sizes.h"

namespace convnet::cuda {

/// sums[i] = sum of every `step`-th element from i on. With `step` a number of rows, neighbouring threads
/// read neighbouring memory however few the columns.
template <class T>
struct SumEvery {
  const T* elements;
  std::int64_t step, count;
  float* sums;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    float sum = 0;
    for (std::int64_t at = i; at < count; at += step) sum += to_float(elements[at]);
    sums[i] = sum;
  }
};

/// Adds up the pieces of a column.
struct SumPieces {
  const float* pieces;  ///< [piece][column]
  std::int64_t count, columns;
  float* sums;
  CONVNET_DEVICE void operator()(const Team& team, std::int64_t column) const {
    float sum = 0;
    for (std::int64_t piece = team.rank(); piece < count; piece += team.size())
      sum += pieces[piece * columns + column];
    sum = team.sum(sum);
    if (team.rank() == 0) sums[column] = sum;
  }
};

/// sums[c] = sum over r of matrix[r][c], in an order that depends on the shape alone. Row r belongs to piece
/// r % pieces: each piece is summed on its own, then the pieces' sums.
class SumRows {
 public:
  SumRows(std::int64_t rows, std::int64_t columns)
      : columns_(columns), elements_(rows * columns), pieces_(sum_rows_pieces(rows, columns)) {}
  /// `matrix` is of f32 or bf16 numbers. `workspace` has sum_rows_bytes().
  void run(Stream stream, DataType type, const std::byte* matrix, std::byte* workspace, float* sums) const {
    with_stored_type(type, [&](auto stored) {
      using T = decltype(stored);
      const auto* elements = reinterpret_cast<const T*>(matrix);
      if (pieces_ == 1) return for_each(stream, columns_, SumEvery<T>{elements, columns_, elements_, sums});
      auto* pieces = reinterpret_cast<float*>(workspace);
      const std::int64_t step = pieces_ * columns_;
      for_each(stream, step, SumEvery<T>{elements, step, elements_, pieces});
      for_teams(stream, columns_, SumPieces{pieces, pieces_, columns_, sums});
    });
  }

 private:
  std::int64_t columns_, elements_, pieces_;
};

}  // namespace convnet::cuda
