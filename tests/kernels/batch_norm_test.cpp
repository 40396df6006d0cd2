#include <algorithm>
#include <cmath>

#include "kernels/cpu/instruction_set.h"
#include "tests/catch.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/run_op.h"

namespace convnet::batch_norm_test {
using namespace test;

namespace {

using reference::central_differences;
using reference::to_doubles;
using reference::Values;

constexpr float kEpsilon = 1e-3F;
constexpr Neuron kRelu{NeuronKind::relu};

/// The table's shapes, and one for several threads.
std::vector<Dims> shapes() {
  std::vector<Dims> all = batch_norm_shapes();
  all.push_back({700, 37});
  return all;
}
constexpr std::int64_t kSmall = 800;  // elements for central differences

/// Calls visit(element, channel) in canonical order.
template <class Visit>
void for_elements(const Dims& dims, const Visit& visit) {
  const std::int64_t pixels = dims.size() == 4 ? dims[2] * dims[3] : 1;
  for (std::int64_t i = 0; i < element_count(dims); ++i)
    visit(static_cast<std::size_t>(i), static_cast<std::size_t>(i / pixels % dims[1]));
}
std::size_t channels(const Dims& dims) { return static_cast<std::size_t>(dims[1]); }
/// Per channel.
double values_of(const Dims& dims) {
  return static_cast<double>(element_count(dims)) / static_cast<double>(dims[1]);
}

struct Moments {
  Values mean, variance;
};
Moments moments(const Dims& dims, const Values& x) {
  Moments m{Values(channels(dims)), Values(channels(dims))};
  for_elements(dims, [&](std::size_t i, std::size_t c) { m.mean[c] += x[i] / values_of(dims); });
  for_elements(dims, [&](std::size_t i, std::size_t c) {
    m.variance[c] += (x[i] - m.mean[c]) * (x[i] - m.mean[c]) / values_of(dims);
  });
  return m;
}
Values normalised(const Dims& dims, const Values& x, const Moments& m, float epsilon = kEpsilon) {
  Values y;
  for_elements(dims, [&](std::size_t i, std::size_t c) {
    y.push_back((x[i] - m.mean[c]) / std::sqrt(m.variance[c] + static_cast<double>(epsilon)));
  });
  return y;
}
Values scaled(const Dims& dims, const Values& normalised, const Values& scale, const Values& shift) {
  Values y;
  for_elements(dims, [&](std::size_t i, std::size_t c) { y.push_back(normalised[i] * scale[c] + shift[c]); });
  return y;
}

Values applied(const Neuron& neuron, Values x) {
  for (double& v : x) v = reference::neuron(neuron, v);
  return x;
}

Floats floats(const Values& values) { return {values.begin(), values.end()}; }
/// The inputs of a case, as floats and doubles of the same value.
struct Case {
  Dims dims;
  Floats x, dy, scale, shift;

