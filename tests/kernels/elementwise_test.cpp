#include <limits>

#include "tests/kernels/op_cases.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/run_op.h"

namespace convnet::elementwise_test {
using namespace test;

namespace {
/// The table's shapes, and one for several threads.
std::vector<Dims> shapes() {
  std::vector<Dims> all = elementwise_shapes();
  all.push_back({3, 33, 21, 19});
  return all;
}

/// Inputs at least 1e-3 away from every kink.
std::vector<float> inputs(const NeuronCase& c, std::int64_t count, unsigned seed) {
  std::vector<float> x = random_values(count, seed, c.low, c.high);
  for (float& v : x)
    for (double kink : c.kinks)
      if (std::abs(static_cast<double>(v) - kink) < 1e-3) v += 0.01F;
  return x;
}
}  // namespace

TEST_CASE("neurons match the reference, in place too", "[elementwise]") {
  for (const NeuronCase& neuron : neurons())
    for (const Dims& dims : shapes())
      for (int block : blocks_of(dims))
        for (bool in_place : {false, true}) {
          const Neuron& f = neuron.f;
          INFO("neuron " << static_cast<int>(f.kind) << " " << to_string(dims) << " block " << block);
          const auto x = inputs(neuron, element_count(dims), 1);
          reference::Values expected;
          for (float v : x) expected.push_back(reference::neuron(f, static_cast<double>(v)));
          OpRun op(cpu::prepare(NeuronForward{f, dims}, {activations(dims, block)}));
          if (in_place) op.alias(1, 0);
          op.set(0, x);
          op.run();
          CHECK(worst_difference(op.get(in_place ? 0 : 1), expected) < 1e-6);
          CHECK(op.padding_is_zero(in_place ? 0 : 1));
        }
}

TEST_CASE("neuron gradients match central differences, in place too", "[elementwise]") {
  for (const NeuronCase& neuron : neurons())
    for (const Dims& dims : shapes())
      for (int block : blocks_of(dims))
        for (bool in_place : {false, true}) {
          const Neuron& f = neuron.f;
          INFO("neuron " << static_cast<int>(f.kind) << " " << to_string(dims) << " block " << block);
          const auto x = inputs(neuron, element_count(dims), 2);
          const auto dy = random_values(element_count(dims), 3);
          std::vector<float> y;
          reference::Values expected;
          for (std::size_t i = 0; i < x.size(); ++i) {
            const auto at = static_cast<double>(x[i]);
            y.push_back(static_cast<float>(reference::neuron(f, at)));
            const double slope = (reference::neuron(f, at + 1e-6) - reference::neuron(f, at - 1e-6)) / 2e-6;
            expected.push_back(slope * static_cast<double>(dy[i]));
          }
          OpRun op(cpu::prepare(NeuronBackward{f, dims}, {activations(dims, block), std::nullopt}));
          if (in_place) op.alias(2, 1);
          op.set(0, neuron_uses_output(f.kind) ? y : x);
          op.set(1, dy);
          op.run();
          CHECK(worst_difference(op.get(in_place ? 1 : 2), expected) < 2e-6);
          CHECK(op.padding_is_zero(in_place ? 1 : 2));
        }
}

namespace {
std::vector<float> forward_of(const Neuron& f, const std::vector<float>& x) {
  OpRun op(cpu::prepare(NeuronForward{f, {1, std::ssize(x)}}, {}));
  op.set(0, x);
  op.run();
  return op.get(1);
}
/// The slopes at outputs y, or at inputs for functions that read those.
std::vector<float> slopes_of(const Neuron& f, const std::vector<float>& y) {
  OpRun op(cpu::prepare(NeuronBackward{f, {1, std::ssize(y)}}, {}));
  op.set(0, y);
  op.set(1, std::vector<float>(y.size(), 1.0F));
  op.run();
  return op.get(2);
}
}  // namespace

TEST_CASE("neurons at special points", "[elementwise]") {
  const float inf = std::numeric_limits<float>::infinity();
  using Floats = std::vector<float>;
  CHECK(slopes_of({NeuronKind::abs, 1, 1}, {-2, -0.0F, 0, 3}) == Floats{-1, 0, 0, 1});
  CHECK(slopes_of({NeuronKind::relu, 1, 1}, {0, 1e-30F}) == Floats{0, 1});
  CHECK(slopes_of({NeuronKind::abstanh, 2, 3}, {0}) == Floats{0});
  CHECK(slopes_of({NeuronKind::sqrt, 1, 1}, {0, 0.25F}) == Floats{0, 2});
  CHECK(slopes_of({NeuronKind::square, 1, 1}, {0, -3}) == Floats{0, -6});
  CHECK(slopes_of({NeuronKind::brelu, 2, 1}, {0, 1, 2}) == Floats{0, 1, 0});
  CHECK(forward_of({NeuronKind::brelu, 2, 1}, {-inf, -1, 1, 2, 5, inf}) == Floats{0, 0, 1, 2, 2, 2});
  CHECK(forward_of({NeuronKind::sqrt, 1, 1}, {0, inf}) == Floats{0, inf});
  CHECK(forward_of({NeuronKind::log, 0, 1}, {0, 1}) == Floats{-inf, 0});
  CHECK(forward_of({NeuronKind::softrelu, 1, 1}, {-inf, -1000, 1000, inf}) == Floats{0, 0, 1000, inf});
  CHECK(slopes_of({NeuronKind::softrelu, 1, 1}, {0, 1000}) == Floats{0, 1});
  CHECK(forward_of({NeuronKind::abstanh, 2, -1}, {-inf, 0, inf}) == Floats{2, 0, 2});
  CHECK(forward_of({NeuronKind::logistic, 1, 1}, {-inf, -1000, 0, 1000, inf}) == Floats{0, 0, 0.5F, 1, 1});
  // At their kinks, functions that PyTorch has, too, have its slopes.
  CHECK(slopes_of({NeuronKind::leaky, 0.25F, 1}, {-2, -0.0F, 0, 3}) == Floats{0.25F, 0.25F, 0.25F, 1});
  CHECK(forward_of({NeuronKind::elu, 2, 1}, {-inf, -200, 0, inf}) == Floats{-2, -2, 0, inf});
  CHECK(slopes_of({NeuronKind::elu, 2, 1}, {-2, -0.0F, 0, 1}) == Floats{0, 2, 2, 1});
  CHECK(forward_of({NeuronKind::hsigmoid, 1, 1}, {-inf, -3, 0, 3, inf}) == Floats{0, 0, 0.5F, 1, 1});
  CHECK(slopes_of({NeuronKind::hsigmoid, 1, 1}, {0, 1}) == Floats{0, 0});
  CHECK(slopes_of({NeuronKind::hswish, 1, 1}, {-4, -3, 0, 3, 4}) == Floats{0, 0, 0.5F, 1, 1});
  for (const NeuronKind kind : {NeuronKind::silu, NeuronKind::gelu, NeuronKind::mish, NeuronKind::hswish}) {
    CHECK(forward_of({kind, 1, 1}, {-inf, -1000, 0, 1000, inf}) == Floats{0, 0, 0, 1000, inf});
    CHECK(slopes_of({kind, 1, 1}, {-inf, -1000, 1000, inf}) == Floats{0, 0, 1, 1});
  }
  // Small values do not cancel away.
  const auto small = forward_of({NeuronKind::softrelu, 1, 1}, {-30, -80});
  CHECK(small[0] == Approx(std::exp(-30.0)));
  CHECK(small[1] == Approx(std::exp(-80.0)));
  CHECK(slopes_of({NeuronKind::softrelu, 1, 1}, {1e-10F})[0] == Approx(1e-10));
}

TEST_CASE("every neuron shows NaN", "[elementwise]") {
  for (const NeuronCase& neuron : neurons()) {
    INFO("neuron " << static_cast<int>(neuron.f.kind));
    std::vector<float> x(35, 0.5F);
    x[1] = x[34] = std::numeric_limits<float>::quiet_NaN();
    const auto y = forward_of(neuron.f, x);
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i == 1 || i == 34));
  }
}

