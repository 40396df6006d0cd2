#include "kernels/cuda/gemm.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <vector>

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
        c_(matrix(g.result, g.m, g.n, g.ldc, g.batch, g.c_step)),
        // Factors that stay f32 in a bf16 run are multiplied as tf32. COMPUTE_32F rounds no factor.
        rounds_(g.factors == DataType::f32 && context.precision != Precision::fp32) {
    const cublasComputeType_t compute = rounds_ ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check(cublasLtMatmulDescCreate(product_.put(), compute, CUDA_R_32F), "describing a product");
    set(product_, CUBLASLT_MATMUL_DESC_TRANSA, g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(product_, CUBLASLT_MATMUL_DESC_TRANSB, g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    // Peaks are measured without a Tuning: seldom enough for a handle of their own.
    Owned<cublasLtHandle_t, cublasLtDestroy> own;
    if (context.tuning == nullptr) {
      use_device(context.device);
      check(cublasLtCreate(own.put()), "making a handle");
    }
    if (context.tuning == nullptr)
      chosen_ = proposals(own.get()).front();
    else
      choose(*context.tuning, context.device);
  }
  std::int64_t workspace_bytes() const override { return static_cast<std::int64_t>(chosen_.workspaceSize); }

  void run(Queue* queue, const std::byte* a, const std::byte* b, std::byte* c,
           std::byte* workspace) const override {
    check_aligned(g_, a, b, c, workspace);
    run(chosen_, queue, a, b, c, workspace);
  }

 private:
  using Proposal = cublasLtMatmulHeuristicResult_t;

  void run(const Proposal& proposal, Queue* queue, const std::byte* a, const std::byte* b, std::byte* c,
           std::byte* workspace) const {
    const float one = 1, beta = g_.accumulate ? 1 : 0;
    check(cublasLtMatmul(cublas_of(queue), product_.get(), &one, b, b_.get(), a, a_.get(), &beta, c, c_.get(),
                         c, c_.get(), &proposal.algo, workspace, proposal.workspaceSize,
                         stream_of(queue).handle),
          describe(g_));
  }

  /// Takes the fastest of the library's proposals, or the first if nothing is timed: for these shapes it is
  /// the same in every run.
  void choose(Tuning& tuning, int device) {
    Queue& queue = tuning.queue(device);
    const std::vector<Proposal> found = proposals(cublas_of(&queue));
    const auto take = [&](const std::string& kept) {
      const auto index = static_cast<std::size_t>(std::strtoul(kept.c_str(), nullptr, 10));
      if (index >= found.size()) return false;
      chosen_ = found[index];
      return true;
    };
    take("0");
    if (!tuning.times() || found.size() == 1) return;
    tuning.choose(name(), take, [&] {
      const std::size_t fastest = fastest_of(found, tuning, queue, device);
      chosen_ = found[fastest];
      return std::to_string(fastest);
    });
  }

  /// Returns a text that describes everything that matters for the speed.
  std::string name() const {
    const auto one_of = [](bool is, const char* text) { return std::string(is ? text : ""); };
    return describe(g_) + one_of(g_.trans_a, " a^T") + one_of(g_.trans_b, " b^T") +
           one_of(g_.accumulate, " accumulate") + " rows " + std::to_string(g_.lda) + " " +
           std::to_string(g_.ldb) + " " + std::to_string(g_.ldc) + " steps " + std::to_string(g_.a_step) +
           " " + std::to_string(g_.b_step) + " " + std::to_string(g_.c_step) + " aligned " +
           std::to_string(g_.alignment) + " " + to_string(g_.factors) + " to " + to_string(g_.result) +
           one_of(rounds_, " tf32") + " cublaslt " + std::to_string(cublasLtGetVersion());
  }

  /// Returns the index of the fastest proposal; the first where there is no memory to run any.
  std::size_t fastest_of(const std::vector<Proposal>& found, Tuning& tuning, Queue& queue, int device) const {
    // A matrix ends with the last element of its last row.
    const auto bytes = [&](DataType type, bool transposed, std::int64_t rows, std::int64_t columns,
                           std::int64_t ld, std::int64_t step) {
      const std::int64_t lines = transposed ? columns : rows, length = transposed ? rows : columns;
      return ((g_.batch - 1) * step + (lines - 1) * ld + length) * size_of(type);
    };
    Areas areas;
    const std::int64_t a = areas.add(bytes(g_.factors, g_.trans_a, g_.m, g_.k, g_.lda, g_.a_step));
    const std::int64_t b = areas.add(bytes(g_.factors, g_.trans_b, g_.k, g_.n, g_.ldb, g_.b_step));
    const std::int64_t c = areas.add(bytes(g_.result, false, g_.m, g_.n, g_.ldc, g_.c_step));
    const std::int64_t workspace = areas.add(kMostProductBytes);
    std::byte* memory = nullptr;
    const Delay* delay = nullptr;
    try {
      memory = tuning.arena(device, areas.bytes());
      delay = &tuning.delay(device);
    } catch (const DeviceError&) {
      return 0;
    }
    // As f32 or bf16, every number is 0.0115: zeros would be multiplied faster.
    check(cudaMemsetAsync(memory, 0x3c, static_cast<std::size_t>(workspace), stream_of(&queue).handle),
          "filling memory");
    const auto seconds_of = [&](const Proposal& proposal) {
      constexpr int kRuns = 3;  // beside the first, which loads the kernel
      double fastest = std::numeric_limits<double>::infinity();
      for (int i = 0; i <= kRuns; ++i) {
        delay->put_into(queue);
        const auto begin = queue.mark();
        run(proposal, &queue, memory + a, memory + b, memory + c, memory + workspace);
        const auto end = queue.mark();
        wait_for(*end);
        if (i > 0) fastest = std::min(fastest, end->seconds_since(*begin));
      }
      return fastest;
    };
    std::vector<double> seconds;
    for (const Proposal& proposal : found) {
      try {
        seconds.push_back(seconds_of(proposal));
      } catch (const DeviceError&) {
        // The next kernel would report the error of this trial again; a lost device reports its own.
        static_cast<void>(cudaGetLastError());
        check(cudaStreamSynchronize(stream_of(&queue).handle), "trying a matrix product");
        seconds.push_back(std::numeric_limits<double>::infinity());
      }
    }
    return static_cast<std::size_t>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin());
  }

  /// Returns the library's proposals, the one first that it thinks the fastest.
  std::vector<Proposal> proposals(cublasLtHandle_t handle) const {
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
    const auto of_factors = static_cast<std::uint32_t>(factor_alignment(g_)),
               of_result = static_cast<std::uint32_t>(result_alignment(g_));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, of_factors);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, of_factors);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_result);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_result);
    std::array<Proposal, 8> results{};
    int found = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle, product_.get(), b_.get(), a_.get(), c_.get(), c_.get(),
                                         preference.get(), static_cast<int>(results.size()), results.data(),
                                         &found),
          "choosing an algorithm for the " + describe(g_));
    // Results of another state hold nothing else that is valid.
    std::vector<Proposal> valid;
    std::copy_if(results.begin(), results.begin() + found, std::back_inserter(valid),
                 [](const auto& result) { return result.state == CUBLAS_STATUS_SUCCESS; });
    if (valid.empty()) throw DeviceError("cuBLASLt has no algorithm for the " + describe(g_));
    return valid;
  }

  Gemm g_;
  MatrixLayout a_, b_, c_;
  MatmulDesc product_;
  bool rounds_;  ///< f32 factors are rounded to tf32
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
