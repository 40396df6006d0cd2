#include "kernels/cuda/gemm.h"

#include "tests/catch.h"

using namespace convnet;
using namespace convnet::cuda;

TEST_CASE("products know the alignment of parts of arguments", "[cuda]") {
  CHECK(alignment_of({}) == kArgumentAlignment);
  CHECK(alignment_of({0, 640}) == kArgumentAlignment);
  CHECK(alignment_of({128, 48}) == 16);
  CHECK(alignment_of({64, 20}) == 4);
}

TEST_CASE("products refuse memory that is not aligned as promised", "[cuda]") {
  struct alignas(kMemoryAlignment) Memory {
    std::byte bytes[2 * kMemoryAlignment];
  };
  const Memory memory{};
  const std::byte* at = memory.bytes;
  Gemm gemm;
  gemm.alignment = 16;
  CHECK_NOTHROW(check_aligned(gemm, at, at + 16, at + 48, at + kMemoryAlignment));
  CHECK_NOTHROW(check_aligned(gemm, at, at, at, nullptr));
  CHECK_THROWS_AS(check_aligned(gemm, at, at + 16, at + 8, at), std::logic_error);
  CHECK_THROWS_AS(check_aligned(gemm, at, at + 8, at + 16, at), std::logic_error);
  CHECK_THROWS_AS(check_aligned(gemm, at, at, at, at + 64), std::logic_error);
}

TEST_CASE("matrices are aligned to their numbers at least", "[cuda]") {
  Gemm gemm;
  gemm.factors = DataType::bf16;
  gemm.alignment = 2;
  CHECK(factor_alignment(gemm) == 2);
  CHECK(result_alignment(gemm) == 4);  // f32
  gemm.result = DataType::bf16;
  CHECK(result_alignment(gemm) == 2);
  gemm.alignment = 16;
  CHECK(factor_alignment(gemm) == 16);
  CHECK(result_alignment(gemm) == 16);
}
