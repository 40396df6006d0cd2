#include "tests/kernels/reference.h"
#include "tests/kernels/run_op.h"

using namespace convnet;
using namespace convnet::test;

namespace {

struct Tensors {
  std::vector<float> weights, increment;
};

/// One update of `count` weights with gradient `g`, rates at index 1 of the step block.
Tensors update(const TensorDesc& what, std::int64_t images, const Rates& rates, double cost_flag,
               const Tensors& t, const std::vector<float>& g) {
  const std::int64_t block = step_block_bytes(2);
  OpRun op(cpu::prepare(Update{what, images, 1}, {}), block);
  op.set(0, t.weights);
  op.set(1, t.increment);
  op.set(2, g);
  std::vector<std::byte> step(static_cast<std::size_t>(block));
  const Rates all[2] = {{9, 9, 9, 0}, rates};
  std::memcpy(step.data() + sizeof(StepHeader), all, sizeof all);
  op.set_raw(3, step);
  op.set_raw(4, std::vector<double>{cost_flag});
  op.set_raw(5, std::vector<double>{0});
  op.run();
  CHECK(op.padding_is_zero(0));
  CHECK(op.padding_is_zero(1));
  return {op.get(0), op.get(1)};
}

}  // namespace

TEST_CASE("update is momentum descent with weight decay", "[update]") {
  const Rates rates{0.1F, 0.9F, 0.05F, 0};
  for (const TensorDesc& what : {activations({1, 1}, 1), activations({5, 7}, 1), activations({300, 101}, 1),
                                 activations({3, 20, 3, 3}, 16)}) {
    const std::int64_t count = element_count(what.dims);
    Tensors t{random_values(count, 1), random_values(count, 2)};
    const auto g = random_values(count, 3);
    reference::Values weights, increment;
    for (std::size_t i = 0; i < g.size(); ++i) {
      const auto w = static_cast<double>(t.weights[i]);
      const double inc =
          0.9 * static_cast<double>(t.increment[i]) - 0.1 * 0.05 * w - 0.1 / 128 * static_cast<double>(g[i]);
      increment.push_back(inc);
      weights.push_back(w + inc);
    }
    const Tensors after = update(what, 128, rates, 0, t, g);
    CHECK(worst_difference(after.increment, increment) < 1e-6);
    CHECK(worst_difference(after.weights, weights) < 1e-6);
  }
}

TEST_CASE("update changes nothing after a broken cost or without images", "[update]") {
  const TensorDesc what = activations({5, 7}, 1);
  const Tensors t{random_values(35, 1), random_values(35, 2)};
  const auto g = random_values(35, 3);
  const Rates rates{0.1F, 0.9F, 0.05F, 0};
  for (double flag : {1.0, std::nan("")}) {
    const Tensors after = update(what, 128, rates, flag, t, g);
    CHECK(after.weights == t.weights);
    CHECK(after.increment == t.increment);
  }
  CHECK(update(what, 0, rates, 0, t, g).weights == t.weights);
  CHECK(update(what, 128, rates, 0, t, g).weights != t.weights);
}

TEST_CASE("update says when a weight is no longer finite", "[update]") {
  const TensorDesc what = activations({300, 101}, 1);
  const std::int64_t block = step_block_bytes(2);
  const Rates all[2] = {{}, {1e30F, 0, 0, 0}};
  std::vector<std::byte> step(static_cast<std::size_t>(block));
  std::memcpy(step.data() + sizeof(StepHeader), all, sizeof all);
  for (const float gradient : {1.0F, 1e30F, std::nanf("")}) {
    OpRun op(cpu::prepare(Update{what, 1, 1}, {}), block);
    std::vector<float> g(30300, 0.0F);
    g[30000] = gradient;
    op.set(0, std::vector<float>(g.size(), 1.0F));
    op.set(1, std::vector<float>(g.size(), 0.0F));
    op.set(2, g);
    op.set_raw(3, step);
    op.set_raw(4, std::vector<double>{0});
    op.set_raw(5, std::vector<double>{0});
    op.run();
    CHECK((op.raw<double>(5, 1)[0] != 0) == (gradient != 1.0F));
  }
}