  explicit Case(Dims of, float low = -1, float high = 3)
      : dims(std::move(of)),
        x(random_values(element_count(dims), 1, low, high)),
        dy(random_values(element_count(dims), 2)),
        scale(random_values(dims[1], 3, -2, 2)),
        shift(random_values(dims[1], 4)) {}
  Moments exact_moments() const { return moments(dims, to_doubles(x)); }
  Values y(const Neuron& neuron = {}) const {
    return applied(neuron, scaled(dims, normalised(dims, to_doubles(x), exact_moments()), to_doubles(scale),
                                  to_doubles(shift)));
  }
  /// d(sum of dy * y) by scale and shift.
  Values diff_scale(const Neuron& neuron = {}) const {
    return central_differences(
        [&, at = normalised(dims, to_doubles(x), exact_moments())](const Values& moved) {
          return applied(neuron, scaled(dims, at, moved, to_doubles(shift)));
        },
        to_doubles(scale), to_doubles(dy));
  }
  Values diff_shift(const Neuron& neuron = {}) const {
    return central_differences(
        [&, at = normalised(dims, to_doubles(x), exact_moments())](const Values& moved) {
          return applied(neuron, scaled(dims, at, to_doubles(scale), moved));
        },
        to_doubles(shift), to_doubles(dy));
  }
  /// Returns the gradient by x, also through mean and variance.
  Values diff_src(const Neuron& neuron = {}) const {
    return central_differences(
        [&](const Values& moved) {
          return applied(neuron, scaled(dims, normalised(dims, moved, moments(dims, moved)),
                                        to_doubles(scale), to_doubles(shift)));
        },
        to_doubles(x), to_doubles(dy));
  }
  /// Returns the same by the formula of ops.h, for tensors that are too large for central differences.
  Values diff_src_by_formula() const {
    const Moments moments = exact_moments();
    const Values xhat = normalised(dims, to_doubles(x), moments), sum = diff_shift(), sum_x = diff_scale();
    const double m = values_of(dims);
    Values dx;
    for_elements(dims, [&](std::size_t i, std::size_t c) {
      const double slope =
          static_cast<double>(scale[c]) / std::sqrt(moments.variance[c] + static_cast<double>(kEpsilon));
      dx.push_back(slope * (static_cast<double>(dy[i]) - sum[c] / m - xhat[i] * sum_x[c] / m));
    });
    return dx;
  }
};

/// Calls test(case, hint) for all shapes and layouts.
template <class Test>
void for_cases(const Test& test) {
  for (const Dims& dims : shapes()) {
    const Case c(dims);
    for (int block : blocks_of(dims)) {
      if (block == 16 && instruction_set() < InstructionSet::avx512_core)
        continue;  // no layout of its kernels
      INFO(to_string(dims) << " block " << block);
      test(c, activations(dims, block));
    }
  }
}

}  // namespace

TEST_CASE("batch norm takes mean and variance of each channel", "[batch_norm]") {
  for_cases([](const Case& c, const TensorDesc& layout) {
    const auto op = cpu::prepare(BatchNormMoments{c.dims}, {layout});
    CHECK(same_layout(op->args()[0], layout));
    const auto results = results_of(op, {c.x});
    CHECK(worst_difference(results[0], c.exact_moments().mean) < 1e-6);
    CHECK(worst_difference(results[1], c.exact_moments().variance) < 1e-6);
  });
}

TEST_CASE("batch norm keeps the digits of a variance far from zero", "[batch_norm]") {
  for (const Dims& dims : shapes())
    for (int block : blocks_of(dims)) {
      const Case c(dims, 1000, 1001);
      const auto results =
          results_of(cpu::prepare(BatchNormMoments{dims}, {activations(dims, block)}), {c.x});
      CHECK(worst_difference(results[1], c.exact_moments().variance) < 1e-6);
    }
}

TEST_CASE("batch norm forward matches the reference", "[batch_norm]") {
  for_cases([](const Case& c, const TensorDesc& layout) {
    const Moments m = c.exact_moments();
    for (const Neuron& neuron : applied_neurons()) {
      const auto op = cpu::prepare(BatchNormForward{c.dims, kEpsilon, neuron}, {layout});
      CHECK(same_layout(op->args()[5], layout));
      CHECK(worst_difference(results_of(op, {c.x, floats(m.mean), floats(m.variance), c.scale, c.shift})[0],
                             c.y(neuron)) < 2e-6);
    }
  });
}

TEST_CASE("batch norm gradients of scale and shift match central differences, below neurons too",
          "[batch_norm]") {
  for_cases([](const Case& c, const TensorDesc& layout) {
    const Moments m = c.exact_moments();
    for (const Neuron& neuron : applied_neurons()) {
      std::vector<Floats> inputs = {c.x, c.dy, floats(m.mean), floats(m.variance)};
      if (!neuron.is_ident()) inputs.insert(inputs.end(), {c.scale, c.shift});
      const auto results =
          results_of(cpu::prepare(BatchNormBackwardWeights{c.dims, kEpsilon, neuron}, {layout}), inputs);
      INFO(neuron_name(neuron.kind));
      CHECK(worst_difference(results[0], c.diff_scale(neuron)) < 1e-5);
      CHECK(worst_difference(results[1], c.diff_shift(neuron)) < 1e-5);
    }
  });
}

TEST_CASE("batch norm gradient of the data matches central differences, in place too", "[batch_norm]") {
  for_cases([](const Case& c, const TensorDesc& layout) {
    const Moments m = c.exact_moments();
    const BatchNormBackwardData desc{c.dims, element_count(c.dims) / c.dims[1], kEpsilon};
    const auto op = cpu::prepare(desc, {layout});
    const std::vector<Floats> inputs = {c.x,
                                        c.dy,
                                        floats(m.mean),
                                        floats(m.variance),
                                        c.scale,
                                        floats(c.diff_scale()),
                                        floats(c.diff_shift())};
    const Floats dx = results_of(op, inputs)[0];
    CHECK(results_of(op, inputs, 1)[0] == dx);
    CHECK(worst_difference(dx, element_count(c.dims) <= kSmall ? c.diff_src() : c.diff_src_by_formula()) <
          1e-5);
  });
}

TEST_CASE("batch norm gradient of the data below neurons matches central differences", "[batch_norm]") {
  for_cases([](const Case& c, const TensorDesc& layout) {
    if (element_count(c.dims) > kSmall) return;
    const Moments m = c.exact_moments();
    for (const Neuron& neuron : applied_neurons()) {
      if (neuron.is_ident()) continue;
      const auto op = cpu::prepare(
          BatchNormBackwardData{c.dims, element_count(c.dims) / c.dims[1], kEpsilon, neuron}, {layout});
      const Floats dx =
          results_of(op, {c.x, c.dy, floats(m.mean), floats(m.variance), c.scale,
                          floats(c.diff_scale(neuron)), floats(c.diff_shift(neuron)), c.shift})[0];
      INFO(neuron_name(neuron.kind));
      CHECK(worst_difference(dx, c.diff_src(neuron)) < 1e-5);
    }
  });
}

TEST_CASE("batch norm adds a tensor, also the one that it writes over", "[batch_norm]") {
  for_cases([](const Case& c, const TensorDesc& layout) {
    const Moments m = c.exact_moments();
    const auto plus = [](Floats sums, const Floats& addend) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += addend[i];
      return sums;
    };
    for (const Neuron& neuron : applied_neurons()) {
      std::vector<Floats> inputs = {c.x, floats(m.mean), floats(m.variance), c.scale, c.shift};
      const Floats expected =
          plus(results_of(cpu::prepare(BatchNormForward{c.dims, kEpsilon}, {layout}), inputs)[0], c.dy);
      inputs.push_back(c.dy);
      const auto op = cpu::prepare(BatchNormForward{c.dims, kEpsilon, neuron, true}, {layout});
      const Floats y = results_of(op, inputs)[0];
      CHECK(results_of(op, inputs, 5)[0] == y);
      CHECK(worst_difference(y, applied(neuron, to_doubles(expected))) < 1e-6);

      inputs = {c.x, c.dy, floats(m.mean), floats(m.variance), c.scale, c.scale, c.shift};
      if (!neuron.is_ident()) inputs.push_back(c.shift);
      const BatchNormBackwardData plain{c.dims, element_count(c.dims) / c.dims[1], kEpsilon, neuron};
      const Floats sum = plus(results_of(cpu::prepare(plain, {layout}), inputs)[0], c.x);
      inputs.push_back(c.x);
      BatchNormBackwardData desc = plain;
      desc.sum = true;
      const auto backward = cpu::prepare(desc, {layout});
      const Floats dx = results_of(backward, inputs)[0];
      CHECK(results_of(backward, inputs, inputs.size() - 1)[0] == dx);
      CHECK(worst_difference(dx, Values(sum.begin(), sum.end())) < 1e-6);
    }
  });
}