TEST_CASE("relu keeps NaN and infinity", "[elementwise]") {
  const Dims dims{1, 20};
  std::vector<float> x(20, -1.0F);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  x[17] = std::numeric_limits<float>::infinity();
  x[18] = std::numeric_limits<float>::quiet_NaN();
  OpRun op(cpu::prepare(NeuronForward{{NeuronKind::relu, 1, 1}, dims}, {}));
  op.set(0, x);
  op.run();
  const auto y = op.get(1);
  for (std::size_t i = 0; i < y.size(); ++i) {
    INFO("element " << i);
    CHECK(std::isnan(y[i]) == (i == 3 || i == 18));
    if (i == 17) CHECK(std::isinf(y[i]));
    if (i != 3 && i != 17 && i != 18) CHECK(y[i] == 0.0F);
  }
}

TEST_CASE("an unknown layout is kept where it does not matter, else plain is asked for", "[elementwise]") {
  const Dims dims{2, 20, 3, 3};
  const dnnl::memory::desc desc(dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::nhwc);
  const TensorDesc nhwc = cpu::from_dnnl(desc, dims);
  CHECK(same_layout(cpu::prepare(NeuronForward{{NeuronKind::relu, 1, 1}, dims}, {nhwc})->args()[1], nhwc));
  CHECK(cpu::prepare(NeuronForward{{NeuronKind::logistic, 1, 1}, dims}, {nhwc})->args()[0].plain());
}

