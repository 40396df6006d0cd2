#include "kernels/cuda/gemm.h"

#include <algorithm>
#include <array>

#include "kernels/cuda/libraries.h"
#include "kernels/cuda/sizes.h"
#include "kernels/cuda/tuning.h"

namespace convnet::cuda {
namespace {

using MatmulDesc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

std::string describe(const Gemm& g) {
  return "matrix product " + std::to_string(g.m) + "x" + std::to_string(g.n) + "x" + std::to_string(g.k) +
         (g.batch > 1 ? " times " + std::to_string(g.batch) : "");
}

void set(const MatmulDesc& desc, cublasLtMatmulDescAttributes_t attribute, cublasOperation_t value) {
  check(cublasLtMatmulDescSetAttribute(desc.get(), attribute, &value, sizeof value), "describing a product");
}

/// A matrix with rows of `columns` numbers that are `ld` apart; cuBLAS sees it as its transpose.
MatrixLayout matrix(DataType type, std::int64_t rows, std::int64_t columns, std::int64_t ld,
                    std::int64_t batch, std::int64_t step) {
  MatrixLayout layout;
  check(cublasLtMatrixLayoutCreate(layout.put(), type == DataType::bf16 ? CUDA_R_16BF : CUDA_R_32F,
                                   static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows), ld),
        "describing a matrix");
  if (batch == 1) return layout;
  const auto count = static_cast<std::int32_t>(batch);
  check(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                         sizeof count),
        "describing a matrix");
  check(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                         sizeof step),
        "describing a matrix");
  return layout;
}

/// Computes C^T = op(B)^T op(A)^T: cuBLAS matrices are column-major, so the factors are exchanged.
class LtGemm : public PreparedGemm {
 public:
  LtGemm(const Gemm& g, const Context& context)
      : g_(g),
        a_(g.trans_a ? matrix(g.factors, g.k, g.m, g.lda, g.batch, g.a_step)
                     : matrix(g.factors, g.m, g.k, g.lda, g.batch, g.a_step)),
        b_(g.trans_b ? matrix(g.factors, g.n, g.k, g.ldb, g.batch, g.b_step)
                     : matrix(g.factors, g.k, g.n, g.ldb, g.batch, g.b_step)),
        c_(matrix(g.result, g.m, g.n, g.ldc, g.batch, g.c_step)) {
    // Factors that stay f32 in a bf16 run are multiplied as tf32. COMPUTE_32F rounds no factor.
    const bool rounds = g.factors == DataType::f32 && context.precision != Precision::fp32;
    const cublasComputeType_t compute = rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check(cublasLtMatmulDescCreate(product_.put(), compute, CUDA_R_32F), "describing a product");
    set(product_, CUBLASLT_MATMUL_DESC_TRANSA, g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(product_, CUBLASLT_MATMUL_DESC_TRANSB, g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    // Peaks are measured without a Tuning: seldom enough for a handle of their own.
    Owned<cublasLtHandle_t, cublasLtDestroy> own;
    if (context.tuning == nullptr) check(cublasLtCreate(own.put()), "making a handle");
    choose(context.tuning == nullptr ? own.get() : cublas_of(&context.tuning->queue(context.device)));
  }
  std::int64_t workspace_bytes() const override { return static_cast<std::int64_t>(chosen_.workspaceSize); }

  void run(Queue* queue, const std::byte* a, const std::byte* b, std::byte* c,
           std::byte* workspace) const override {
    check_aligned(g_, {a, b, c}, workspace);
    const float one = 1, beta = g_.accumulate ? 1 : 0;
    check(
        cublasLtMatmul(cublas_of(queue), product_.get(), &one, b, b_.get(), a, a_.get(), &beta, c, c_.get(),
                       c, c_.get(), &chosen_.algo, workspace, chosen_.workspaceSize, stream_of(queue).handle),
        describe(g_));
  }

 private:
  /// Takes the library's first choice for these shapes, which is the same in every run.
  void choose(cublasLtHandle_t handle) {
    Preference preference;
    check(cublasLtMatmulPreferenceCreate(preference.put()), "choosing an algorithm");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
            "choosing an algorithm");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::size_t>(kMostProductBytes));
    // If a sum is made of partial sums, they must be f32, too.
    if (g_.result == DataType::bf16)
      prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
             std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    for (const cublasLtMatmulPreferenceAttributes_t pointer :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(pointer, static_cast<std::uint32_t>(g_.alignment));
    std::array<cublasLtMatmulHeuristicResult_t, 8> results{};
    int found = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle, product_.get(), b_.get(), a_.get(), c_.get(), c_.get(),
                                         preference.get(), static_cast<int>(results.size()), results.data(),
                                         &found),
          "choosing an algorithm for the " + describe(g_));
    // Results of another state hold nothing else that is valid.
    const auto best = std::find_if(results.begin(), results.begin() + found,
                                   [](const auto& result) { return result.state == CUBLAS_STATUS_SUCCESS; });
    if (best == results.begin() + found)
      throw DeviceError("cuBLASLt has no algorithm for the " + describe(g_));
    chosen_ = *best;
  }

  Gemm g_;
  MatrixLayout a_, b_, c_;
  MatmulDesc product_;
  cublasLtMatmulHeuristicResult_t chosen_{};
};

/// A product without elements to multiply, because cuBLAS refuses empty matrices.
class EmptyGemm : public PreparedGemm {
 public:
  explicit EmptyGemm(const Gemm& g) : g_(g) {}
  std::int64_t workspace_bytes() const override { return 0; }
  void run(Queue* queue, const std::byte*, const std::byte*, std::byte* c, std::byte*) const override {
    if (g_.accumulate || g_.m * g_.n == 0) return;
    const auto size = static_cast<std::size_t>(size_of(g_.result));
    for (std::int64_t i = 0; i < g_.batch; ++i)
      check(cudaMemset2DAsync(c + i * g_.c_step * size_of(g_.result), static_cast<std::size_t>(g_.ldc) * size,
                              0, static_cast<std::size_t>(g_.n) * size, static_cast<std::size_t>(g_.m),
                              stream_of(queue).handle),
            "zeroing an empty product");
  }

 private:
  Gemm g_;
};

}  // namespace

std::shared_ptr<const PreparedGemm> prepare_gemm(const Gemm& g, const Context& context) {
  if (g.m * g.n * g.k * g.batch == 0) return std::make_shared<EmptyGemm>(g);
  return std::make_shared<LtGemm>(g, context);
}

}  // namespace convnet::cuda
