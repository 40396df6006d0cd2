#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/catch.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/run_op.h"

namespace convnet::eltwise_test {
using namespace test;

namespace {

using reference::to_doubles;
using reference::Values;

/// Multiples of 0.25 with many equal ones among the inputs.
std::vector<Floats> tied_inputs(const Dims& dims, std::size_t count) {
  std::vector<Floats> inputs;
  for (std::size_t k = 0; k < count; ++k) {
    inputs.push_back(random_values(element_count(dims), static_cast<unsigned>(k), -3, 3));
    for (float& v : inputs[k]) v = std::floor(v) / 4;
  }
  return inputs;
}

/// The input that holds the first maximum of element i; NaN is greater than every number.
std::size_t first_maximum(const std::vector<Floats>& inputs, std::size_t i) {
  std::size_t best = 0;
  for (std::size_t k = 1; k < inputs.size(); ++k)
    if (!std::isnan(inputs[best][i]) && !(inputs[k][i] <= inputs[best][i])) best = k;
  return best;
}

/// Compares EltwiseMax and its gradients with the reference, exactly.
void check_max(const Dims& dims, const std::vector<Floats>& inputs, const TensorDesc& layout) {
  const std::int64_t count = std::ssize(inputs);
  const Floats dy = random_values(element_count(dims), 9);
  Floats expected;
  std::vector<Floats> diffs(inputs.size(), Floats(dy.size(), 0.0F));
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const std::size_t best = first_maximum(inputs, i);
    expected.push_back(inputs[best][i]);
    diffs[best][i] = dy[i];
  }
  const auto forward = cpu::prepare(EltwiseMax{dims, count}, {layout});
  CHECK(same_layout(forward->args().back(), layout));
  const Floats y = results_of(forward, inputs)[0];
  for (std::size_t i = 0; i < y.size(); ++i)
    if (y[i] != expected[i] && !(std::isnan(y[i]) && std::isnan(expected[i]))) FAIL("element " << i);
  std::vector<Floats> args = inputs;
  args.push_back(dy);
  for (std::int64_t index = 0; index < count; ++index)
    CHECK(results_of(cpu::prepare(EltwiseMaxBackward{dims, count, index}, {layout}), args)[0] ==
          diffs[static_cast<std::size_t>(index)]);
}

}  // namespace

TEST_CASE("eltsum weighs its inputs", "[eltwise]") {
  const Floats coeffs = {1, -0.5F, 2, 0, 0.3F};
  for (const Dims& dims : eltwise_shapes())
    for (int block : blocks_of(dims))
      for (std::size_t count : {1U, 2U, 3U, 5U}) {
        INFO(to_string(dims) << " block " << block << " inputs " << count);
        std::vector<Floats> inputs;
        Values expected(static_cast<std::size_t>(element_count(dims)));
        for (std::size_t k = 0; k < count; ++k) {
          inputs.push_back(random_values(element_count(dims), static_cast<unsigned>(k)));
          for (std::size_t i = 0; i < expected.size(); ++i)
            expected[i] += static_cast<double>(coeffs[k]) * static_cast<double>(inputs[k][i]);
        }
        const EltwiseSum desc{dims, {coeffs.begin(), coeffs.begin() + static_cast<std::ptrdiff_t>(count)}};
        const auto op = cpu::prepare(desc, {activations(dims, block)});
        CHECK(same_layout(op->args().back(), activations(dims, block)));
        CHECK(worst_difference(results_of(op, inputs)[0], expected) < 1e-6);
      }
}

TEST_CASE("eltmax and its gradient: the first of equal maxima takes it", "[eltwise]") {
  for (const Dims& dims : eltwise_shapes())
    for (int block : blocks_of(dims))
      for (std::size_t count : {1U, 2U, 3U, 5U}) {
        INFO(to_string(dims) << " block " << block << " inputs " << count);
        check_max(dims, tied_inputs(dims, count), activations(dims, block));
      }
}

