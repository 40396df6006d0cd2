#include <omp.h>

#include <cmath>
#include <limits>
#include <string>

#include "kernels/cpu/layout.h"
#include "tests/catch.h"
#include "tests/kernels/dnn_reference.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_runner.h"

namespace convnet::local_test {
namespace {

using test::local;
using test::Values;

constexpr double kTolerance = 3e-6;

/// The table's shapes, and one of which images come in several pieces.
std::vector<LocalGeometry> geometries() {
  std::vector<LocalGeometry> all = test::local_geometries();
  all.push_back(local({700, 48, 2, 2}, 48, 3, 1, 1));
  return all;
}

std::string describe(const LocalGeometry& g) {
  return to_string(g.src()) + " to " + to_string(g.dst()) + " filter " + to_string(g.filter) + " stride " +
         to_string(g.stride) + " pad " + to_string(g.pad) + " groups " + std::to_string(g.groups);
}

/// No hints; plain activations; blocked ones.
enum class Hinted { no, plain, blocked };
LayoutHints hints_for(const OpDesc& op, Hinted hinted) {
  LayoutHints hints;
  for (const Argument& arg : arguments(op)) {
    hints.emplace_back();
    if (hinted == Hinted::no || arg.dims.size() != 4) continue;
    hints.back() = hinted == Hinted::plain ? TensorDesc{arg.dims, arg.type, nullptr}
                                           : cpu::blocked_activations(arg.dims, 8);
  }
  return hints;
}

template <class Op>
test::Results run(const Op& op, const std::vector<Values>& inputs, Hinted hinted) {
  const auto prepared = cpu::prepare(op, hints_for(op, hinted));
  for (const TensorDesc& arg : prepared->args())
    if (hinted == Hinted::plain && arg.dims.size() == 4) CHECK(arg.plain());
  return test::run_plain(OpDesc(op), *prepared, inputs);
}

TEST_CASE("local forward matches the reference", "[local]") {
  for (const LocalGeometry& g : geometries()) {
    const Values src = test::test_values(g.src(), 1), weights = test::test_values(g.weights(), 2);
    const Values bias = test::test_values(g.biases(), 3), before = test::test_values(g.dst(), 4);
    const Values product = test::reference_local_forward(g, src, weights);
    for (const bool with_bias : {false, true}) {
      for (const bool accumulate : {false, true}) {
        const bool with_relu = with_bias != accumulate;
        Values expected = product;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          if (with_bias) expected[i] += bias[test::local_bias(g, i)];
          if (accumulate) expected[i] += before[i];
        }
        if (with_relu) test::relu(expected);
        std::vector<Values> inputs = {src, weights};
        if (with_bias) inputs.push_back(bias);
        inputs.push_back(accumulate ? before : Values{});
        for (Hinted hinted : {Hinted::no, Hinted::plain, Hinted::blocked}) {
          INFO(describe(g) << " bias " << with_bias << " accumulate " << accumulate);
          const Values dst = run(LocalForward{g, with_bias, accumulate, with_relu}, inputs, hinted).back();
          CHECK(test::relative_error(dst, expected) <= kTolerance);
        }
      }
    }
  }
}

TEST_CASE("local backward matches the reference", "[local]") {
  for (const LocalGeometry& g : geometries()) {
    INFO(describe(g));
    const Values src = test::test_values(g.src(), 5), weights = test::test_values(g.weights(), 6);
    const Values diff_dst = test::test_values(g.dst(), 7);
    Values diff_bias = test::zeros(g.biases());
    for (std::size_t i = 0; i < diff_dst.size(); ++i) diff_bias[test::local_bias(g, i)] += diff_dst[i];
    const Values diff_src = test::reference_local_backward_data(g, diff_dst, weights);
    const Values diff_weights = test::reference_local_backward_weights(g, src, diff_dst);
    for (Hinted hinted : {Hinted::no, Hinted::plain, Hinted::blocked}) {
      CHECK(test::relative_error(run(LocalBackwardData{g}, {diff_dst, weights, {}}, hinted)[2], diff_src) <=
            kTolerance);
      const auto results = run(LocalBackwardWeights{g, true}, {src, diff_dst, {}, {}}, hinted);
      CHECK(test::relative_error(results[2], diff_weights) <= kTolerance);
      CHECK(test::relative_error(results[3], diff_bias) <= kTolerance);
      CHECK(run(LocalBackwardWeights{g, false}, {src, diff_dst, {}}, hinted)[2] == results[2]);
    }
  }
}

TEST_CASE("local passes agree on the layout of weights", "[local]") {
  const LocalGeometry g = local({2, 20, 6, 4}, 18, 3, 1, 1);
  const auto forward = cpu::prepare(LocalForward{g}, {});
  CHECK(same_layout(forward->args()[1], cpu::prepare(LocalBackwardData{g}, {})->args()[1]));
  CHECK(same_layout(forward->args()[1], cpu::prepare(LocalBackwardWeights{g}, {})->args()[2]));
}

TEST_CASE("local of no images gives no gradient", "[local]") {
  const LocalGeometry g = local({0, 20, 6, 4}, 18, 3, 1, 1);
  for (Hinted hinted : {Hinted::no, Hinted::plain}) {
    for (const OpDesc& op :
         {OpDesc(LocalForward{g}), OpDesc(LocalBackwardData{g}), OpDesc(LocalBackwardWeights{g})}) {
      cpu::Prepared prepared;
      if (const auto* forward = std::get_if<LocalForward>(&op))
        prepared = cpu::prepare(*forward, hints_for(op, hinted));
      if (const auto* data = std::get_if<LocalBackwardData>(&op))
        prepared = cpu::prepare(*data, hints_for(op, hinted));
      if (const auto* weights = std::get_if<LocalBackwardWeights>(&op))
        prepared = cpu::prepare(*weights, hints_for(op, hinted));
      std::vector<test::GuardedBuffer> buffers;
      for (const TensorDesc& arg : prepared->args()) buffers.emplace_back(arg.bytes());
      test::run_guarded(*prepared, buffers);
      if (!std::holds_alternative<LocalBackwardWeights>(op)) continue;
      for (std::size_t i : {2U, 3U}) {
        const Values gradient = test::unpacked(buffers[i].copy(), DataType::f32);
        CHECK(gradient == Values(gradient.size(), 0.0));
      }
    }
  }
}

TEST_CASE("local keeps NaN through relu", "[local]") {
  const LocalGeometry g = local({1, 16, 3, 3}, 16, 3, 1, 1);
  Values src = test::test_values(g.src(), 1);
  src[0] = std::numeric_limits<double>::quiet_NaN();
  const Values dst =
      test::run_plain(LocalForward{g, false, false, true}, {src, test::test_values(g.weights(), 2), {}})[2];
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const std::size_t position = i % 9;  // those whose windows hold pixel 0
    CHECK(std::isnan(dst[i]) == (position == 0 || position == 1 || position == 3 || position == 4));
  }
}