TEST_CASE("scale multiplies, in place too", "[elementwise]") {
  for (const Dims& dims : shapes())
    for (int block : blocks_of(dims)) {
      const auto x = random_values(element_count(dims), 4);
      std::vector<float> expected;
      for (float v : x) expected.push_back(v * -2.5F);
      const auto op = cpu::prepare(Scale{dims, -2.5F}, {activations(dims, block)});
      CHECK(results_of(op, {x})[0] == expected);
      CHECK(results_of(op, {x}, 0)[0] == expected);
    }
}

TEST_CASE("accumulate adds in the destination's layout", "[elementwise]") {
  for (const Dims& dims : shapes())
    for (int block : blocks_of(dims)) {
      const auto x = random_values(element_count(dims), 5), sum = random_values(element_count(dims), 6);
      std::vector<float> expected;
      for (std::size_t i = 0; i < x.size(); ++i) expected.push_back(x[i] + sum[i]);
      const auto prepared = cpu::prepare(Accumulate{dims}, {std::nullopt, activations(dims, block)});
      CHECK(same_layout(prepared->args()[0], activations(dims, block)));
      OpRun op(prepared);
      op.set(0, x);
      op.set(1, sum);
      op.run();
      CHECK(op.get(1) == expected);
      CHECK(op.padding_is_zero(1));
    }
}

TEST_CASE("fill zero clears every byte", "[elementwise]") {
  for (const TensorDesc& what :
       {TensorDesc{{3, 5}, DataType::u8, nullptr}, TensorDesc{{100, 77}, DataType::f64, nullptr},
        TensorDesc{{1}, DataType::s32, nullptr}, activations({2, 20, 3, 3}, 16)}) {
    OpRun op(cpu::prepare(FillZero{what}, {}));
    op.run();
    const auto bytes = static_cast<std::size_t>(what.bytes());
    CHECK(op.raw<std::uint8_t>(0, bytes) == std::vector<std::uint8_t>(bytes, 0));
  }
}

TEST_CASE("runs of floats are copied", "[elementwise]") {
  const std::vector<CopyRuns::Run> runs = {{1, true}, {0, true}, {40000}, {40000, true}, {17}};
  for (const int threads : {1, 2}) {
    OpRun op(cpu::prepare(CopyRuns{runs}, {}));
    std::vector<std::vector<float>> values;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      values.push_back(random_values(runs[i].count, static_cast<unsigned>(i)));
      op.set_raw(i, values.back());
    }
    op.run(threads);
    std::size_t rounded = 2 * runs.size();
    for (std::size_t i = 0; i < runs.size(); ++i) {
      CHECK(op.raw<float>(runs.size() + i, values[i].size()) == values[i]);
      if (runs[i].rounds) CHECK(op.raw<std::uint16_t>(rounded++, values[i].size()) == bf16_bits(values[i]));
    }
  }
}

TEST_CASE("runs of floats are summed in the order of their sources", "[elementwise]") {
  const std::vector<SumRuns::Run> runs = {{1, 2}, {0, 3}, {40000, 3}, {17, 1}};
  for (const int threads : {1, 2}) {
    OpRun op(cpu::prepare(SumRuns{runs}, {}));
    std::size_t argument = 0;
    std::vector<std::vector<float>> expected;
    for (const SumRuns::Run& run : runs) {
      ++argument;
      for (int source = 0; source < run.sources; ++source, ++argument) {
        const std::vector<float> values = random_values(run.count, static_cast<unsigned>(argument));
        op.set_raw(argument, values);
        if (source == 0) expected.push_back(values);
        for (std::size_t i = 0; source > 0 && i < values.size(); ++i) expected.back()[i] += values[i];
      }
    }
    op.run(threads);
    argument = 0;
    for (std::size_t r = 0; r < runs.size(); ++r) {
      CHECK(op.raw<float>(argument, expected[r].size()) == expected[r]);
      argument += 1 + static_cast<std::size_t>(runs[r].sources);
    }
  }
}

TEST_CASE("the destination of a sum may be one of its sources", "[elementwise]") {
  constexpr std::int64_t kCount = 40000;
  const std::vector<float> a = random_values(kCount, 1), b = random_values(kCount, 2),
                           c = random_values(kCount, 3);
  std::vector<float> expected;
  for (std::size_t i = 0; i < a.size(); ++i) expected.push_back(a[i] + b[i] + c[i]);
  for (const std::size_t own : {1, 2, 3}) {
    OpRun op(cpu::prepare(SumRuns{{{kCount, 3}}}, {}));
    op.set_raw(1, a);
    op.set_raw(2, b);
    op.set_raw(3, c);
    op.alias(0, own);
    op.run(2);
    CHECK(op.raw<float>(own, a.size()) == expected);
  }
}

}  // namespace convnet::elementwise_test
