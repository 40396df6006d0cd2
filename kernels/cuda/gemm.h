// Matrix products. gemm.cpp takes them from cuBLASLt.
#pragma once

#include "kernels/cuda/prepare.h"

namespace convnet::cuda {

/// C = [C +] op(A) op(B) [+ bias], then max(0,x) if `relu`; `batch` times, each matrix `*_step` numbers after
/// the one before. Row-major, rows `ld*` numbers apart.
struct Gemm {
  bool trans_a = false, trans_b = false;  ///< op(X) = X^T
  std::int64_t m = 0, n = 0, k = 0;       ///< op(A) (m,k), op(B) (k,n), C (m,n)
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  std::int64_t batch = 1, a_step = 0, b_step = 0, c_step = 0;
  std::int64_t alignment = 4;  ///< bytes of which all pointers are multiples; faster kernels want 16
  bool accumulate = false, bias = false, relu = false;  ///< bias: (n), f32, a number for every column
  DataType factors = DataType::f32;                     ///< type of A and B
  DataType result = DataType::f32;  ///< type of C; bf16 only where the factors are, and without a bias
};

/// Of the memory of an operation's arguments and workspace, bytes.
constexpr std::int64_t kArgumentAlignment = 64;

class PreparedGemm {
 public:
  PreparedGemm() = default;
  PreparedGemm(const PreparedGemm&) = delete;
  PreparedGemm& operator=(const PreparedGemm&) = delete;
  virtual ~PreparedGemm() = default;
  virtual std::int64_t workspace_bytes() const = 0;
  /// Of types Gemm::factors and Gemm::result. `bias` is null where there is none.
  virtual void run(Queue* queue, const std::byte* a, const std::byte* b, const float* bias, std::byte* c,
                   std::byte* workspace) const = 0;
  /// Where all are f32.
  void run(Queue* queue, const float* a, const float* b, const float* bias, float* c,
           std::byte* workspace) const {
    run(queue, reinterpret_cast<const std::byte*>(a), reinterpret_cast<const std::byte*>(b), bias,
        reinterpret_cast<std::byte*>(c), workspace);
  }
};

std::shared_ptr<const PreparedGemm> prepare_gemm(const Gemm& gemm, const Context& context);

}  // namespace convnet::cuda