TEST_CASE("eltmax of equal inputs, infinities and NaN", "[eltwise]") {
  const float inf = std::numeric_limits<float>::infinity();
  const Dims dims{2, 17, 3, 3};
  for (int block : blocks_of(dims)) {
    const TensorDesc layout = activations(dims, block);
    const auto size = static_cast<std::size_t>(element_count(dims));
    for (float value : {0.0F, -1.0F, inf, -inf}) check_max(dims, std::vector(3, Floats(size, value)), layout);
    std::vector<Floats> inputs = tied_inputs(dims, 3);
    for (std::size_t k = 0; k < 3; ++k)
      for (std::size_t i = k; i < size; i += k + 2) inputs[k][i] = NAN;
    check_max(dims, inputs, layout);
  }
}

TEST_CASE("eltmax gradient matches central differences", "[eltwise]") {
  const Dims dims{2, 17, 2, 3};
  std::vector<Floats> inputs = tied_inputs(dims, 3);
  for (std::size_t k = 0; k < 3; ++k)
    for (float& v : inputs[k]) v += 0.01F * static_cast<float>(k);  // nowhere near a tie
  const Floats dy = random_values(element_count(dims), 9);
  for (std::size_t index = 0; index < 3; ++index) {
    const auto maximum = [&](const Values& moved) {
      Values y;
      for (std::size_t i = 0; i < moved.size(); ++i) {
        y.push_back(moved[i]);
        for (std::size_t k = 0; k < 3; ++k)
          if (k != index) y[i] = std::max(y[i], static_cast<double>(inputs[k][i]));
      }
      return y;
    };
    const Values expected =
        reference::central_differences(maximum, to_doubles(inputs[index]), to_doubles(dy));
    for (int block : blocks_of(dims)) {
      const auto op = cpu::prepare(EltwiseMaxBackward{dims, 3, static_cast<std::int64_t>(index)},
                                   {activations(dims, block)});
      CHECK(worst_difference(results_of(op, {inputs[0], inputs[1], inputs[2], dy})[0], expected) < 1e-6);
    }
  }
}

TEST_CASE("products, also with a factor for each map, and their sums over maps", "[eltwise]") {
  for (const Dims& dims : product_shapes())
    for (int block : blocks_of(dims)) {
      INFO(to_string(dims) << " block " << block);
      const TensorDesc layout = activations(dims, block);
      const std::int64_t maps = dims[0] * dims[1], pixels = maps == 0 ? 0 : element_count(dims) / maps;
      const Floats a = random_values(element_count(dims), 1), b = random_values(element_count(dims), 2),
                   factors = random_values(maps, 3);
      Floats product, scaled;
      Values sums(static_cast<std::size_t>(maps));
      for (std::size_t i = 0; i < a.size(); ++i) {
        const std::size_t map = i / static_cast<std::size_t>(pixels);
        product.push_back(a[i] * b[i]);
        scaled.push_back(a[i] * factors[map]);
        sums[map] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
      }
      const auto multiply = cpu::prepare(EltwiseProduct{dims}, {layout});
      CHECK(same_layout(multiply->args().back(), layout));
      CHECK(results_of(multiply, {a, b})[0] == product);
      const auto scale = cpu::prepare(EltwiseProduct{dims, true}, {layout});
      CHECK(same_layout(scale->args().back(), layout));
      CHECK(results_of(scale, {a, factors})[0] == scaled);
      CHECK(worst_difference(results_of(cpu::prepare(MapProductSums{dims}, {layout}), {a, b})[0], sums) <
            1e-6);
    }
}

TEST_CASE("eltsum and eltmax need inputs", "[eltwise]") {
  CHECK_THROWS_AS(cpu::prepare(EltwiseSum{{2, 3}, {}}, {}), std::logic_error);
  CHECK_THROWS_AS(cpu::prepare(EltwiseMax{{2, 3}, 0}, {}), std::logic_error);
  CHECK_THROWS_AS(cpu::prepare(EltwiseMaxBackward{{2, 3}, 2, 2}, {}), std::logic_error);
}

}  // namespace convnet::eltwise_test
