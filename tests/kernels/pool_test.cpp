#include <cmath>
#include <limits>
#include "tests/catch.h"

#include "kernels/cpu/layout.h"
#include "tests/kernels/dnn_reference.h"
#include "tests/kernels/op_runner.h"

namespace convnet {
namespace {

using test::Values;

constexpr double kTolerance = 1e-6;

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

/// The first argument in plain and in every blocked layout.
std::vector<TensorDesc> layouts(const Dims& dims) {
  return {TensorDesc{dims, DataType::f32, nullptr}, cpu::blocked_activations(dims, 4),
          cpu::blocked_activations(dims, 8), cpu::blocked_activations(dims, 16)};
}

LayoutHints first_hint(const TensorDesc& layout, std::size_t count) {
  LayoutHints hints(count);
  hints[0] = layout;
  return hints;
}

void check_all(const PoolGeometry& g, const Values& src) {
  const bool max = g.kind == PoolKind::max;
  const Values diff_dst = test::test_values(g.dst(), 9);
  const test::PoolResult expected = test::reference_pool(g, src);
  const Values expected_diff = test::reference_pool_backward(g, diff_dst, expected.position);
  for (const TensorDesc& layout : layouts(g.src())) {
    INFO(layout.layout_name() << " " << to_string(g.src()) << " size " << g.size << " stride " << g.stride
                              << " start " << g.start);
    const PoolForward forward{g, max};
    std::vector<Values> inputs(max ? 3 : 2);
    inputs[0] = src;
    const auto prepared = cpu::prepare(forward, first_hint(layout, inputs.size()));
    CHECK(same_layout(prepared->args()[0], layout));
    const test::Results results = test::run_plain(OpDesc(forward), *prepared, inputs);
    CHECK(test::relative_error(results[1], expected.dst) <= (max ? 0.0 : kTolerance));
    if (max) CHECK(results[2] == expected.position);
    const PoolForward test_pass{g, false};
    CHECK(test::relative_error(test::run_plain(OpDesc(test_pass),
                                               *cpu::prepare(test_pass, first_hint(layout, 2)), {src, {}})[1],
                               results[1]) == 0.0);
  }
  for (const TensorDesc& layout : layouts(g.dst())) {
    const PoolBackward backward{g};
    std::vector<Values> inputs = {diff_dst, {}};
    if (max) inputs = {diff_dst, expected.position, {}};
    const auto prepared = cpu::prepare(backward, first_hint(layout, inputs.size()));
    CHECK(same_layout(prepared->args()[0], layout));
    const Values diff_src = test::run_plain(OpDesc(backward), *prepared, inputs).back();
    CHECK(test::relative_error(diff_src, expected_diff) <= kTolerance);
  }
}

void check_both(const Dims& src, std::int64_t size, std::int64_t stride, std::int64_t start = 0) {
  const Values values = test::test_values(src, 6);
  check_all(pool(PoolKind::max, src, size, stride, start), values);
  PoolGeometry g = pool(PoolKind::average, src, size, stride, start);
  check_all(g, values);
  g.sum = true;
  check_all(g, values);
}

TEST_CASE("pooling matches the reference", "[pool]") {
  check_both({2, 16, 8, 8}, 2, 2);
  check_both({3, 20, 7, 5}, 3, 2);      // exact
  check_both({1, 3, 8, 6}, 3, 2);       // overhang
  check_both({2, 32, 9, 7}, 3, 1, -1);  // starts before the image
  check_both({1, 5, 7, 7}, 3, 2, -2);
  check_both({1, 17, 9, 9}, 3, 2, 1);  // starts inside the image
  check_both({2, 10, 6, 5}, 1, 1);
  check_both({2, 10, 6, 5}, 1, 3);     // pixels in no window
  check_both({1, 18, 5, 5}, 5, 1);     // one window
  check_both({1, 1, 4, 4}, 7, 2, -3);  // wider than the image
  check_both({1, 2, 20, 20}, 17, 3);   // positions beyond a byte
}

TEST_CASE("max pooling of equal values sends the gradient to the first", "[pool]") {
  const Dims src = {1, 3, 5, 5};
  check_all(pool(PoolKind::max, src, 3, 2), Values(75, -1.0));
  check_all(pool(PoolKind::max, src, 3, 2, -1), Values(75, -std::numeric_limits<double>::infinity()));
  const PoolGeometry g = pool(PoolKind::max, {1, 1, 2, 2}, 2, 2);
  const auto results = test::run_plain(PoolForward{g, true}, {{0.5, 2, 2, 2}, {}, {}});
  CHECK(results[1] == Values{2});
  CHECK(results[2] == Values{1});
  CHECK(test::run_plain(PoolBackward{g}, {{3}, results[2], {}})[2] == Values{0, 3, 0, 0});
}

TEST_CASE("pooling does not lose a NaN", "[pool]") {
  Values src = test::test_values(2 * 20 * 7 * 5, 8);
  for (std::size_t i = 3; i < src.size(); i += 61) src[i] = std::numeric_limits<double>::quiet_NaN();
  const PoolGeometry g = pool(PoolKind::max, {2, 20, 7, 5}, 3, 2);
  for (const TensorDesc& layout : layouts(g.src())) {
    const PoolForward forward{g, false};
    const Values dst =
        test::run_plain(OpDesc(forward), *cpu::prepare(forward, first_hint(layout, 2)), {src, {}})[1];
    CHECK(test::relative_error(dst, test::reference_pool(g, src).dst) == 0.0);
  }
}

TEST_CASE("a window without pixels gives 0 and takes no gradient", "[pool]") {
  PoolGeometry g = pool(PoolKind::max, {1, 2, 4, 4}, 2, 2);
  g.oh = g.ow = 3;  // the third row and column lie outside
  for (PoolKind kind : {PoolKind::max, PoolKind::average}) {
    g.kind = kind;
    check_all(g, test::test_values(g.src(), 3));
  }
}

}  // namespace
}  // namespace convnet