TEST_CASE("batch norm adds to the gradient that it sums, masks it and writes it, in place too",
          "[batch_norm]") {
  for_cases([](const Case& c, const TensorDesc& layout) {
    const Moments m = c.exact_moments();
    const Floats mean = floats(m.mean), variance = floats(m.variance);
    const Floats addend = random_values(element_count(c.dims), 5),
                 output = random_values(element_count(c.dims), 6);
    for (const Neuron& neuron : {Neuron{}, kRelu, Neuron{NeuronKind::leaky, 0.25F},
                                 Neuron{NeuronKind::hswish}, Neuron{NeuronKind::silu}}) {
      for (const auto& [sum, mask] :
           {std::pair{true, false}, std::pair{false, true}, std::pair{true, true}}) {
        Floats dy = c.dy;
        for (std::size_t i = 0; i < dy.size(); ++i) {
          if (sum) dy[i] += addend[i];
          if (mask && !(output[i] > 0)) dy[i] = 0;
        }
        const auto inputs_of = [&](const Floats& gradient) {
          std::vector<Floats> inputs = {c.x, gradient, mean, variance};
          if (!neuron.is_ident()) inputs.insert(inputs.end(), {c.scale, c.shift});
          return inputs;
        };
        // The gradient that is written lacks the slope of the neuron: BatchNormBackwardData multiplies by it.
        std::vector<Floats> expected = results_of(
            cpu::prepare(BatchNormBackwardWeights{c.dims, kEpsilon, neuron}, {layout}), inputs_of(dy));
        expected.push_back(dy);
        std::vector<Floats> inputs = inputs_of(c.dy);
        if (sum) inputs.push_back(addend);
        if (mask) inputs.push_back(output);
        const auto op = cpu::prepare(BatchNormBackwardWeights{c.dims, kEpsilon, neuron, sum, mask}, {layout});
        CHECK(results_of(op, inputs) == expected);
        CHECK(results_of(op, inputs, 1) == expected);
      }
    }
  });
}