TEST_CASE("local is the same for any number of threads", "[local]") {
  const int before = omp_get_max_threads();
  for (const LocalGeometry& g : {local({20, 32, 5, 5}, 32, 3, 1, 1), local({200, 48, 4, 4}, 20, 4)}) {
    const Values src = test::test_values(g.src(), 5), weights = test::test_values(g.weights(), 6);
    const Values diff_dst = test::test_values(g.dst(), 7), bias = test::test_values(g.biases(), 8);
    std::vector<test::Results> results;
    for (int threads : {1, 2, 3}) {
      omp_set_num_threads(threads);
      results.push_back({run(LocalForward{g}, {src, weights, bias, {}}, Hinted::no)[3],
                         run(LocalBackwardData{g}, {diff_dst, weights, {}}, Hinted::no)[2],
                         run(LocalBackwardWeights{g}, {src, diff_dst, {}, {}}, Hinted::no)[2]});
    }
    CHECK(results[0] == results[1]);
    CHECK(results[0] == results[2]);
  }
  omp_set_num_threads(before);
}

TEST_CASE("local prepared for fewer or more threads than it runs with", "[local]") {
  const LocalGeometry g = local({3, 16, 4, 4}, 16, 3, 1, 1);
  const Values src = test::test_values(g.src(), 5), weights = test::test_values(g.weights(), 6);
  const LocalForward op{g, false};
  const int before = omp_get_max_threads();
  for (const auto& [at_prepare, at_run] : {std::pair{1, 3}, std::pair{3, 1}}) {
    omp_set_num_threads(at_prepare);
    const auto prepared = cpu::prepare(op, {});
    omp_set_num_threads(at_run);
    const Values dst = test::run_plain(OpDesc(op), *prepared, {src, weights, {}})[2];
    CHECK(test::relative_error(dst, test::reference_local_forward(g, src, weights)) <= kTolerance);
  }
  omp_set_num_threads(before);
}

}  // namespace
}  // namespace convnet::local_test
