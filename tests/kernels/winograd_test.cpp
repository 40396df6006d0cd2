// 3x3 convolutions of bf16 numbers by Winograd's method, of our own.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "kernels/bf16.h"
#include "kernels/cpu/own_kernels.h"
#include "tests/catch.h"
#include "tests/kernels/dnn_reference.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_runner.h"

namespace convnet {
namespace {

using test::conv;
using test::Values;

bool can_run() { return instruction_set() >= InstructionSet::avx512_core_bf16; }

cpu::Prepared winograd(const OpDesc& op, DataType type = DataType::bf16) {
  return cpu::own_kernels(instruction_set()).prepare_winograd(op, type);
}

/// Random numbers that bf16 holds exactly.
Values bf16_values(const Dims& dims, std::uint32_t seed) {
  Values values = test::test_values(dims, seed);
  for (double& v : values) v = static_cast<double>(to_float(to_bf16(static_cast<float>(v))));
  return values;
}

/// The root of the mean square of differences, relative to that of the expected values.
double rms_error(const Values& actual, const Values& expected) {
  REQUIRE(actual.size() == expected.size());
  double differences = 0, squares = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    differences += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    squares += expected[i] * expected[i];
  }
  return std::sqrt(differences / squares);
}

/// Transformed inputs and filters are rounded to 8 bits of mantissa once each, and activations as they are
/// stored. A product that is missing or wrong shows as far more.
constexpr double kTolerance = 6e-3;

/// Runs an operation with one and with three threads: the same bits. Returns argument `which`.
Values run(const OpDesc& op, const std::vector<Values>& inputs, std::size_t which) {
  const int threads = omp_get_max_threads();
  std::vector<Values> results;
  for (const int count : {1, 3}) {
    omp_set_num_threads(count);
    const cpu::Prepared prepared = winograd(op);
    REQUIRE(prepared != nullptr);
    results.push_back(test::run_plain(op, *prepared, inputs)[which]);
  }
  omp_set_num_threads(threads);
  CHECK(results[0] == results[1]);
  return results[0];
}

void check(const ConvGeometry& g) {
  INFO(to_string(g.src()) << " to " << to_string(g.dst()) << " with padding " << g.pad);
  const Values src = bf16_values(g.src(), 1), diff_dst = bf16_values(g.dst(), 4);
  const Values weights = test::test_values(g.weights(), 2);
  if (winograd(ConvForward{g, false, false, false}))
    CHECK(rms_error(run(ConvForward{g, false, false, false}, {src, weights, {}}, 2),
                    test::reference_forward(g, src, weights)) <= kTolerance);
  if (winograd(ConvBackwardData{g}))
    CHECK(rms_error(run(ConvBackwardData{g}, {diff_dst, weights, {}}, 2),
                    test::reference_backward_data(g, diff_dst, weights)) <= kTolerance);
  const Values gradient = test::reference_backward_weights(g, src, diff_dst);
  if (winograd(ConvBackwardWeights{g, false}))
    CHECK(rms_error(run(ConvBackwardWeights{g, false}, {src, diff_dst, {}}, 2), gradient) <= kTolerance);
}

}  // namespace

TEST_CASE("Winograd's method for bf16 matches the reference", "[winograd]") {
  if (!can_run()) return test::skip("this processor does not multiply bf16 numbers");
  const std::vector<ConvGeometry> geometries = {
      conv(2, 32, 8, 8, 32, 3, 1, 1),    // one panel of half the width
      conv(3, 48, 7, 9, 112, 3, 1, 1),   // tiles over the border; a whole panel, and one of three quarters
      conv(1, 64, 12, 11, 80, 3, 1, 1),  // an odd number of columns of tiles; a panel of a quarter
      conv(2, 80, 10, 10, 64, 3, 1, 0),  conv(2, 32, 9, 9, 48, 3, 1, 2),
      conv(2, 32, 6, 6, 32, 3, 1, 3),    // outputs that see only zeros
      conv(5, 32, 13, 13, 64, 3, 1, 1),  // more tiles than are transformed at a time, and not a multiple
      conv(40, 32, 15, 16, 32, 3, 1, 1), conv(150, 48, 16, 16, 32, 3, 1, 1),
  };
  for (const ConvGeometry& g : geometries) {
    REQUIRE(winograd(ConvForward{g, false, false, false}));
    REQUIRE(winograd(ConvBackwardWeights{g, false}));
    check(g);
  }
}