TEST_CASE("batch norm gradients below a relu are those of the masked gradient", "[batch_norm]") {
  for_cases([](const Case& c, const TensorDesc& layout) {
    const Moments m = c.exact_moments();
    const Floats mean = floats(m.mean), variance = floats(m.variance);
    const Floats y = results_of(cpu::prepare(BatchNormForward{c.dims, kEpsilon, kRelu}, {layout}),
                                {c.x, mean, variance, c.scale, c.shift})[0];
    Floats masked = c.dy;
    for (std::size_t i = 0; i < masked.size(); ++i) masked[i] = y[i] > 0 ? masked[i] : 0;
    const auto sums = results_of(cpu::prepare(BatchNormBackwardWeights{c.dims, kEpsilon}, {layout}),
                                 {c.x, masked, mean, variance});
    CHECK(results_of(cpu::prepare(BatchNormBackwardWeights{c.dims, kEpsilon, kRelu}, {layout}),
                     {c.x, c.dy, mean, variance, c.scale, c.shift}) == sums);
    BatchNormBackwardData data{c.dims, element_count(c.dims) / c.dims[1], kEpsilon};
    const Floats dx =
        results_of(cpu::prepare(data, {layout}), {c.x, masked, mean, variance, c.scale, sums[0], sums[1]})[0];
    data.neuron = kRelu;
    const auto op = cpu::prepare(data, {layout});
    const std::vector<Floats> inputs = {c.x, c.dy, mean, variance, c.scale, sums[0], sums[1], c.shift};
    CHECK(results_of(op, inputs)[0] == dx);
    CHECK(results_of(op, inputs, 1)[0] == dx);
  });
}

