// The workspaces that operations of libraries get, and stay within. That own kernels take what their forms
// say, and that arguments lie as these say, is checked for every operation in check_on_both().
#include "kernels/cuda/form.h"

#include "kernels/cuda/sizes.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

/// Filters of 3x3 pixels over images of `side` x `side` pixels, whose output is as large.
ConvGeometry conv(std::int64_t n, std::int64_t c, std::int64_t side, std::int64_t k) {
  ConvGeometry g;
  g.n = n, g.c = c, g.k = k;
  g.h = g.w = g.oh = g.ow = side;
  g.filter = 3, g.pad = 1;
  return g;
}

std::int64_t workspace(const OpDesc& op, Precision precision = Precision::tf32) {
  return cuda::form(op, {}, precision).workspace_bytes;
}

}  // namespace

TEST_CASE("the workspace of convolutions grows with their arguments, up to a limit", "[cuda]") {
  CHECK(workspace(ConvForward{conv(0, 16, 8, 16)}) == 0);
  // Windows of one image after the other take more than copies of all arguments.
  CHECK(workspace(ConvForward{conv(4, 16, 8, 16)}) == 32 * kMiB + 4 * 8 * 8 * 16 * 9 * 4);
  CHECK(workspace(ConvForward{conv(64, 64, 56, 64)}) == 32 * kMiB + 32 * std::int64_t{56} * 56 * 64 * 9 * 4);
  CHECK(workspace(ConvForward{conv(256, 64, 112, 64)}) == 512 * kMiB);
  // One image's windows may not be divided.
  CHECK(workspace(ConvForward{conv(1, 256, 512, 8)}) == 32 * kMiB + std::int64_t{512} * 512 * 256 * 9 * 4);
}

TEST_CASE("convolutions have room for padded images, rounded numbers and sums", "[cuda]") {
  ConvGeometry g = conv(4, 16, 8, 16);
  const std::int64_t before = workspace(ConvBackwardWeights{g, false}, Precision::bf16);
  const std::int64_t narrow = aligned(16 * 16 * 9 * 2);
  CHECK(before == narrow + workspace(ConvForward{g, false}, Precision::bf16));
  CHECK(workspace(ConvForward{g, true}, Precision::bf16) ==
        aligned(16 * 2) + aligned(32 * kMiB + 4 * 8 * 8 * 16 * 9 * 2));
  CHECK(workspace(ConvBackwardWeights{g, true}, Precision::bf16) ==
        before + aligned(cuda::sum_rows_bytes(4 * 8 * 8, 16)));
  // The last of 9 windows hangs over by one more than the padding.
  const std::int64_t symmetric = workspace(ConvForward{g});
  g.oh = 9;
  const std::int64_t windows = 4 * 9 * 8 * 16 * 9 * 4;
  CHECK(workspace(ConvForward{g}) == 32 * kMiB + windows + 4 * 16 * 11 * 10 * 4);
  CHECK(symmetric == 32 * kMiB + 4 * 8 * 8 * 16 * 9 * 4);
}

TEST_CASE("large convolutions bind within their workspace", "[cuda]") {
  // As matrix products the first one has more windows than are copied at a time.
  const auto backend = make_cuda_backend(Precision::bf16);
  for (const ConvGeometry& g : {conv(32, 64, 112, 64), conv(16, 3, 56, 200), conv(1, 64, 200, 64)}) {
    check_binding(*backend, ConvForward{g});
    check_binding(*backend, ConvBackwardData{g});
    check_binding(*backend, ConvBackwardWeights{g});
  }
}

TEST_CASE("matrix products get a workspace unless there is nothing to multiply", "[cuda]") {
  CHECK(workspace(InnerProductForward{{8, 20, 10}}) == cuda::kMostProductBytes);
  CHECK(workspace(InnerProductBackwardData{{8, 20, 10}}) == cuda::kMostProductBytes);
  CHECK(workspace(InnerProductBackwardWeights{{8, 20, 10}}) == cuda::kMostProductBytes);
  CHECK(workspace(InnerProductBackwardWeights{{64, 20, 10}}) ==
        cuda::kMostProductBytes + aligned(cuda::sum_rows_bytes(64, 10)));
  CHECK(workspace(InnerProductForward{{0, 20, 10}}) == 0);
  CHECK(workspace(InnerProductBackwardWeights{{0, 20, 10}}) == 0);
}
