#include <cmath>
#include <limits>

#include "convnet/base/error.h"
#include "kernels/cpu/power.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/run_op.h"

namespace convnet::norm_test {
using namespace test;

namespace {

std::string describe(const CrossMapNorm& p, int block) {
  return to_string(p.dims()) + " size " + std::to_string(p.size) + (p.blocked ? " blocked" : "") + " block " +
         std::to_string(block);
}

}  // namespace

TEST_CASE("cmrnorm forward matches the reference", "[norm]") {
  for (const CrossMapNorm& p : map_norms())
    for (int block : {1, 4, 8, 16}) {
      INFO(describe(p, block));
      const auto x = random_values(element_count(p.dims()), 1, -2, 2);
      OpRun op(cpu::prepare(CrossMapNormForward{p}, {activations(p.dims(), block)}));
      op.set(0, x);
      op.run();
      CHECK(worst_difference(op.get(1), reference::norm(p, reference::to_doubles(x))) < 2e-6);
      CHECK(op.padding_is_zero(1));
    }
}

TEST_CASE("cmrnorm backward matches central differences", "[norm]") {
  for (const CrossMapNorm& p : map_norms()) {
    const auto x = random_values(element_count(p.dims()), 2, -2, 2);
    const auto dy = random_values(element_count(p.dims()), 3);
    const auto expected = reference::norm_gradient(p, reference::to_doubles(x), reference::to_doubles(dy));
    for (int block : {1, 4, 8, 16}) {
      INFO(describe(p, block));
      OpRun op(cpu::prepare(CrossMapNormBackward{p}, {activations(p.dims(), block)}));
      op.set(0, x);
      op.set(1, dy);
      op.run();
      CHECK(worst_difference(op.get(2), expected) < 5e-6);
      CHECK(op.padding_is_zero(2));
    }
  }
}

TEST_CASE("cmrnorm without minDiv keeps its padding finite", "[norm]") {
  const CrossMapNorm p{2, 17, 3, 3, 3, false, 1.0F, 0.75F, 0};
  const auto x = random_values(element_count(p.dims()), 4, 0.5F, 2);
  const auto dy = random_values(element_count(p.dims()), 5);
  OpRun forward(cpu::prepare(CrossMapNormForward{p}, {activations(p.dims(), 16)}));
  forward.set(0, x);
  forward.run();
  CHECK(worst_difference(forward.get(1), reference::norm(p, reference::to_doubles(x))) < 2e-6);
  CHECK(forward.padding_is_zero(1));
  OpRun backward(cpu::prepare(CrossMapNormBackward{p}, {activations(p.dims(), 16)}));
  backward.set(0, x);
  backward.set(1, dy);
  backward.run();
  CHECK(worst_difference(backward.get(2), reference::norm_gradient(p, reference::to_doubles(x),
                                                                   reference::to_doubles(dy))) < 5e-6);
  CHECK(backward.padding_is_zero(2));
}

TEST_CASE("cmrnorm passes NaN on to its window only", "[norm]") {
  const CrossMapNorm p{1, 20, 1, 2, 3, false, 1.0F, 0.75F, 1};
  std::vector<float> x(40, 1.0F);
  x[10 * 2] = NAN;
  for (int block : {1, 16}) {
    OpRun op(cpu::prepare(CrossMapNormForward{p}, {activations(p.dims(), block)}));
    op.set(0, x);
    op.run();
    const auto y = op.get(1);
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i == 18 || i == 20 || i == 22));
  }
}

TEST_CASE("cmrnorm is the same for any number of threads", "[norm]") {
  const CrossMapNorm p{3, 48, 19, 21, 5, false, 1e-1F, 0.75F, 1};
  for (int block : {1, 16}) {
    OpRun op(cpu::prepare(CrossMapNormBackward{p}, {activations(p.dims(), block)}));
    op.set(0, random_values(element_count(p.dims()), 6));
    op.set(1, random_values(element_count(p.dims()), 7));
    op.run(1);
    const auto alone = op.get(2);
    op.run(3);
    CHECK(op.get(2) == alone);
  }
}

TEST_CASE("cmrnorm refuses layouts it cannot walk", "[norm]") {
  const CrossMapNorm p{2, 20, 3, 3, 3, false, 1.0F, 0.75F, 1};
  const dnnl::memory::desc nhwc(p.dims(), dnnl::memory::data_type::f32, dnnl::memory::format_tag::nhwc);
  CHECK_THROWS_AS(cpu::prepare(CrossMapNormForward{p}, {cpu::from_dnnl(nhwc, p.dims())}), DeviceError);
  CHECK_THROWS_AS(cpu::prepare(CrossMapNormBackward{p}, {cpu::from_dnnl(nhwc, p.dims())}), DeviceError);
}

TEST_CASE("inverse fourth roots are right to the last bits", "[norm]") {
  for (float x = std::numeric_limits<float>::min(); x < std::numeric_limits<float>::max() / 2; x *= 1.0037F) {
    const double root = std::pow(static_cast<double>(x), -0.25);
    const double error = static_cast<double>(cpu::inverse_fourth_root(x)) / root - 1;
    if (!(std::abs(error) < 2e-7)) FAIL(x << ": relative error " << error);
  }
  for (const float x : {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN()})
    CHECK(std::isnan(cpu::inverse_fourth_root(x)));
}

}  // namespace convnet::norm_test
