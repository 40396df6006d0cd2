
#include "kernels/cuda/layout.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("pooling to one pixel does not lose the layout of the image", "[cuda]") {
  // One pixel is plain either way.
  const auto cuda = make_cuda_backend(Precision::fp32);
  const PoolGeometry g = pool(PoolKind::average, {2, 8, 5, 5}, 5, 1);
  const TensorDesc one_pixel{g.dst(), DataType::f32, nullptr};
  CHECK_FALSE(prepared_for_test(*cuda, PoolBackward{g}, {one_pixel, {}})->args()[1].plain());
  const TensorDesc plain{g.src(), DataType::f32, nullptr};
  CHECK(prepared_for_test(*cuda, PoolForward{g}, {plain, {}})->args()[1].plain());
}

TEST_CASE("gradients of pooling lie as the positions do on GPUs", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const PoolGeometry g = pool(PoolKind::max, {2, 8, 6, 6}, 2, 2);
  LayoutHints hints(3);
  hints[0] = TensorDesc{g.dst(), DataType::f32, nullptr};
  hints[1] = cuda::channels_last(g.dst(), DataType::u8);
  const auto prepared = prepared_for_test(*backend, PoolBackward{g}, hints);
  CHECK(same_layout(prepared->args()[0], cuda::channels_last(g.dst())));
  CHECK(same_layout(prepared->args()[1], *hints[1]));
  CHECK(same_layout(prepared->args()[2], cuda::channels_last(g.src())));
}
