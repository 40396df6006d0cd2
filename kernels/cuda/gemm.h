// Matrix products. gemm.cpp implements them with cuBLASLt.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <stdexcept>

#include "kernels/cuda/layout.h"
#include "kernels/cuda/prepare.h"

namespace convnet::cuda {

/// C = [C +] op(A) op(B), for `batch` matrices each. Matrices are row-major; rows are `ld*` elements apart,
/// the matrices of a batch `*_step` elements.
struct Gemm {
  bool trans_a = false, trans_b = false;  ///< op(X) = X^T
  std::int64_t m = 0, n = 0, k = 0;       ///< op(A) (m,k), op(B) (k,n), C (m,n)
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  std::int64_t batch = 1, a_step = 0, b_step = 0, c_step = 0;
  std::int64_t alignment = 4;  ///< alignment of all pointers, bytes; faster kernels need kLoadBytes
  bool accumulate = false;
  DataType factors = DataType::f32;  ///< type of A and B
  DataType result = DataType::f32;   ///< type of C; bf16 only where the factors are
};

/// Alignment in bytes of an operation's arguments; see PreparedOp::run().
constexpr std::int64_t kArgumentAlignment = 64;

/// Returns Gemm::alignment for matrices that begin at multiples of these byte offsets in an argument.
inline std::int64_t alignment_of(std::initializer_list<std::int64_t> offsets) {
  std::int64_t alignment = kArgumentAlignment;
  for (const std::int64_t offset : offsets) alignment = std::gcd(alignment, offset);
  return alignment;
}

/// A matrix product that is ready to run.
class PreparedGemm {
 public:
  PreparedGemm() = default;
  PreparedGemm(const PreparedGemm&) = delete;
  PreparedGemm& operator=(const PreparedGemm&) = delete;
  virtual ~PreparedGemm() = default;
  virtual std::int64_t workspace_bytes() const = 0;  ///< not more than kMostProductBytes
  /// Computes with the types Gemm::factors and Gemm::result. `workspace` is aligned to kMemoryAlignment.
  virtual void run(Queue* queue, const std::byte* a, const std::byte* b, std::byte* c,
                   std::byte* workspace) const = 0;
  /// Does the same for f32 factors and an f32 result.
  void run(Queue* queue, const float* a, const float* b, float* c, std::byte* workspace) const {
    run(queue, reinterpret_cast<const std::byte*>(a), reinterpret_cast<const std::byte*>(b),
        reinterpret_cast<std::byte*>(c), workspace);
  }
};

/// Returns the alignment in bytes of A and B, or of C: at least the size of an element, without which the
/// library has no algorithm. (Gemm::alignment may be two bytes, that of bf16 factors, where C is f32.)
inline std::int64_t factor_alignment(const Gemm& gemm) {
  return std::max(gemm.alignment, std::int64_t{size_of(gemm.factors)});
}
inline std::int64_t result_alignment(const Gemm& gemm) {
  return std::max(gemm.alignment, std::int64_t{size_of(gemm.result)});
}

/// Throws std::logic_error if the memory of a product is not aligned as promised. The library would read
/// outside of it, or fail without naming the product.
inline void check_aligned(const Gemm& gemm, const std::byte* a, const std::byte* b, const std::byte* c,
                          const std::byte* workspace) {
  const auto check = [](const std::byte* matrix, std::int64_t alignment) {
    if (!is_aligned(matrix, alignment))
      throw std::logic_error("cuda: a matrix is not aligned to " + std::to_string(alignment) + " bytes");
  };
  check(a, factor_alignment(gemm));
  check(b, factor_alignment(gemm));
  check(c, result_alignment(gemm));
  if (!is_aligned(workspace, kMemoryAlignment))
    throw std::logic_error("cuda: the workspace of a product is not aligned");
}

/// Chooses how to compute a product. Throws DeviceError if the library cannot do it.
std::shared_ptr<const PreparedGemm> prepare_gemm(const Gemm& gemm, const Context& context);

}  // namespace convnet::cuda
