#include "tests/kernels/reference.h"
#include "tests/kernels/run_op.h"

namespace convnet::update_test {
using namespace test;

namespace {

struct Tensors {
  std::vector<float> weights, increment;
};

/// One update with gradient `g`, rates at index 1 of the step block.
Tensors update(std::int64_t images, const Rates& rates, double cost_flag, const Tensors& t,
               const std::vector<float>& g) {
  const std::int64_t block = step_block_bytes(2);
  OpRun op(cpu::prepare(Update{{{static_cast<std::int64_t>(g.size()), images, 1}}}, {}), block);
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
  return {op.get(0), op.get(1)};
}

}  // namespace

TEST_CASE("update is momentum descent with weight decay", "[update]") {
  const Rates rates{0.1F, 0.9F, 0.05F, 0};
  for (const std::int64_t count : {1, 35, 30300}) {
    Tensors t{random_values(count, 1), random_values(count, 2)};
    auto g = random_values(count, 3);
    // Padding of a layout.
    t.weights.back() = t.increment.back() = g.back() = 0;
    reference::Values weights, increment;
    for (std::size_t i = 0; i < g.size(); ++i) {
      const auto w = static_cast<double>(t.weights[i]);
      const double inc =
          0.9 * static_cast<double>(t.increment[i]) - 0.1 * 0.05 * w - 0.1 / 128 * static_cast<double>(g[i]);
      increment.push_back(inc);
      weights.push_back(w + inc);
    }
    const Tensors after = update(128, rates, 0, t, g);
    CHECK(worst_difference(after.increment, increment) < 1e-6);
    CHECK(worst_difference(after.weights, weights) < 1e-6);
    CHECK(after.weights.back() == 0);
    CHECK(after.increment.back() == 0);
  }
}

TEST_CASE("update changes nothing after a broken cost or without images", "[update]") {
  const Tensors t{random_values(35, 1), random_values(35, 2)};
  const auto g = random_values(35, 3);
  const Rates rates{0.1F, 0.9F, 0.05F, 0};
  for (double flag : {1.0, std::nan("")}) {
    const Tensors after = update(128, rates, flag, t, g);
    CHECK(after.weights == t.weights);
    CHECK(after.increment == t.increment);
  }
  CHECK(update(0, rates, 0, t, g).weights == t.weights);
  CHECK(update(128, rates, 0, t, g).weights != t.weights);
}

TEST_CASE("update says when a weight is no longer finite", "[update]") {
  const std::int64_t block = step_block_bytes(2);
  const Rates all[2] = {{}, {1e30F, 0, 0, 0}};
  std::vector<std::byte> step(static_cast<std::size_t>(block));
  std::memcpy(step.data() + sizeof(StepHeader), all, sizeof all);
  for (const float gradient : {1.0F, 1e30F, std::nanf("")}) {
    OpRun op(cpu::prepare(Update{{{30300, 1, 1}}}, {}), block);
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

TEST_CASE("update sums several gradients in order", "[update]") {
  const std::int64_t count = 5000;
  const std::int64_t block = step_block_bytes(1);
  const auto weights = random_values(count, 1), increment = random_values(count, 2);
  const std::vector<std::vector<float>> gradients = {random_values(count, 3), random_values(count, 4),
                                                     random_values(count, 5)};
  std::vector<float> sum = gradients[0];
  for (std::size_t k = 1; k < gradients.size(); ++k) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradients[k][i];
  }
  std::vector<std::byte> step(static_cast<std::size_t>(block));
  const Rates rates{0.1F, 0.9F, 0.05F, 0};
  std::memcpy(step.data() + sizeof(StepHeader), &rates, sizeof rates);
  const auto result = [&](const std::vector<std::vector<float>>& parts) {
    OpRun op(cpu::prepare(Update{{{count, 32, 0, static_cast<int>(parts.size())}}}, {}), block);
    op.set_raw(0, weights);
    op.set_raw(1, increment);
    for (std::size_t k = 0; k < parts.size(); ++k) op.set_raw(2 + k, parts[k]);
    op.set_raw(2 + parts.size(), step);
    op.set_raw(3 + parts.size(), std::vector<double>{0});
    op.set_raw(4 + parts.size(), std::vector<double>{0});
    op.run();
    return std::pair(op.raw<float>(0, static_cast<std::size_t>(count)),
                     op.raw<float>(1, static_cast<std::size_t>(count)));
  };
  CHECK(result(gradients) == result({sum}));
  CHECK(result(gradients) != result({gradients[0]}));
}

TEST_CASE("update reads gradients of bf16", "[update]") {
  const std::int64_t count = 5000;
  const auto weights = random_values(count, 1), increment = random_values(count, 2);
  const Rates rates{0.1F, 0.9F, 0.05F, 0};
  std::vector<std::byte> step(static_cast<std::size_t>(step_block_bytes(1)));
  std::memcpy(step.data() + sizeof(StepHeader), &rates, sizeof rates);
  for (const int gradients : {1, 3}) {
    const auto result = [&](DataType type) {
      Update op{{{count, 32, 0, gradients}}};
      op.parts[0].gradient_type = type;
      OpRun run(cpu::prepare(op, {}), std::ssize(step));
      const auto next = static_cast<std::size_t>(2 + gradients);
      run.set_raw(0, weights);
      run.set_raw(1, increment);
      for (std::size_t g = 2; g < next; ++g) {
        std::vector<BFloat16> rounded;
        std::vector<float> wide;
        for (const float value : random_values(count, static_cast<std::uint32_t>(g + 1))) {
          rounded.push_back(to_bf16(value));
          wide.push_back(to_float(rounded.back()));
        }
        type == DataType::bf16 ? run.set_raw(g, rounded) : run.set_raw(g, wide);
      }
      run.set_raw(next, step);
      run.set_raw(next + 1, std::vector<double>{0});
      run.set_raw(next + 2, std::vector<double>{0});
      run.run();
      return run.raw<float>(0, static_cast<std::size_t>(count));
    };
    CHECK(result(DataType::bf16) == result(DataType::f32));
  }
}

TEST_CASE("update waits until the step is due, and accumulates till then", "[update]") {
  const std::int64_t count = 5000;
  const std::int64_t block = step_block_bytes(1);
  const auto size = static_cast<std::size_t>(count);
  std::vector<float> weights = random_values(count, 1), increment = random_values(count, 2),
                     accumulator(size, 0.0F);
  const auto first = random_values(count, 3), second = random_values(count, 4);
  const auto run = [&](const std::vector<float>& gradient, float images) {
    OpRun op(cpu::prepare(Update{{{count, 32, 0, 1, true}}}, {}), block);
    std::vector<std::byte> step(static_cast<std::size_t>(block));
    const Rates rates{0.1F, 0.9F, 0.05F, images};
    std::memcpy(step.data() + sizeof(StepHeader), &rates, sizeof rates);
    op.set_raw(0, weights);
    op.set_raw(1, increment);
    op.set_raw(2, gradient);
    op.set_raw(3, accumulator);
    op.set_raw(4, step);
    op.set_raw(5, std::vector<double>{0});
    op.set_raw(6, std::vector<double>{0});
    op.run();
    weights = op.raw<float>(0, size);
    increment = op.raw<float>(1, size);
    accumulator = op.raw<float>(3, size);
  };
  const std::vector<float> weights_before = weights, increment_before = increment;
  run(first, 0);
  CHECK(weights == weights_before);
  CHECK(increment == increment_before);
  CHECK(accumulator == first);
  run(second, 48);
  CHECK(accumulator == std::vector<float>(size, 0.0F));
  reference::Values expected;
  for (std::size_t i = 0; i < size; ++i) {
    const double gradient = static_cast<double>(first[i]) + static_cast<double>(second[i]);
    const auto w = static_cast<double>(weights_before[i]);
    expected.push_back(w + 0.9 * static_cast<double>(increment_before[i]) - 0.1 * 0.05 * w -
                       0.1 / 48 * gradient);
  }
  CHECK(worst_difference(weights, expected) < 1e-6);
}

TEST_CASE("an update of several matrices is that of each", "[update]") {
  // The second one gets no images, the third one sums gradients that accumulate.
  const Update joined{{{100, 8, 0}, {50, 0, 1}, {3000, 8, 2, 2, true}, {1, 8, 1}}};
  std::vector<std::byte> step(static_cast<std::size_t>(step_block_bytes(3)));
  const Rates rates[3] = {{0.1F, 0.9F, 0.05F, 0}, {0.2F, 0.5F, 0, 0}, {0.3F, 0, 0.1F, 24}};
  std::memcpy(step.data() + sizeof(StepHeader), rates, sizeof rates);
  const auto run = [&](const Update& update, unsigned seed) {
    const std::vector<Argument> args = arguments(update);
    OpRun op(cpu::prepare(update, {}), step_block_bytes(3));
    for (std::size_t k = 0; k + 3 < args.size(); ++k)
      op.set(k, random_values(element_count(args[k].dims), seed + static_cast<unsigned>(k)));
    op.set_raw(args.size() - 3, step);
    op.set_raw(args.size() - 2, std::vector<double>{0});
    op.set_raw(args.size() - 1, std::vector<double>{0});
    op.run();
    std::vector<std::vector<float>> after;
    for (std::size_t k = 0; k + 3 < args.size(); ++k) after.push_back(op.get(k));
    CHECK(op.raw<double>(args.size() - 1, 1)[0] == 0);
    return after;
  };
  const std::vector<std::vector<float>> together = run(joined, 1);
  std::vector<std::vector<float>> apart;
  for (const Update::Part& part : joined.parts) {
    for (auto& tensor : run(Update{{part}}, 1 + static_cast<unsigned>(apart.size())))
      apart.push_back(std::move(tensor));
  }
  CHECK(together == apart);
  CHECK(together[0] != random_values(100, 1));
  CHECK(together[3] == random_values(50, 4));
}

TEST_CASE("an update writes the new weights as bf16 as well", "[update]") {
  // The second part accumulates and is due, the third one is not, and the last one has no images.
  const Update update{
      {{.count = 40000, .images = 8, .rounds = true},
       {.count = 35, .gradients = 2, .accumulates = true, .rule = UpdateRule::adamw, .rounds = true},
       {.count = 35, .rate_index = 1, .accumulates = true, .rounds = true},
       {.count = 35, .images = 0, .rounds = true}}};
  const std::vector<Argument> args = arguments(update);
  OpRun op(cpu::prepare(update, {}), step_block_bytes(2));
  for (std::size_t k = 0; k + 3 < args.size(); ++k) {
    std::vector<float> values = random_values(element_count(args[k].dims), static_cast<unsigned>(k));
    if (args[k].name == "squares")
      for (float& v : values) v = std::abs(v);
    if (args[k].type == DataType::f32) op.set(k, values);
    if (args[k].type == DataType::bf16) op.set_raw(k, std::vector<std::uint16_t>(values.size(), 7));
  }
  std::vector<std::byte> step(static_cast<std::size_t>(step_block_bytes(2)));
  const Rates rates[2] = {{0.1F, 0.9F, 0.05F, 24}, {0.2F, 0.5F, 0, 0}};
  std::memcpy(step.data() + sizeof(StepHeader), rates, sizeof rates);
  op.set_raw(args.size() - 3, step);
  op.set_raw(args.size() - 2, std::vector<double>{0});
  op.set_raw(args.size() - 1, std::vector<double>{0});
  op.run(2);
  std::size_t first = 0;
  for (std::size_t p = 0; p < update.parts.size(); ++p) {
    const Update::Part& part = update.parts[p];
    const std::vector<float> weights = op.get(first);
    const auto rounded = op.raw<std::uint16_t>(first + part.rounded(), weights.size());
    const bool changes = p < 2;
    CHECK(rounded == (changes ? bf16_bits(weights) : std::vector<std::uint16_t>(weights.size(), 7)));
    CHECK((weights != random_values(part.count, static_cast<unsigned>(first))) == changes);
    first += part.arguments();
  }
  CHECK(first + 3 == args.size());
}

TEST_CASE("any device's broken cost is seen", "[update]") {
  for (const std::vector<double>& costs :
       {std::vector<double>{0, 0, 0}, {0, 1, 0}, {0, 0, std::nan("")}, {2, 0, 0}}) {
    OpRun op(cpu::prepare(AnyNonFinite{3}, {}));
    for (std::size_t d = 0; d < 3; ++d) op.set_raw(d, std::vector<double>{costs[d], 7});
    op.set_raw(3, std::vector<double>{5});
    op.run();
    const bool broken = costs != std::vector<double>{0, 0, 0};
    CHECK(op.raw<double>(3, 1)[0] == (broken ? 1 : 0));
  }
}

TEST_CASE("a constraint waits for the update that it follows", "[update]") {
  const auto weights = random_values(30, 1);
  for (const float images : {0.0F, 16.0F}) {
    Constrain op{{{5, 6}, DataType::f32, nullptr}, 1, 5, 6};
    op.ball = 2;
    op.when_due = true;
    op.rate_index = 1;
    OpRun run(cpu::prepare(op, {}), step_block_bytes(2));
    std::vector<std::byte> step(static_cast<std::size_t>(step_block_bytes(2)));
    const Rates rates{0, 0, 0, images};
    std::memcpy(step.data() + step_block_bytes(1), &rates, sizeof rates);
    run.set_raw(0, weights);
    run.set_raw(1, step);
    run.run();
    CHECK((run.raw<float>(0, 30) == weights) == (images == 0));
  }
}

}  // namespace convnet::update_test
