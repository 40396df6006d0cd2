#include "kernels/cuda/gemm.h"

#include <array>

#include "kernels/cuda/libraries.h"

namespace convnet::cuda {
namespace {

using MatmulDesc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;

std::string describe(const Gemm& g) {
  return "matrix product " + std::to_string(g.m) + "x" + std::to_string(g.n) + "x" + std::to_string(g.k) +
         (g.batch > 1 ? " times " + std::to_string(g.batch) : "");
}

template <class T>
void set(const MatmulDesc& desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
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

/// C^T = op(B)^T op(A)^T: cuBLAS counts columns first, so the factors change places.
class LtGemm : public PreparedGemm {
 public:
  LtGemm(const Gemm& g, Precision precision)
      : g_(g),
        a_(g.trans_a ? matrix(g.factors, g.k, g.m, g.lda, g.batch, g.a_step)
                     : matrix(g.factors, g.m, g.k, g.lda, g.batch, g.a_step)),
        b_(g.trans_b ? matrix(g.factors, g.n, g.k, g.ldb, g.batch, g.b_step)
                     : matrix(g.factors, g.k, g.n, g.ldb, g.batch, g.b_step)),
        c_(matrix(g.result, g.m, g.n, g.ldc, g.batch, g.c_step)) {
    // What stays f32 in a bf16 run is multiplied as tf32.
    const cublasComputeType_t compute = g.factors == DataType::bf16    ? CUBLAS_COMPUTE_32F
                                        : precision == Precision::fp32 ? CUBLAS_COMPUTE_32F_PEDANTIC
                                                                       : CUBLAS_COMPUTE_32F_FAST_TF32;
    check(cublasLtMatmulDescCreate(product_.put(), compute, CUDA_R_32F), "describing a product");
    set(product_, CUBLASLT_MATMUL_DESC_TRANSA, g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(product_, CUBLASLT_MATMUL_DESC_TRANSB, g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    const cublasLtEpilogue_t epilogue = g.bias
                                            ? (g.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
                                        : g.relu ? CUBLASLT_EPILOGUE_RELU
                                                 : CUBLASLT_EPILOGUE_DEFAULT;
    set(product_, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    choose();
  }
  std::int64_t workspace_bytes() const override { return static_cast<std::int64_t>(chosen_.workspaceSize); }

  void run(Queue* queue, const std::byte* a, const std::byte* b, const float* bias, std::byte* c,
           std::byte* workspace) const override {
    // The bias is part of the description, which is shared by threads: each call has its own.
    MatmulDesc with_bias;
    cublasLtMatmulDesc_t product = product_.get();
    if (g_.bias) {
      with_bias = describe_again();
      set(with_bias, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
      product = with_bias.get();
    }
    const float one = 1, beta = g_.accumulate ? 1 : 0;
    check(cublasLtMatmul(cublas_of(queue), product, &one, b, b_.get(), a, a_.get(), &beta, c, c_.get(), c,
                         c_.get(), &chosen_.algo, workspace, chosen_.workspaceSize, stream_of(queue).handle),
          describe(g_));
  }

 private:
  /// The library's first choice for these shapes, which is the same in every run.
  void choose() {
    Owned<cublasLtHandle_t, cublasLtDestroy> handle;
    check(cublasLtCreate(handle.put()), "making a handle");
    Preference preference;
    check(cublasLtMatmulPreferenceCreate(preference.put()), "choosing an algorithm");
    check(cublasLtMatmulPreferenceSetAttribute(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &kMostWorkspace, sizeof kMostWorkspace),
          "choosing an algorithm");
    const auto alignment = static_cast<std::uint32_t>(g_.alignment);
    for (const cublasLtMatmulPreferenceAttributes_t pointer :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      check(cublasLtMatmulPreferenceSetAttribute(preference.get(), pointer, &alignment, sizeof alignment),
            "choosing an algorithm");
    int found = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle.get(), product_.get(), b_.get(), a_.get(), c_.get(), c_.get(),
                                         preference.get(), 1, &chosen_, &found),
          "choosing an algorithm for the " + describe(g_));
    if (found == 0) throw DeviceError("cuBLASLt has no algorithm for the " + describe(g_));
  }

  MatmulDesc describe_again() const {
    MatmulDesc copy;
    check(cublasLtMatmulDescCreate(copy.put(), CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    for (const cublasLtMatmulDescAttributes_t attribute :
         {CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB,
          CUBLASLT_MATMUL_DESC_EPILOGUE}) {
      std::int32_t value = 0;
      std::size_t written = 0;
      check(cublasLtMatmulDescGetAttribute(product_.get(), attribute, &value, sizeof value, &written),
            "describing a product");
      check(cublasLtMatmulDescSetAttribute(copy.get(), attribute, &value, written), "describing a product");
    }
    return copy;
  }

  Gemm g_;
  MatrixLayout a_, b_, c_;
  MatmulDesc product_;
  cublasLtMatmulHeuristicResult_t chosen_{};
};

/// Nothing to multiply: cuBLAS refuses empty matrices.
class EmptyGemm : public PreparedGemm {
 public:
  explicit EmptyGemm(const Gemm& g) : g_(g) {
    if (g.k == 0 && g.m * g.n * g.batch > 0 && (g.bias || g.relu))
      throw DeviceError("a " + describe(g) + " with a bias");
  }
  std::int64_t workspace_bytes() const override { return 0; }
  void run(Queue* queue, const std::byte*, const std::byte*, const float*, std::byte* c,
           std::byte*) const override {
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
  return std::make_shared<LtGemm>(g, context.precision);
}

}  // namespace convnet::cuda
