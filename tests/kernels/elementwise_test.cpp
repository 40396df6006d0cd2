#include <limits>

#include "tests/kernels/reference.h"
#include "tests/kernels/run_op.h"

using namespace convnet;
using namespace convnet::test;

namespace {
const std::vector<Dims> kShapes = {{2, 20, 3, 5}, {1, 1, 1, 1}, {3, 16, 2, 2}, {2, 7}, {3, 33, 21, 19}};
const std::vector<Neuron> kNeurons = {{NeuronKind::ident, 1, 1},
                                      {NeuronKind::relu, 1, 1},
                                      {NeuronKind::logistic, 1, 1},
                                      {NeuronKind::tanh, 1.7F, 0.6F}};
/// (N,C) is always plain.
std::vector<int> blocks_of(const Dims& dims) {
  return dims.size() == 4 ? std::vector<int>{1, 8, 16} : std::vector<int>{1};
}
}  // namespace

TEST_CASE("neurons match the reference, in place too", "[elementwise]") {
  for (const Neuron& f : kNeurons)
    for (const Dims& dims : kShapes)
      for (int block : blocks_of(dims))
        for (bool in_place : {false, true}) {
          INFO("neuron " << static_cast<int>(f.kind) << " " << to_string(dims) << " block " << block);
          const auto x = random_values(element_count(dims), 1, -3, 3);
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
  for (const Neuron& f : kNeurons)
    for (const Dims& dims : kShapes)
      for (int block : blocks_of(dims))
        for (bool in_place : {false, true}) {
          INFO("neuron " << static_cast<int>(f.kind) << " " << to_string(dims) << " block " << block);
          const auto x = random_values(element_count(dims), 2, -3, 3);
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
          op.set(0, y);
          op.set(1, dy);
          op.run();
          CHECK(worst_difference(op.get(in_place ? 1 : 2), expected) < 2e-6);
          CHECK(op.padding_is_zero(in_place ? 1 : 2));
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

TEST_CASE("scale multiplies", "[elementwise]") {
  for (const Dims& dims : kShapes)
    for (int block : blocks_of(dims)) {
      const auto x = random_values(element_count(dims), 4);
      std::vector<float> expected;
      for (float v : x) expected.push_back(v * -2.5F);
      OpRun op(cpu::prepare(Scale{dims, -2.5F}, {activations(dims, block)}));
      op.set(0, x);
      op.run();
      CHECK(op.get(1) == expected);
      CHECK(op.padding_is_zero(1));
    }
}

TEST_CASE("accumulate adds in the destination's layout", "[elementwise]") {
  for (const Dims& dims : kShapes)
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
