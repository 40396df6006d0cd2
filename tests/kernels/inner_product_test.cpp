#include <algorithm>
#include <functional>
#include "tests/catch.h"

#include "tests/kernels/dnn_reference.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_runner.h"

namespace convnet::inner_product_test {
namespace {

using test::Values;

constexpr double kInnerProductTolerance = 1e-5;

template <class Op>
void check(const Op& op, const LayoutHints& hints, const std::vector<Values>& inputs, std::size_t which,
           const Values& expected) {
  const auto prepared = cpu::prepare(op, hints);
  INFO(op_name(op) << " " << to_string(op.g.src()) << " * " << to_string(op.g.weights()) << " by "
                   << prepared->algorithm());
  CHECK(test::relative_error(test::run_plain(OpDesc(op), *prepared, inputs)[which], expected) <=
        kInnerProductTolerance);
}

void check_all(const InnerProductGeometry& g) {
  const Values src = test::test_values(g.src(), 1), weights = test::test_values(g.weights(), 2);
  const Values bias = test::test_values(g.out, 3), diff_dst = test::test_values(g.dst(), 4);
  const Values old = test::test_values(g.dst(), 5);
  const ConvGeometry reference = test::as_conv(g);

  const Values products = test::reference_forward(reference, src, weights);
  check(InnerProductForward{g, false, false, false}, LayoutHints(3), {src, weights, {}}, 2, products);
  Values plain = products;
  test::add_bias(plain, g.dst(), bias);
  check(InnerProductForward{g, true, false, false}, LayoutHints(4), {src, weights, bias, {}}, 3, plain);
  Values rectified = plain, sum = plain;
  test::relu(rectified);
  check(InnerProductForward{g, true, false, true}, LayoutHints(4), {src, weights, bias, {}}, 3, rectified);
  std::transform(sum.begin(), sum.end(), old.begin(), sum.begin(), std::plus<>());
  check(InnerProductForward{g, true, true, false}, LayoutHints(4), {src, weights, bias, old}, 3, sum);
  test::relu(sum);
  check(InnerProductForward{g, true, true, true}, LayoutHints(4), {src, weights, bias, old}, 3, sum);

  check(InnerProductBackwardData{g}, LayoutHints(3), {diff_dst, weights, {}}, 2,
        test::reference_backward_data(reference, diff_dst, weights));
  const Values diff_weights = test::reference_backward_weights(reference, src, diff_dst);
  check(InnerProductBackwardWeights{g, false}, LayoutHints(3), {src, diff_dst, {}}, 2, diff_weights);
  check(InnerProductBackwardWeights{g, true}, LayoutHints(4), {src, diff_dst, {}, {}}, 2, diff_weights);
  check(InnerProductBackwardWeights{g, true}, LayoutHints(4), {src, diff_dst, {}, {}}, 3,
        test::bias_gradient(diff_dst, g.dst()));
}

TEST_CASE("inner product matches the reference", "[inner_product]") {
  for (const InnerProductGeometry& g : test::inner_product_geometries()) check_all(g);
}

TEST_CASE("one weight layout serves all three passes", "[inner_product]") {
  const InnerProductGeometry g{32, 256, 192};
  const TensorDesc master = cpu::prepare(InnerProductBackwardWeights{g, true}, LayoutHints(4))->args()[2];
  INFO(master.layout_name());
  const InnerProductForward forward{g, false, false, false};
  CHECK(same_layout(cpu::prepare(forward, {std::nullopt, master, std::nullopt})->args()[1], master));
  CHECK(same_layout(
      cpu::prepare(InnerProductBackwardData{g}, {std::nullopt, master, std::nullopt})->args()[1], master));
}

TEST_CASE("activations of inner products are plain", "[inner_product]") {
  const InnerProductGeometry g{32, 256, 192};
  const auto forward = cpu::prepare(InnerProductForward{g, true, false, true}, LayoutHints(4));
  CHECK(forward->args()[0].plain());
  CHECK(forward->args()[3].plain());
  const auto backward = cpu::prepare(InnerProductBackwardData{g}, LayoutHints(3));
  CHECK(backward->args()[0].plain());
  CHECK(backward->args()[2].plain());
}

}  // namespace
}  // namespace convnet::inner_product_test
