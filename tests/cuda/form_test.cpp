// The workspaces in the forms of operations that libraries do: their exact sizes for some shapes, and that
// they hold what is bound in them, with large shapes, too. For the operations of the shared table, own
// kernels' among them, BothBackends compares what is bound with the form.
#include "kernels/cuda/form.h"

#include "kernels/cuda/sizes.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

/// Filters of 3x3 pixels over images of `side` x `side` pixels, whose output is as large.
ConvGeometry square(std::int64_t n, std::int64_t c, std::int64_t side, std::int64_t k,
                    std::int64_t groups = 1) {
  return conv(n, c, side, side, k, 3, 1, 1, groups);
}

std::int64_t workspace(const OpDesc& op, Precision precision = Precision::tf32) {
  return cuda::form(op, {}, precision).workspace_bytes;
}

}  // namespace

TEST_CASE("the workspace of convolutions grows with their arguments, up to a limit", "[cuda]") {
  CHECK(workspace(ConvForward{square(0, 16, 8, 16)}) == 0);
  // Windows of one image after the other take more than copies of all arguments.
  CHECK(workspace(ConvForward{square(4, 16, 8, 16)}) == 32 * kMiB + 4 * 8 * 8 * 16 * 9 * 4);
  CHECK(workspace(ConvForward{square(64, 64, 56, 64)}) ==
        32 * kMiB + 32 * std::int64_t{56} * 56 * 64 * 9 * 4);
  // Copies of all arguments, as f32 in all precisions, take more than 256 MiB of windows.
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16})
    CHECK(workspace(ConvForward{square(256, 64, 56, 64), false}, precision) ==
          32 * kMiB + 4 * (2 * std::int64_t{256} * 56 * 56 * 64 + 64 * 64 * 9));
  CHECK(workspace(ConvForward{square(512, 64, 112, 64)}) == 2048 * kMiB);
  // One image's windows may not be divided.
  CHECK(workspace(ConvForward{square(1, 256, 512, 8)}) == 32 * kMiB + std::int64_t{512} * 512 * 256 * 9 * 4);
}

TEST_CASE("convolutions have room for copies with the channels of groups filled up to 8", "[cuda]") {
  // Filters of one pixel have no windows.
  const auto of = [](std::int64_t c, std::int64_t k, std::int64_t groups = 1) {
    return workspace(ConvForward{conv(128, c, 56, 56, k, 1, 1, 0, groups)});
  };
  const std::int64_t pixels = std::int64_t{128} * 56 * 56;
  CHECK(of(3, 20) == 32 * kMiB + 4 * (pixels * (8 + 24) + 24 * 8));
  CHECK(of(18, 60, 2) == 32 * kMiB + 4 * (pixels * (32 + 64) + 64 * 16));
  CHECK(of(16, 16, 16) == 32 * kMiB + 4 * (pixels * (128 + 128) + 128 * 8));
}