TEST_CASE("the images of a batch norm may be spread over several tensors", "[batch_norm]") {
  const Case whole({5, 20, 3, 4});
  const Moments m = whole.exact_moments();
  const Values expected = whole.diff_src();
  const auto image = static_cast<std::ptrdiff_t>(20 * 3 * 4);
  const auto images = [&](const auto& values, std::ptrdiff_t first, std::ptrdiff_t last) {
    return std::decay_t<decltype(values)>(values.begin() + first * image, values.begin() + last * image);
  };
  for (const auto& [first, last] : {std::pair{0, 2}, std::pair{2, 5}})
    for (int block : {1, 8, 16}) {
      const Dims dims{last - first, 20, 3, 4};
      const auto op = cpu::prepare(BatchNormBackwardData{dims, 60, kEpsilon}, {activations(dims, block)});
      const Floats dx = results_of(
          op, {images(whole.x, first, last), images(whole.dy, first, last), floats(m.mean),
               floats(m.variance), whole.scale, floats(whole.diff_scale()), floats(whole.diff_shift())})[0];
      CHECK(worst_difference(dx, images(expected, first, last)) < 1e-5);
    }
}

TEST_CASE("batch norm of equal values gives the shift", "[batch_norm]") {
  for (const Dims& dims : shapes())
    for (int block : blocks_of(dims))
      for (float value : {0.0F, 0.1F, -1e4F, 1e-30F}) {
        INFO(to_string(dims) << " block " << block << " value " << value);
        const Case c(dims);
        const Floats x(c.x.size(), value);
        const TensorDesc layout = activations(dims, block);
        const auto m = results_of(cpu::prepare(BatchNormMoments{dims}, {layout}), {x});
        CHECK(m[0] == Floats(channels(dims), value));
        CHECK(worst_difference(m[1], Values(channels(dims), 0.0)) < 1e-10);
        const auto forward = cpu::prepare(BatchNormForward{dims, 1e-12F}, {layout});
        CHECK(worst_difference(
                  results_of(forward, {x, m[0], m[1], c.scale, c.shift})[0],
                  scaled(dims, Values(x.size(), 0.0), to_doubles(c.scale), to_doubles(c.shift))) < 1e-6);
        const auto weights =
            results_of(cpu::prepare(BatchNormBackwardWeights{dims}, {layout}), {x, c.dy, m[0], m[1]});
        CHECK(worst_difference(weights[0], Values(channels(dims), 0.0)) < 1e-6);
        const auto data = cpu::prepare(BatchNormBackwardData{dims, element_count(dims) / dims[1]}, {layout});
        const Floats dx = results_of(data, {x, c.dy, m[0], m[1], c.scale, weights[0], weights[1]})[0];
        CHECK(std::all_of(dx.begin(), dx.end(), [](float v) { return std::isfinite(v); }));
      }
}

TEST_CASE("batch norm of one value a channel has no gradient", "[batch_norm]") {
  for (int block : {1, 8, 16}) {
    const Dims dims{1, 20, 1, 1};
    const Case c(dims);
    const auto op = cpu::prepare(BatchNormBackwardData{dims, 1, kEpsilon}, {activations(dims, block)});
    const Floats none(20, 0.0F);
    CHECK(worst_difference(results_of(op, {c.x, c.dy, c.x, none, c.scale, none, c.dy})[0], Values(20, 0.0)) <
          1e-5);
  }
}

TEST_CASE("batch norm of no images", "[batch_norm]") {
  const Dims dims{0, 20, 3, 3};
  const Floats ones(20, 1.0F), zeros(20, 0.0F);
  for (int block : {1, 8, 16}) {
    const TensorDesc layout = activations(dims, block);
    CHECK(results_of(cpu::prepare(BatchNormMoments{dims}, {layout}), {{}}) == std::vector{zeros, ones});
    CHECK(
        results_of(cpu::prepare(BatchNormForward{dims}, {layout}), {{}, zeros, ones, ones, ones})[0].empty());
    CHECK(results_of(cpu::prepare(BatchNormBackwardWeights{dims}, {layout}), {{}, {}, zeros, ones}) ==
          std::vector{zeros, zeros});
    CHECK(results_of(cpu::prepare(BatchNormBackwardData{dims, 0}, {layout}),
                     {{}, {}, zeros, ones, ones, zeros, zeros})[0]
              .empty());
  }
}

