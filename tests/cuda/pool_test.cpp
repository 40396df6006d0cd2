#include <cmath>
#include <limits>

#include "kernels/cuda/layout.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// Output side as the layers compute it: ceil, so that the last window may overhang.
PoolGeometry pool(PoolKind kind, const Dims& src, std::int64_t size, std::int64_t stride,
                  std::int64_t start = 0) {
  PoolGeometry g;
  g.kind = kind;
  g.n = src[0], g.c = src[1], g.h = src[2], g.w = src[3];
  g.size = size, g.stride = stride, g.start = start;
  const auto side = [&](std::int64_t in) { return (in - start - size + stride - 1) / stride + 1; };
  g.oh = side(g.h), g.ow = side(g.w);
  return g;
}

/// Forward with and without positions, and backward.
void check(const PoolGeometry& g, const Values& src) {
  INFO(to_string(g.src()) << " size " << g.size << " stride " << g.stride << " start " << g.start << " kind "
                          << static_cast<int>(g.kind));
  const double tolerance = g.keeps_workspace() ? 0 : 1e-6;
  check_on_both({PoolForward{g, false}, {src}, {}, {}, tolerance});
  std::vector<Values> inputs(1);
  if (g.keeps_workspace()) {
    check_on_both({PoolForward{g, true}, {src}, {}, {}, 0});
    check_on_both({PoolForward{g, true, true}, {src}, {}, {}, 0});
    check_on_both({PoolForward{g, false, true}, {src}, {}, {}, 0});
    if (g.n > 0) inputs.push_back(run_plain(PoolForward{g, true}, {src, {}, {}})[2]);
  }
  check_on_both({PoolBackward{g}, inputs, {}, {}, tolerance});
}

void check_kinds(const Dims& src, std::int64_t size, std::int64_t stride, std::int64_t start = 0) {
  const Values values = test_values(src, 6);
  check(pool(PoolKind::max, src, size, stride, start), values);
  check(pool(PoolKind::max_abs, src, size, stride, start), values);
  PoolGeometry g = pool(PoolKind::average, src, size, stride, start);
  check(g, values);
  g.sum = true;
  check(g, values);
}

const std::vector<Dims> kWidths = {{1, 3, 5, 7}, {1, 4, 5, 7}, {2, 1, 5, 7}, {2, 40, 5, 7}};

}  // namespace

TEST_CASE("pooling on both backends", "[cuda]") {
  check_kinds({2, 16, 8, 8}, 2, 2);
  check_kinds({3, 20, 7, 5}, 3, 2);      // exact
  check_kinds({1, 3, 8, 6}, 3, 2);       // overhang
  check_kinds({2, 32, 9, 7}, 3, 1, -1);  // starts before the image
  check_kinds({1, 5, 7, 7}, 3, 2, -2);
  check_kinds({1, 17, 9, 9}, 3, 2, 1);  // starts inside the image
  check_kinds({1, 64, 9, 9}, 3, 2, 1);
  check_kinds({2, 10, 6, 5}, 1, 1);
  check_kinds({2, 12, 6, 5}, 1, 3);     // pixels in no window
  check_kinds({1, 18, 5, 5}, 5, 1);     // one window
  check_kinds({2, 64, 5, 5}, 5, 1);     // for every map
  check_kinds({1, 1, 4, 4}, 7, 2, -3);  // wider than the image
  check_kinds({1, 4, 4, 4}, 7, 2, -3);
  check_kinds({1, 2, 20, 20}, 17, 3);  // positions beyond a byte
  check_kinds({1, 8, 20, 20}, 17, 3);
  check_kinds({3, 11, 1, 1}, 1, 1);  // one pixel
  check_kinds({3, 12, 1, 1}, 3, 1, -2);
  check_kinds({1, 1, 9, 11}, 2, 1, -1);
  check_kinds({2, 8, 6, 7}, 2, 3);
  check_kinds({2, 36, 6, 7}, 5, 1, -2);
  check_kinds({0, 20, 7, 5}, 3, 2);  // no images
  check_kinds({0, 3, 7, 5}, 3, 2);
}

TEST_CASE("pooling of equal values, infinities and NaN on both backends", "[cuda]") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const Dims& dims : kWidths)
    for (const PoolKind kind : {PoolKind::max, PoolKind::max_abs}) {
      const auto count = static_cast<std::size_t>(element_count(dims));
      for (const double value : {-1.0, 0.0, -kInfinity, kInfinity, std::nan("")}) {
        check(pool(kind, dims, 3, 2), Values(count, value));
        check(pool(kind, dims, 2, 1, -1), Values(count, value));
        check(pool(kind, dims, 4, 3, -1), Values(count, value));
        Values some = test_values(dims, 8);
        for (std::size_t i = 3; i < count; i += 11) some[i] = value;
        check(pool(kind, dims, 3, 2), some);
        // Many equal values of both signs.
        for (double& v : some) v = std::round(2 * v);
        check(pool(kind, dims, 3, 1, -1), some);
      }
    }
}

TEST_CASE("pooling of windows without pixels on both backends", "[cuda]") {
  for (const Dims& dims : kWidths)
    for (const PoolKind kind : {PoolKind::max, PoolKind::average, PoolKind::max_abs}) {
      PoolGeometry g = pool(kind, dims, 2, 2);
      g.oh = g.ow = 5;  // the last rows and columns lie outside
      check(g, test_values(dims, 3));
      g = pool(kind, dims, 2, 3, -4);  // the first ones do
      check(g, test_values(dims, 3));
    }
}

TEST_CASE("pooling to one pixel does not lose the layout of the image", "[cuda]") {
  // One pixel is plain either way.
  const auto cuda = make_cuda_backend(Precision::fp32);
  const PoolGeometry g = pool(PoolKind::average, {2, 8, 5, 5}, 5, 1);
  const TensorDesc one_pixel{g.dst(), DataType::f32, nullptr};
  CHECK_FALSE(cuda->prepare(PoolBackward{g}, {one_pixel, {}})->args()[1].plain());
  const TensorDesc plain{g.src(), DataType::f32, nullptr};
  CHECK(cuda->prepare(PoolForward{g}, {plain, {}})->args()[1].plain());
}

TEST_CASE("gradients of pooling lie as the positions do on GPUs", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const PoolGeometry g = pool(PoolKind::max, {2, 8, 6, 6}, 2, 2);
  LayoutHints hints(3);
  hints[0] = TensorDesc{g.dst(), DataType::f32, nullptr};
  hints[1] = cuda::channels_last(g.dst(), DataType::u8);
  const auto prepared = backend->prepare(PoolBackward{g}, hints);
  CHECK(same_layout(prepared->args()[0], cuda::channels_last(g.dst())));
  CHECK(same_layout(prepared->args()[1], *hints[1]));
  CHECK(same_layout(prepared->args()[2], cuda::channels_last(g.src())));
}