TEST_CASE(
    "Winograd's method adds biases and what is there, cuts off below zero, and sums gradients of biases",
    "[winograd]") {
  if (!can_run()) return test::skip("this processor does not multiply bf16 numbers");
  const ConvGeometry g = conv(3, 32, 7, 8, 48, 3, 1, 1);
  const Values src = bf16_values(g.src(), 1), weights = test::test_values(g.weights(), 2),
               bias = test::test_values(g.k, 3), old = bf16_values(g.dst(), 5);
  for (const bool accumulate : {false, true})
    for (const bool relu : {false, true}) {
      INFO(accumulate << relu);
      Values expected = test::reference_forward(g, src, weights);
      test::add_bias(expected, g.dst(), bias);
      if (accumulate)
        std::transform(expected.begin(), expected.end(), old.begin(), expected.begin(), std::plus<>());
      if (relu) test::relu(expected);
      const Values given = accumulate ? old : Values{};
      CHECK(rms_error(run(ConvForward{g, true, accumulate, relu}, {src, weights, bias, given}, 3),
                      expected) <= kTolerance);
    }
  const Values diff_dst = bf16_values(g.dst(), 4);
  CHECK(test::relative_error(run(ConvBackwardWeights{g, true}, {src, diff_dst, {}, {}}, 3),
                             test::bias_gradient(diff_dst, g.dst())) <= 1e-5);
  CHECK(rms_error(run(ConvBackwardWeights{g, true}, {src, diff_dst, {}, {}}, 2),
                  test::reference_backward_weights(g, src, diff_dst)) <= kTolerance);
}

TEST_CASE("Winograd's method keeps NaN where it is seen, also below a relu", "[winograd]") {
  if (!can_run()) return test::skip("this processor does not multiply bf16 numbers");
  const ConvGeometry g = conv(2, 32, 8, 8, 32, 3, 1, 1);
  Values src = bf16_values(g.src(), 1);
  const Values weights = test::test_values(g.weights(), 2);
  src[0] = std::nan("");
  const Values out = test::run_plain(ConvForward{g, false, false, true},
                                     *winograd(ConvForward{g, false, false, true}), {src, weights, {}})[2];
  CHECK(std::isnan(out[0]));
  CHECK(std::none_of(out.begin() + static_cast<std::ptrdiff_t>(out.size() / 2), out.end(),
                     [](double v) { return std::isnan(v); }));
}

TEST_CASE("Winograd's method is for 3x3 convolutions of bf16 numbers with enough channels", "[winograd]") {
  const auto taken = [](const ConvGeometry& g, DataType type = DataType::bf16) {
    return winograd(ConvForward{g, false, false, false}, type) != nullptr;
  };
  CHECK(taken(conv(2, 32, 8, 8, 32, 3, 1, 1)) == can_run());
  CHECK_FALSE(taken(conv(2, 32, 8, 8, 32, 3, 1, 1), DataType::f32));
  CHECK_FALSE(taken(conv(2, 16, 8, 8, 32, 3, 1, 1)));
  CHECK_FALSE(taken(conv(2, 32, 8, 8, 40, 3, 1, 1)));
  CHECK_FALSE(taken(conv(2, 32, 8, 8, 32, 5, 1, 2)));
  CHECK_FALSE(taken(conv(2, 32, 8, 8, 32, 3, 2, 1)));
  CHECK_FALSE(taken(conv(2, 64, 8, 8, 64, 3, 1, 1, 2)));
  CHECK_FALSE(taken(conv(2, 32, 3, 3, 32, 3, 1, 1)));  // of 16 outputs that are computed 9 are wanted
  CHECK_FALSE(taken(conv(0, 32, 8, 8, 32, 3, 1, 1)));
}

}  // namespace convnet