TEST_CASE("the engines that cuDNN proposes first fit into the workspace of large convolutions", "[cuda]") {
  // Bytes that the largest of the first 8 engines of a kind asks for (cuDNN 9, for an H200).
  struct Wish {
    Precision precision;
    std::int64_t bytes;
    OpDesc op;
  };
  const auto alexnet = [](std::int64_t n) { return conv(n, 3, 224, 224, 64, 11, 4, 2); };
  const auto resnet = [](std::int64_t n) { return conv(n, 3, 224, 224, 64, 7, 2, 3, 1, true); };
  const ConvGeometry halved = conv(1024, 64, 56, 56, 128, 3, 2, 1, 1, true);
  for (const Wish& wish : {
           Wish{Precision::tf32, 519'873'680, ConvBackwardWeights{resnet(128)}},
           Wish{Precision::bf16, 513'852'432, ConvForward{resnet(128)}},
           Wish{Precision::bf16, 2'084'732'944, ConvBackwardData{resnet(1024)}},
           Wish{Precision::bf16, 1'644'291'088, ConvForward{alexnet(1024)}},
           Wish{Precision::tf32, 1'659'159'696, ConvBackwardWeights{alexnet(1024)}},
           Wish{Precision::tf32, 1'293'418'512, ConvBackwardData{halved}},
           Wish{Precision::bf16, 308'232'480, ConvBackwardWeights{conv(512, 96, 27, 27, 256, 5, 1, 2, 2)}},
           Wish{Precision::bf16, 415'190'319, ConvBackwardWeights{square(128, 64, 56, 64, 64)}},
           Wish{Precision::tf32, 823'300'703, ConvBackwardWeights{square(128, 64, 56, 64, 64)}},
       }) {
    INFO(op_name(wish.op) << " " << to_string(arguments(wish.op)[0].dims) << " "
                          << to_string(wish.precision));
    CHECK(workspace(wish.op, wish.precision) >= wish.bytes);
  }
}

TEST_CASE("convolutions have room for padded images, rounded numbers and sums", "[cuda]") {
  ConvGeometry g = square(4, 16, 8, 16);
  const std::int64_t before = workspace(ConvBackwardWeights{g, false}, Precision::bf16);
  const std::int64_t sums = aligned(16 * 16 * 9 * 4);
  CHECK(before == sums + workspace(ConvForward{g, false}, Precision::bf16));
  CHECK(workspace(ConvForward{g, true}, Precision::bf16) == aligned(32 * kMiB + 4 * 8 * 8 * 16 * 9 * 2));
  CHECK(workspace(ConvBackwardWeights{g, true}, Precision::bf16) ==
        before + aligned(cuda::sum_rows_bytes(4 * 8 * 8, 16)));
  // The last of 9 windows hangs over by one more than the padding.
  const std::int64_t symmetric = workspace(ConvForward{g});
  g.oh = 9;
  const std::int64_t windows = 4 * 9 * 8 * 16 * 9 * 4;
  CHECK(workspace(ConvForward{g}) == 32 * kMiB + windows + 4 * 16 * 11 * 10 * 4);
  CHECK(symmetric == 32 * kMiB + 4 * 8 * 8 * 16 * 9 * 4);
  // The library may copy the padded images once more.
  g = square(256, 64, 56, 64);
  g.oh = 57;
  const std::int64_t padded = std::int64_t{256} * 64 * 59 * 58, outputs = std::int64_t{256} * 64 * 57 * 56;
  CHECK(workspace(ConvForward{g, false}, Precision::bf16) ==
        aligned(padded * 2) + aligned(32 * kMiB + 4 * (padded + outputs + 64 * 64 * 9)));
}

TEST_CASE("gradients of images are summed from windows of f32", "[cuda]") {
  // 8 images' windows, or 12 in bf16, are copied at a time.
  const ConvGeometry g = square(24, 64, 112, 64);
  const std::int64_t image = std::int64_t{112} * 112 * 64 * 9;
  CHECK(workspace(ConvBackwardData{g}) == 32 * kMiB + 8 * image * 4);
  CHECK(workspace(ConvBackwardData{g}, Precision::bf16) == 32 * kMiB + 8 * image * 4);
  CHECK(workspace(ConvForward{g, false}, Precision::bf16) == 32 * kMiB + 12 * image * 2);
}

TEST_CASE("large products bind within their workspace", "[cuda][cudnn]") {
  // As matrix products the first convolution has more windows than are copied at a time, the last one fewer
  // bytes of arguments than of windows. The second locally-connected layer goes over its positions in chunks.
  for (const Precision precision : {Precision::tf32, Precision::bf16}) {
    const auto backend = make_cuda_backend(precision);
    for (const ConvGeometry& g : {square(24, 64, 112, 64), square(16, 3, 56, 200), square(1, 64, 200, 64)}) {
      check_binding(*backend, ConvForward{g});
      check_binding(*backend, ConvBackwardData{g});
      check_binding(*backend, ConvBackwardWeights{g, true});
    }
    for (const LocalGeometry& g :
         {local({64, 32, 8, 8}, 32, 3, 1, 1), local({512, 64, 16, 16}, 64, 3, 1, 1)}) {
      check_binding(*backend, LocalForward{g});
      check_binding(*backend, LocalBackwardData{g});
      check_binding(*backend, LocalBackwardWeights{g, true});
    }
    const InnerProductGeometry g{1024, 256, 512};
    check_binding(*backend, InnerProductForward{g});
    check_binding(*backend, InnerProductBackwardData{g});
    check_binding(*backend, InnerProductBackwardWeights{g, true});
  }
}

TEST_CASE("locally-connected layers have room for the windows and results of a chunk of positions",
          "[cuda]") {
  const LocalGeometry small = local({3, 6, 5, 4}, 4, 3, 1, 1);  // 20 positions
  const std::int64_t whole = aligned(20 * 3 * 6 * 9 * 4) + aligned(20 * 3 * 4 * 4) + 32 * kMiB;
  CHECK(workspace(LocalForward{small}) == whole);
  CHECK(workspace(LocalBackwardData{small}) == whole);
  CHECK(workspace(LocalBackwardWeights{small, true}) == whole);
  CHECK(workspace(LocalForward{small}, Precision::bf16) == whole);
  // A position has 512 x (64 x 9 + 64) floats. Of these, 204 positions take 255 MiB; 256 are two chunks of
  // 128.
  const LocalGeometry large = local({512, 64, 16, 16}, 64, 3, 1, 1);
  CHECK(workspace(LocalForward{large}) ==
        std::int64_t{128} * 512 * 64 * 9 * 4 + std::int64_t{128} * 512 * 64 * 4 + 32 * kMiB);
  // The gradient of the input is summed over both chunks.
  CHECK(workspace(LocalBackwardData{large}, Precision::bf16) ==
        workspace(LocalBackwardData{large}) + std::int64_t{512} * 64 * 16 * 16 * 4);
  CHECK(workspace(LocalForward{local({0, 6, 5, 4}, 4, 3, 1, 1)}) == 0);
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
