#include <omp.h>

#include <cmath>
#include <limits>
#include "tests/catch.h"

#include "kernels/cpu/layout.h"
#include "tests/kernels/dnn_reference.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_runner.h"

namespace convnet::pool_test {
namespace {

using test::pool;
using test::Values;

constexpr double kPoolTolerance = 1e-6;

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

/// Pooling that applies a relu, beside `pooled` without: the results of its training pass.
void check_relu(const PoolGeometry& g, const Values& src, const TensorDesc& layout,
                const test::Results& pooled) {
  Values dst = pooled[1], positions = pooled[2];
  const double nowhere = g.workspace_type() == DataType::u8 ? 255 : -1;
  for (std::size_t i = 0; i < dst.size(); ++i) {
    if (dst[i] > 0 || std::isnan(dst[i])) continue;
    dst[i] = 0;
    positions[i] = nowhere;
  }
  for (const bool keep : {true, false}) {
    const PoolForward op{g, keep, true};
    std::vector<Values> inputs(keep ? 3 : 2);
    inputs[0] = src;
    const test::Results results =
        test::run_plain(OpDesc(op), *cpu::prepare(op, first_hint(layout, inputs.size())), inputs);
    CHECK(results[1] == dst);
    if (keep) CHECK(results[2] == positions);
  }
}

void check_all(const PoolGeometry& g, const Values& src) {
  const bool max = g.keeps_workspace();
  const Values diff_dst = test::test_values(g.dst(), 9);
  const test::PoolResult expected = test::reference_pool(g, src);
  const Values expected_diff = test::reference_pool_backward(g, diff_dst, expected.position);
  for (const TensorDesc& layout : layouts(g.src())) {
    INFO(layout.layout_name() << " " << to_string(g.src()) << " size " << to_string(g.size) << " stride "
                              << to_string(g.stride) << " start " << to_string(g.start));
    const PoolForward forward{g, max};
    std::vector<Values> inputs(max ? 3 : 2);
    inputs[0] = src;
    const auto prepared = cpu::prepare(forward, first_hint(layout, inputs.size()));
    CHECK(same_layout(prepared->args()[0], layout));
    const test::Results results = test::run_plain(OpDesc(forward), *prepared, inputs);
    CHECK(test::relative_error(results[1], expected.dst) <= (max ? 0.0 : kPoolTolerance));
    if (max) CHECK(results[2] == expected.position);
    const PoolForward test_pass{g, false};
    CHECK(test::relative_error(test::run_plain(OpDesc(test_pass),
                                               *cpu::prepare(test_pass, first_hint(layout, 2)), {src, {}})[1],
                               results[1]) == 0.0);
    if (max) check_relu(g, src, layout, results);
  }
  for (const TensorDesc& layout : layouts(g.dst())) {
    const PoolBackward backward{g};
    std::vector<Values> inputs = {diff_dst, {}};
    if (max) inputs = {diff_dst, expected.position, {}};
    const auto prepared = cpu::prepare(backward, first_hint(layout, inputs.size()));
    CHECK(same_layout(prepared->args()[0], layout));
    const Values diff_src = test::run_plain(OpDesc(backward), *prepared, inputs).back();
    CHECK(test::relative_error(diff_src, expected_diff) <= kPoolTolerance);
  }
}

TEST_CASE("pooling matches the reference", "[pool]") {
  for (const PoolGeometry& g : test::pool_geometries()) check_all(g, test::test_values(g.src(), 6));
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

TEST_CASE("gradients of pooling lie as the positions do", "[pool]") {
  const PoolGeometry g = pool(PoolKind::max, {2, 20, 6, 6}, 2, 2);
  LayoutHints hints(3);
  hints[0] = TensorDesc{g.dst(), DataType::f32, nullptr};
  hints[1] = cpu::blocked_activations(g.dst(), 16, DataType::u8);
  const auto prepared = cpu::prepare(PoolBackward{g}, hints);
  CHECK(same_layout(prepared->args()[0], cpu::blocked_activations(g.dst(), 16)));
  CHECK(same_layout(prepared->args()[1], *hints[1]));
  CHECK(same_layout(prepared->args()[2], cpu::blocked_activations(g.src(), 16)));
}

TEST_CASE("the gradient of the average of a whole map lies as the plan wants it", "[pool]") {
  const PoolGeometry g = pool(PoolKind::average, {2, 16, 3, 5}, {3, 5}, 1);
  const Values gradient = test::test_values(g.dst(), 1);
  LayoutHints hints(2);
  hints[0] = TensorDesc{g.dst(), DataType::f32, nullptr};
  const auto plain = cpu::prepare(PoolBackward{g}, hints);
  CHECK(plain->args()[1].plain());
  hints[1] = cpu::blocked_activations(g.src(), 8);
  const auto blocked = cpu::prepare(PoolBackward{g}, hints);
  CHECK(same_layout(blocked->args()[1], *hints[1]));
  CHECK(test::run_plain(PoolBackward{g}, *blocked, {gradient, {}})[1] ==
        test::run_plain(PoolBackward{g}, *plain, {gradient, {}})[1]);
}

TEST_CASE("max pooling with a relu gives no gradient to what is not positive", "[pool]") {
  const float nan = std::nanf("");
  const PoolGeometry g = pool(PoolKind::max, {1, 1, 2, 8}, 2, 2);
  const auto results = test::run_plain(PoolForward{g, true, true}, {{-1, -2, 0, -1, 2, 3, 1, nan,  //
                                                                     -3, -4, -1, -1, 1, 3, 5, 6},
                                                                    {},
                                                                    {}});
  CHECK(results[1][0] == 0);
  CHECK(results[1][1] == 0);
  CHECK(results[1][2] == 3);
  CHECK(std::isnan(results[1][3]));
  CHECK(test::run_plain(PoolBackward{g}, {{3, 4, 5, 6}, results[2], {}})[2] ==
        Values{0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("max-abs pooling keeps the sign of the first of the largest", "[pool]") {
  const PoolGeometry g = pool(PoolKind::max_abs, {1, 1, 2, 4}, 2, 2);
  const auto results = test::run_plain(PoolForward{g, true}, {{0.5, -2, 1, 0, 2, 1, -1, -1}, {}, {}});
  CHECK(results[1] == Values{-2, 1});
  CHECK(results[2] == Values{1, 0});
  CHECK(test::run_plain(PoolBackward{g}, {{3, 4}, results[2], {}})[2] == Values{0, 3, 4, 0, 0, 0, 0, 0});
  check_all(pool(PoolKind::max_abs, {1, 3, 5, 5}, 3, 1), Values(75, -1.0));
  check_all(pool(PoolKind::max_abs, {1, 3, 5, 5}, 3, 2, -1),
            Values(75, -std::numeric_limits<double>::infinity()));
}

TEST_CASE("pooling of no images", "[pool]") {
  for (PoolKind kind : {PoolKind::max, PoolKind::average, PoolKind::max_abs}) {
    const PoolGeometry g = pool(kind, {0, 20, 7, 5}, 3, 2);
    for (const bool blocked : {false, true}) {
      const auto hint = [&](const Dims& dims) {
        return blocked ? cpu::blocked_activations(dims, 16) : TensorDesc{dims, DataType::f32, nullptr};
      };
      for (const auto& op : {cpu::prepare(PoolForward{g, g.keeps_workspace()}, first_hint(hint(g.src()), 3)),
                             cpu::prepare(PoolBackward{g}, first_hint(hint(g.dst()), 3))}) {
        std::vector<test::GuardedBuffer> buffers;
        for (const TensorDesc& arg : op->args()) buffers.emplace_back(arg.bytes());
        test::run_guarded(*op, buffers);
      }
    }
  }
}

TEST_CASE("pooling is the same for any number of threads", "[pool]") {
  const PoolGeometry g = pool(PoolKind::max, {5, 20, 9, 9}, 3, 2, -1);
  const Values src = test::test_values(g.src(), 4), diff_dst = test::test_values(g.dst(), 5);
  for (const TensorDesc& layout : layouts(g.src())) {
    test::Results forward[2], backward[2];
    const int before = omp_get_max_threads();
    for (int i : {0, 1}) {
      omp_set_num_threads(1 + 2 * i);
      forward[i] = test::run_plain(OpDesc(PoolForward{g, true}),
                                   *cpu::prepare(PoolForward{g, true}, first_hint(layout, 3)), {src, {}, {}});
      TensorDesc diff = layout;
      if (!layout.plain())
        diff = cpu::blocked_activations(g.dst(), layout.layout_name() == "nChw4c" ? 4 : 16);
      backward[i] =
          test::run_plain(OpDesc(PoolBackward{g}), *cpu::prepare(PoolBackward{g}, first_hint(diff, 3)),
                          {diff_dst, forward[0][2], {}});
    }
    omp_set_num_threads(before);
    CHECK(forward[0] == forward[1]);
    CHECK(backward[0] == backward[1]);
  }
}

TEST_CASE("pooling does not lose a NaN", "[pool]") {
  Values src = test::test_values(2 * 20 * 7 * 5, 8);
  for (std::size_t i = 3; i < src.size(); i += 61) src[i] = std::numeric_limits<double>::quiet_NaN();
  for (PoolKind kind : {PoolKind::max, PoolKind::max_abs}) {
    const PoolGeometry g = pool(kind, {2, 20, 7, 5}, 3, 2);
    for (const TensorDesc& layout : layouts(g.src())) {
      const PoolForward forward{g, false};
      const Values dst =
          test::run_plain(OpDesc(forward), *cpu::prepare(forward, first_hint(layout, 2)), {src, {}})[1];
      CHECK(test::relative_error(dst, test::reference_pool(g, src).dst) == 0.0);
    }
  }
}

TEST_CASE("a window without pixels gives 0 and takes no gradient", "[pool]") {
  PoolGeometry g = pool(PoolKind::max, {1, 2, 4, 4}, 2, 2);
  g.oh = g.ow = 3;  // the third row and column lie outside
  for (PoolKind kind : {PoolKind::max, PoolKind::average, PoolKind::max_abs}) {
    g.kind = kind;
    check_all(g, test::test_values(g.src(), 3));
  }
}

}  // namespace
}  // namespace convnet::pool_test
