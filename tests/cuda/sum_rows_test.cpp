#include <algorithm>
#include <cstring>

#include "kernels/cuda/conv_edges.h"
#include "kernels/cuda/sizes.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"
#include "tests/kernels/op_runner.h"
#include "tests/rounding.h"

using namespace convnet;
using namespace convnet::test;

namespace {

struct Matrix {
  std::int64_t rows, columns;
};

/// Sums of the columns of a matrix that begins `skipped` elements behind the beginning of its memory. Numbers
/// of all bits set lie around the matrix, the sums and the workspace's unused parts.
std::vector<float> sums_of(const Backend& backend, const Matrix& m, DataType type, const Values& values,
                           std::int64_t skipped) {
  constexpr std::int64_t kAround = 64;
  const auto filled = [&](std::int64_t bytes) {
    auto memory = backend.allocate(test_device(), bytes);
    const std::vector<std::byte> all(static_cast<std::size_t>(bytes), std::byte{0xFF});
    backend.copy(memory->data(), all.data(), bytes);
    return memory;
  };
  const std::vector<std::byte> bytes = packed(values, type);
  const std::int64_t before = skipped * size_of(type), sum_bytes = m.columns * size_of(DataType::f32);
  const auto matrix = filled(before + std::ssize(bytes) + kAround);
  backend.copy(matrix->data() + before, bytes.data(), std::ssize(bytes));
  const auto workspace = filled(cuda::sum_rows_bytes(m.rows, m.columns) + kAround);
  const auto sums = filled(sum_bytes + kAround);
  const auto queue = backend.make_queue(test_device());
  cuda::bias_gradient(cuda::stream_of(queue.get()), m.rows, m.columns, type, matrix->data() + before,
                      workspace->data(), reinterpret_cast<float*>(sums->data()));
  cuda::wait_for(*queue->mark());
  std::vector<std::byte> result(static_cast<std::size_t>(sum_bytes + kAround)), rest(kAround);
  backend.copy(result.data(), sums->data(), std::ssize(result));
  backend.copy(rest.data(), workspace->data() + cuda::sum_rows_bytes(m.rows, m.columns), kAround);
  const auto untouched = [](std::byte b) { return b == std::byte{0xFF}; };
  CHECK(std::all_of(result.end() - kAround, result.end(), untouched));
  CHECK(std::all_of(rest.begin(), rest.end(), untouched));
  std::vector<float> floats(static_cast<std::size_t>(m.columns));
  std::memcpy(floats.data(), result.data(), static_cast<std::size_t>(sum_bytes));
  return floats;
}

}  // namespace

TEST_CASE("sums of columns of matrices of odd shapes, wherever they begin", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  // One piece and many, rows that end within a round of loads or within what one load brings.
  for (const Matrix& m : std::vector<Matrix>{{1, 1},
                                             {3, 1},
                                             {7, 8},
                                             {8, 3},
                                             {33, 10},
                                             {64, 4},
                                             {128, 10},
                                             {129, 16},
                                             {300, 12},
                                             {1000, 7},
                                             {2051, 24},
                                             {4097, 1},
                                             {20000, 3}}) {
    for (const DataType type : {DataType::f32, DataType::bf16}) {
      INFO(m.rows << " rows of " << m.columns << ", " << to_string(type));
      const Values values = unpacked(packed(test_values({m.rows, m.columns}, 1), type), type);
      Values expected(static_cast<std::size_t>(m.columns), 0), magnitudes = expected;
      for (std::size_t i = 0; i < values.size(); ++i) {
        expected[i % expected.size()] += values[i];
        magnitudes[i % expected.size()] += std::abs(values[i]);
      }
      const std::vector<float> sums = sums_of(*backend, m, type, values, 0);
      for (std::size_t c = 0; c < sums.size(); ++c)
        CHECK(std::abs(static_cast<double>(sums[c]) - expected[c]) <=
              rounding_of(static_cast<double>(m.rows)) * magnitudes[c]);
      for (const std::int64_t skipped : {0, 1, 4, 8})
        CHECK(sums_of(*backend, m, type, values, skipped) == sums);
    }
  }
}

TEST_CASE("pieces of rows begin where several numbers are loaded at once", "[cuda]") {
  for (std::int64_t columns = 1; columns < 100; ++columns) {
    for (const std::int64_t rows : {1, 15, 16, 130, 5000, 1000000}) {
      const std::int64_t pieces = cuda::sum_rows_pieces(rows, columns);
      INFO(rows << " rows of " << columns << " in " << pieces << " pieces");
      CHECK(pieces >= 1);
      CHECK((pieces == 1 || (pieces * columns % cuda::kSumLanes == 0 && pieces * 16 <= rows)));
    }
  }
}
