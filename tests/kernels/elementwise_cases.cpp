#include <cmath>

#include "tests/kernels/op_cases.h"

namespace convnet::test {
namespace {

void add_neurons(std::vector<OpCase>& cases, const Dims& dims) {
  const auto add = [&](const Neuron& f, const Values& x) {
    cases.push_back({NeuronForward{f, dims}, {x}});
    cases.push_back({NeuronForward{f, dims}, {x}, {}, 0});
    cases.push_back({NeuronBackward{f, dims}, {x}});
    cases.push_back({NeuronBackward{f, dims}, {x}, {}, 1});
  };
  for (int kind = 0; kind <= static_cast<int>(NeuronKind::nrelu); ++kind) {
    const Neuron f{static_cast<NeuronKind>(kind), 1.5F, 0.7F};
    Values x = test_values(dims, 1);
    // The square root and the logarithm are defined for these only.
    for (double& v : x) v = f.kind == NeuronKind::sqrt || f.kind == NeuronKind::log ? std::abs(v) : v;
    add(f, x);
  }
  for (const NeuronCase& n : neurons()) {
    Values x = values_between(dims, 1, static_cast<double>(n.low), static_cast<double>(n.high));
    for (std::size_t i = 0; i < n.kinks.size() && i < x.size(); ++i) x[i] = n.kinks[i];
    add(n.f, x);
  }
}

/// Multiples of 0.25 with many equal ones among the inputs, and some NaN.
std::vector<Values> tied_inputs(const Dims& dims, std::size_t count, bool with_nan) {
  std::vector<Values> inputs;
  for (std::size_t k = 0; k < count; ++k) {
    inputs.push_back(test_values(dims, static_cast<std::uint32_t>(k + 1)));
    for (double& v : inputs[k]) v = std::floor(3 * v) / 4;
    for (std::size_t i = k; i < inputs[k].size() && with_nan; i += k + 2) inputs[k][i] = std::nan("");
  }
  return inputs;
}

/// EltwiseMax and its gradients, exactly.
void add_max(std::vector<OpCase>& cases, const Dims& dims, const std::vector<Values>& inputs) {
  const std::int64_t count = std::ssize(inputs);
  cases.push_back({.op = EltwiseMax{dims, count}, .inputs = inputs, .tolerance = 0});
  for (std::int64_t index = 0; index < count; ++index)
    cases.push_back({.op = EltwiseMaxBackward{dims, count, index}, .inputs = inputs, .tolerance = 0});
}

void add_eltwise(std::vector<OpCase>& cases) {
  const std::vector<float> coeffs = {1, -0.5F, 2, 0, 0.3F};
  for (const Dims& dims : eltwise_shapes()) {
    for (const std::ptrdiff_t count : {1, 2, 3, 5})
      cases.push_back({.op = EltwiseSum{dims, {coeffs.begin(), coeffs.begin() + count}}, .tolerance = 1e-6});
    for (const std::size_t count : {1U, 2U, 4U})
      for (const bool with_nan : {false, true}) add_max(cases, dims, tied_inputs(dims, count, with_nan));
  }
  for (const Dims& dims : product_shapes()) {
    cases.push_back({.op = EltwiseProduct{dims}, .tolerance = 0});
    cases.push_back({.op = EltwiseProduct{dims, true}, .tolerance = 0});
    cases.push_back({.op = MapProductSums{dims}, .tolerance = 1e-6});
  }
  // 64 inputs are the most that the CUDA backend's kernels take in one launch.
  for (const std::size_t count : {64U, 65U, 135U}) {
    EltwiseSum op{{2, 3, 2, 2}, {}};
    for (std::size_t k = 0; k < count; ++k) op.coeffs.push_back(0.1F * static_cast<float>(k % 7) - 0.2F);
    cases.push_back({op});
  }
  const Dims dims{2, 17, 3, 3};
  for (const double value : {0.0, -1.0, HUGE_VAL, -HUGE_VAL})
    add_max(cases, dims, std::vector(3, Values(static_cast<std::size_t>(element_count(dims)), value)));
  cases.push_back({EltwiseMax{{2, 3}, 64}});
}

void add_moves(std::vector<OpCase>& cases) {
  for (const ConcatCase& c : concats()) {
    cases.push_back({.op = Concat{c.from, c.to}, .tolerance = 0});
    Split all{c.to, {}};
    std::int64_t offset = 0;
    for (const Dims& part : c.from) {
      all.to.push_back({part, offset});
      cases.push_back({.op = Split{c.to, {all.to.back()}}, .tolerance = 0});
      offset += element_count({part.begin() + 1, part.end()});
    }
    cases.push_back({.op = all, .tolerance = 0});
  }
  for (const Split& op : std::vector<Split>{{{2, 40, 2, 3}, {{{2, 16, 2, 3}, 48}}},
                                            {{2, 40, 2, 3}, {{{2, 16, 3, 2}, 95}}},  // from within a map
                                            {{2, 40, 2, 3}, {{{2, 7}, 101}}},
                                            {{2, 40, 2, 3}, {{{2, 1, 1, 1}, 239}}},
                                            {{2, 40, 2, 3}, {{{2, 1, 1, 1}, 239}, {{2, 16, 2, 3}, 48}}}})
    cases.push_back({.op = op, .tolerance = 0});
  for (const TakeMaps& op : map_takings()) cases.push_back({.op = op, .tolerance = 0});
}

}  // namespace

std::vector<NeuronCase> neurons() {
  return {{{NeuronKind::ident, 1, 1}},
          {{NeuronKind::relu, 1, 1}, -3, 3, {0}},
          {{NeuronKind::logistic, 1, 1}},
          {{NeuronKind::tanh, 1.7F, 0.6F}},
          {{NeuronKind::tanh, 2, -0.5F}},
          {{NeuronKind::abs, 1, 1}, -3, 3, {0}},
          {{NeuronKind::softrelu, 1, 1}},
          {{NeuronKind::square, 1, 1}},
          {{NeuronKind::sqrt, 1, 1}, 0.05F, 4},
          {{NeuronKind::log, 0.5F, 1}, -0.3F, 4},
          {{NeuronKind::log, 1, 1}, -0.5F, 4},
          {{NeuronKind::brelu, 1.5F, 1}, -3, 3, {0, 1.5}},
          {{NeuronKind::linear, -2, 0.25F}},
          {{NeuronKind::linear, 0.5F, 0}},
          {{NeuronKind::drelu, 0.7F, 1}},
          {{NeuronKind::abstanh, 1.5F, 0.8F}, -3, 3, {0}},
          {{NeuronKind::abstanh, 1, -1}, -3, 3, {0}},
          {{NeuronKind::nrelu, 1, 1}, -3, 3, {0}},
          {{NeuronKind::leaky, 0.1F, 1}, -3, 3, {0}},
          {{NeuronKind::elu, 1.3F, 1}, -3, 3, {0}},
          {{NeuronKind::silu, 1, 1}},
          {{NeuronKind::gelu, 1, 1}},
          {{NeuronKind::mish, 1, 1}},
          {{NeuronKind::hsigmoid, 1, 1}, -5, 5, {-3, 3}},
          {{NeuronKind::hswish, 1, 1}, -5, 5, {-3, 3}}};
}

std::vector<Dims> elementwise_shapes() {
  return {{2, 20, 3, 5}, {1, 1, 1, 1}, {3, 16, 2, 2}, {2, 7}, {3, 5, 4, 6}, {7, 13}, {1, 1}};
}

std::vector<Dims> eltwise_shapes() {
  return {{2, 20, 3, 5}, {1, 1, 1, 1}, {3, 16, 2, 2}, {2, 7}, {1, 1}, {3, 33, 21, 19}, {0, 20, 3, 3}};
}

std::vector<Dims> product_shapes() {
  std::vector<Dims> shapes = eltwise_shapes();
  shapes.insert(shapes.end(), {{1, 4, 40, 41}, {2, 8, 15, 1}, {70, 64, 2, 2}, {3, 24, 30, 30}});
  return shapes;
}

std::vector<ConcatCase> concats() {
  return {
      {{{2, 16, 3, 5}, {2, 32, 3, 5}}, {2, 48, 3, 5}, {8, 16}},
      {{{2, 16, 3, 5}, {2, 5, 3, 5}}, {2, 21, 3, 5}, {8, 16}},  // the last part ends within a block
      {{{2, 8, 3, 5}, {2, 16, 3, 5}}, {2, 24, 3, 5}, {8}},
      {{{2, 5, 3, 5}, {2, 16, 3, 5}}, {2, 21, 3, 5}},
      {{{2, 5, 3, 5}, {2, 16, 3, 5}, {2, 1, 3, 5}}, {2, 22, 3, 5}},
      {{{3, 16, 1, 1}, {3, 7, 1, 1}, {3, 1, 1, 1}}, {3, 24, 1, 1}},
      {{{1, 1, 1, 1}}, {1, 1, 1, 1}, {8, 16}},
      {{{1, 16, 2, 2}}, {1, 64}},                        // flat afterwards
      {{{3, 7}, {3, 1}, {3, 20}}, {3, 28}},              //
      {{{2, 16, 2, 2}, {2, 3}, {2, 1, 3, 1}}, {2, 70}},  // images of several sizes
      {{{2, 4, 3, 3}, {2, 2, 3, 6}}, {2, 8, 3, 3}},      // the same, as maps
      {{{7, 40, 5, 11}, {7, 24, 5, 11}}, {7, 64, 5, 11}, {8}},
      {{{40, 16, 13, 11}, {40, 24, 13, 11}}, {40, 40, 13, 11}, {8, 16}},
      {{{0, 16, 3, 5}, {0, 16, 3, 5}}, {0, 32, 3, 5}, {8, 16}},
  };
}

std::vector<TakeMaps> map_takings() {
  return {{{2, 40, 3, 5}, {2, 40, 3, 5}},
          {{2, 40, 3, 5}, {2, 16, 3, 5}, 16},
          {{2, 40, 3, 5}, {2, 8, 3, 5}, 32},   // the end, with its padding
          {{2, 40, 3, 5}, {2, 20, 3, 5}, 20},  // from within a block
          {{2, 40, 3, 5}, {2, 3, 3, 5}, 1},
          {{2, 20, 3, 5}, {2, 40, 3, 5}, -20},  // zeros before and behind
          {{2, 20, 3, 5}, {2, 40, 3, 5}, -3},
          {{2, 16, 3, 5}, {2, 48, 3, 5}, -16},
          {{2, 6, 4, 3}, {2, 6, 4, 3}, 0, 2},
          {{2, 6, 4, 3}, {2, 6, 4, 3}, 0, 3},
          {{2, 32, 4, 3}, {2, 32, 4, 3}, 0, 2},
          {{2, 32, 4, 3}, {2, 32, 4, 3}, 0, 16},
          {{3, 116, 7, 5}, {3, 116, 7, 5}, 0, 2},
          {{3, 116, 7, 5}, {3, 58, 7, 5}, 58},
          {{2, 24, 2, 2}, {2, 12, 2, 2}, 5, 3},  // both at once
          {{40, 48, 13, 11}, {40, 48, 13, 11}, 0, 4},
          {{3, 12}, {3, 5}, 4},
          {{3, 12}, {3, 12}, 0, 4},
          {{3, 5}, {3, 12}, -4},
          {{1, 1, 1, 1}, {1, 1, 1, 1}},
          {{0, 16, 3, 5}, {0, 8, 3, 5}, 8}};
}

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> cases;
  std::vector<Dims> shapes = elementwise_shapes();
  shapes.push_back({0, 3, 4, 4});
  for (const Dims& dims : shapes) {
    add_neurons(cases, dims);
    cases.push_back({Scale{dims, 0.3F}});
    cases.push_back({Scale{dims, -2}, {}, {}, 0});
    for (const std::int64_t first_element : {0, 7, 8}) {
      const auto block = step_block((std::uint64_t{1} << 33) + 7);
      for (const DropUnit unit : {DropUnit::value, DropUnit::map, DropUnit::image})
        cases.push_back({Dropout{dims, 0.6F, 1.5F, 77, 30, first_element, unit}, {}, {{}, {}, block}, {}, 0});
      cases.push_back({NoisyRelu{dims, 77, 30, first_element}, {}, {{}, {}, block}});
    }
  }
  add_eltwise(cases);
  add_moves(cases);
  return cases;
}

}  // namespace convnet::test
