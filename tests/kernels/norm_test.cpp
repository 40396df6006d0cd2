#include "convnet/base/error.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/run_op.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// n, c, h, w, size, blocked, scale, power, min_div
const std::vector<CrossMapNorm> kNormCases = {
    {2, 32, 3, 5, 5, false, 1e-1F, 0.75F, 1},       // whole blocks
    {2, 20, 7, 3, 5, false, 0.5F, 0.75F, 1},        // padded lanes
    {1, 13, 1, 1, 3, false, 1.0F, 0.5F, 2},         // one pixel, one image
    {2, 1, 4, 5, 5, false, 1.0F, 0.75F, 1},         // one map
    {3, 24, 2, 9, 4, false, 1.0F, 0.75F, 1},        // even windows reach further down than up
    {2, 18, 3, 3, 2, false, 0.7F, 1.0F, 1},         //
    {2, 17, 3, 2, 1, false, 0.7F, 0.6F, 1},         // a map with itself alone
    {1, 10, 2, 2, 50, false, 3.0F, 0.9F, 0.5F},     // window larger than all maps
    {1, 20, 2, 17, 19, false, 2.0F, 0.75F, 1e-3F},  // larger than a block
    {2, 19, 3, 3, 4, true, 1.0F, 0.75F, 1},         // groups, the last one short
    {1, 20, 2, 2, 64, true, 1.0F, 0.75F, 1},        // one group
    {2, 21, 40, 3, 3, false, 1.0F, 0.33F, 1},       // several tiles
    {1, 5, 2, 3, 3, false, 0.0F, 0.75F, 1},         // no normalisation
};

std::string describe(const CrossMapNorm& p, int block) {
  return to_string(p.dims()) + " size " + std::to_string(p.size) + (p.blocked ? " blocked" : "") + " block " +
         std::to_string(block);
}

}  // namespace

TEST_CASE("cmrnorm forward matches the reference", "[norm]") {
  for (const CrossMapNorm& p : kNormCases)
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
  for (const CrossMapNorm& p : kNormCases) {
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