TEST_CASE("batch norm shows NaN and infinity in their channel alone", "[batch_norm]") {
  for (float bad : {NAN, INFINITY})
    for (const Dims& dims : std::vector<Dims>{{4, 20, 3, 5}, {6, 37}})
      for (int block : blocks_of(dims))
        for (const Neuron& neuron : applied_neurons()) {
          Case c(dims);
          c.x[c.x.size() / 2] = bad;
          std::size_t hit = 0;
          for_elements(dims, [&](std::size_t i, std::size_t k) {
            if (i == c.x.size() / 2) hit = k;
          });
          const TensorDesc layout = activations(dims, block);
          const auto m = results_of(cpu::prepare(BatchNormMoments{dims}, {layout}), {c.x});
          const Floats y = results_of(cpu::prepare(BatchNormForward{dims, kEpsilon, neuron}, {layout}),
                                      {c.x, m[0], m[1], c.scale, c.shift})[0];
          for (std::size_t k = 0; k < channels(dims); ++k) {
            CHECK(std::isfinite(m[0][k]) == (k != hit));
            CHECK(std::isnan(m[1][k]) == (k == hit));
          }
          for_elements(dims, [&](std::size_t i, std::size_t k) {
            if (std::isnan(y[i]) != (k == hit)) FAIL("element " << i << " of channel " << k);
          });
        }
}

TEST_CASE("running statistics move by the factor, with unbiased variance, if there is one", "[batch_norm]") {
  for (std::int64_t channels : {1, 5, 33})
    for (std::int64_t values : {0, 1, 2, 1000})
      for (float factor : {0.0F, 0.1F, 1.0F}) {
        INFO(channels << " channels of " << values << " values, factor " << factor);
        std::vector<Floats> args;
        for (unsigned i = 0; i < 4; ++i) args.push_back(random_values(channels, i, 0, 3));
        OpRun run(cpu::prepare(BatchNormTrack{channels, values, factor}, {}));
        for (std::size_t i = 0; i < 4; ++i) run.set(i, args[i]);
        run.run();
        const double share = values < 2 ? 0 : static_cast<double>(factor);
        const double unbiased =
            values > 1 ? static_cast<double>(values) / static_cast<double>(values - 1) : 1;
        Values mean, variance;
        for (std::size_t c = 0; c < args[0].size(); ++c) {
          const auto at = [&](std::size_t i) { return static_cast<double>(args[i][c]); };
          mean.push_back((1 - share) * at(2) + share * at(0));
          variance.push_back((1 - share) * at(3) + share * unbiased * at(1));
        }
        CHECK(run.get(0) == args[0]);
        CHECK(run.get(1) == args[1]);
        CHECK(worst_difference(run.get(2), mean) < 1e-6);
        CHECK(worst_difference(run.get(3), variance) < 1e-6);
      }
}

TEST_CASE("statistics of the parts of a batch merge into those of the batch", "[batch_norm]") {
  const std::int64_t channels = 5;
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{7}, {4, 3}, {1, 0, 6, 2}, {1, 1, 1, 1, 1, 1, 1, 1}}) {
    BatchNormMerge op{channels, sizes};
    OpRun merge(cpu::prepare(op, {}));
    std::vector<Floats> parts;
    std::int64_t all = 0;
    unsigned seed = 1;
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      const Dims dims = {sizes[k], channels};
      parts.push_back(random_values(element_count(dims), seed++, -2, 5));
      const auto m = results_of(cpu::prepare(BatchNormMoments{dims}, {}), {parts.back()});
      merge.set(2 * k, m[0]);
      merge.set(2 * k + 1, m[1]);
      all += sizes[k];
    }
    Floats whole;
    for (const Floats& part : parts) whole.insert(whole.end(), part.begin(), part.end());
    const auto expected = results_of(cpu::prepare(BatchNormMoments{{all, channels}}, {}), {whole});
    merge.run();
    for (std::size_t r = 0; r < 2; ++r) {
      const Floats got = merge.get(2 * sizes.size() + r);
      CHECK(worst_difference(got, Values(expected[r].begin(), expected[r].end())) < 1e-6);
    }
  }
}

}  // namespace convnet::batch_norm_test
