// Convolutions by Winograd's method.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "kernels/bf16.h"
#include "kernels/cpu/own_kernels.h"
#include "tests/catch.h"
#include "tests/kernels/dnn_reference.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_runner.h"

namespace convnet::winograd_test {
namespace {

using test::conv;
using test::Values;
using test::with_zeros_behind;

/// Returns whether this processor has the instructions for products of a type that the method uses.
bool can_run(DataType type) {
  return instruction_set() >=
         (type == DataType::bf16 ? InstructionSet::avx512_core_bf16 : InstructionSet::avx2);
}

cpu::Prepared winograd(const OpDesc& op, DataType type) {
  return cpu::own_kernels(instruction_set()).prepare_winograd(op, type);
}

/// Random numbers that the type holds exactly.
Values stored_values(const Dims& dims, std::uint32_t seed, DataType type) {
  Values values = test::test_values(dims, seed);
  if (type == DataType::f32) return values;
  for (double& v : values) v = static_cast<double>(to_float(to_bf16(static_cast<float>(v))));
  return values;
}

/// The root of the mean square of differences, relative to that of the expected values.
double rms_error(const Values& actual, const Values& expected) {
  REQUIRE(actual.size() == expected.size());
  double differences = 0, squares = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    differences += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    squares += expected[i] * expected[i];
  }
  return std::sqrt(differences / squares);
}

/// bf16: transformed inputs and filters are rounded to 8 bits of mantissa once each, and activations as they
/// are stored. f32: transforms of six points multiply rounding errors. A product that is missing or wrong
/// shows as far more.
double tolerance(DataType type) { return type == DataType::bf16 ? 6e-3 : 4e-6; }

/// Runs an operation with one and with three threads: the same bits. Returns argument `which`.
Values run(const OpDesc& op, DataType type, const std::vector<Values>& inputs, std::size_t which) {
  const int threads = omp_get_max_threads();
  std::vector<Values> results;
  for (const int count : {1, 3}) {
    omp_set_num_threads(count);
    const cpu::Prepared prepared = winograd(op, type);
    REQUIRE(prepared != nullptr);
    CHECK(prepared->algorithm() == "winograd:own");
    results.push_back(test::run_plain(op, *prepared, inputs)[which]);
  }
  omp_set_num_threads(threads);
  REQUIRE(results[0].size() == results[1].size());  // compared as bits: there may be NaN
  CHECK(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(double)) == 0);
  return results[0];
}

/// Runs an operation whose last two arguments, the addend and the result, are the same memory.
Values run_over_addend(const OpDesc& op, DataType type, const std::vector<Values>& inputs) {
  const cpu::Prepared prepared = winograd(op, type);
  REQUIRE(prepared != nullptr);
  std::vector<test::GuardedBuffer> buffers;
  const auto plain = [](const Dims& dims) { return TensorDesc{dims, DataType::f32, nullptr}; };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorDesc& arg = prepared->args()[i];
    const std::vector<std::byte> bytes =
        test::reordered(test::packed(inputs[i], DataType::f32), plain(arg.dims), arg);
    std::copy(bytes.begin(), bytes.end(), buffers.emplace_back(arg.bytes()).data());
  }
  std::vector<std::byte*> pointers;
  for (test::GuardedBuffer& buffer : buffers) pointers.push_back(buffer.data());
  pointers.push_back(buffers.back().data());
  test::GuardedBuffer workspace(prepared->workspace_bytes());
  prepared->run(pointers, workspace.data(), nullptr);
  const TensorDesc& result = prepared->args().back();
  return test::unpacked(test::reordered(buffers.back().copy(), result, plain(result.dims)), DataType::f32);
}

void check(const ConvGeometry& g, DataType type) {
  INFO(to_string(type) << ", filters of side " << g.filter.x << ", " << to_string(g.src()) << " to "
                       << to_string(g.dst()) << " with padding " << to_string(g.pad));
  const Values src = stored_values(g.src(), 1, type), diff_dst = stored_values(g.dst(), 4, type);
  const Values weights = test::test_values(g.weights(), 2);
  const ConvForward forward{g, false, false, false};
  CHECK(rms_error(run(forward, type, {src, weights, {}}, 2), test::reference_forward(g, src, weights)) <=
        tolerance(type));
  CHECK(rms_error(run(ConvBackwardWeights{g, false}, type, {src, diff_dst, {}}, 2),
                  test::reference_backward_weights(g, src, diff_dst)) <= tolerance(type));
  if (winograd(ConvBackwardData{g}, type))
    CHECK(rms_error(run(ConvBackwardData{g}, type, {diff_dst, weights, {}}, 2),
                    test::reference_backward_data(g, diff_dst, weights)) <= tolerance(type));
}

/// The kinds of convolutions there are methods for.
struct Case {
  DataType type;
  std::int64_t filter, stride;
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DataType type : {DataType::f32, DataType::bf16})
    for (const auto& [filter, stride] : {std::pair{3, 1}, {5, 1}, {3, 2}})
      if (can_run(type)) all.push_back({type, filter, stride});
  return all;
}

}  // namespace

TEST_CASE("Winograd's method matches the reference", "[winograd]") {
  if (cases().empty()) return test::skip("this processor has no AVX2");
  for (const auto& [type, filter, stride] : cases()) {
    if (stride > 1) continue;
    const std::int64_t same = filter / 2;
    for (const ConvGeometry& g : {
             conv(2, 32, 8, 8, 32, filter, 1, same),    // one panel of half the width
             conv(3, 48, 7, 13, 112, filter, 1, same),  // tiles over the border; panels of 64 and 48
             conv(1, 64, 12, 11, 80, filter, 1, same),  // a panel of 16
             conv(2, 20, 12, 12, 50, filter, 1, same),  // channels that are padded
             conv(2, 27, 12, 12, 33, filter, 1, 0),
             conv(2, 32, 10, 10, 48, filter, 1, same + 1),
             conv(2, 32, 6, 6, 32, filter, 1, filter),  // outputs that see only zeros
             conv(5, 32, 14, 14, 64, filter, 1, same),  // more tiles than a block, and not a multiple
             conv(40, 32, 15, 16, 32, filter, 1, same),
             conv(150, 16, 16, 16, 64, filter, 1, same),
             // Images that share tiles with others, of which the last grid lacks some.
             conv(4, 32, 13, 13, 48, filter, 1, same),
             conv(9, 32, 13, 13, 48, filter, 1, same),
             conv(2, 32, 13, 16, 48, filter, 1, same),
             conv(17, 32, 6, 5, 70, filter, 1, same),
             conv(19, 32, 14, 14, 48, filter, 1, same),
             conv(7, 32, 9, 11, 48, filter, 1, 0),
             conv(5, 32, 7, 7, 48, filter, 1, same + 1),
         })
      if (filter == 3 || g.oh % 2 + g.ow % 2 == 0) check(g, type);
  }
  for (const auto& [type, filter, stride] : cases()) {
    if (stride == 1) continue;
    for (const ConvGeometry& g : {
             conv(2, 64, 8, 8, 64, filter, stride, 1),
             conv(3, 48, 7, 13, 112, filter, stride, 1),  // the last filters reach no padding
             conv(1, 64, 12, 11, 80, filter, stride, 1),
             conv(2, 50, 10, 9, 90, filter, stride, 1),  // channels that are padded
             conv(5, 64, 14, 6, 64, filter, stride, 1),
             conv(40, 64, 16, 15, 64, filter, stride, 1),
         })
      check(g, type);
  }
}

TEST_CASE(
    "Winograd's method matches the reference where the zeros behind an image are more or fewer than before "
    "it",
    "[winograd]") {
  if (cases().empty()) return test::skip("this processor has no AVX2");
  for (const auto& [type, filter, stride] : cases()) {
    const std::int64_t same = filter / 2;
    // Up to four images share a grid of tiles; behind each of them are the zeros that are before the next
    // one.
    for (const ConvGeometry& g :
         {conv(5, 32, 13, 13, 48, filter, stride, same), conv(9, 32, 6, 5, 70, filter, stride, same),
          conv(6, 64, 12, 14, 64, filter, stride, stride == 1 ? 0 : same),
          conv(7, 32, 9, 11, 64, filter, stride, stride == 1 ? same + 1 : same)})
      for (const Sides behind : {Sides(0), Sides(same + 1), Sides{same - 1, same + 2}, Sides(filter)})
        if (winograd(ConvForward{with_zeros_behind(g, behind), false}, type))
          check(with_zeros_behind(g, behind), type);
  }
}

TEST_CASE(
    "Winograd's method adds biases and what is there, cuts off below zero, and sums gradients of biases",
    "[winograd]") {
  if (cases().empty()) return test::skip("this processor has no AVX2");
  for (const auto& [type, filter, stride] : cases()) {
    const ConvGeometry g = conv(3, 64, 8, 8, 70, filter, stride, filter / 2);
    const Values src = stored_values(g.src(), 1, type), weights = test::test_values(g.weights(), 2),
                 bias = test::test_values(g.k, 3), old = stored_values(g.dst(), 5, type);
    for (const bool accumulate : {false, true})
      for (const bool relu : {false, true}) {
        INFO(to_string(type) << filter << accumulate << relu);
        Values expected = test::reference_forward(g, src, weights);
        test::add_bias(expected, g.dst(), bias);
        if (accumulate)
          std::transform(expected.begin(), expected.end(), old.begin(), expected.begin(), std::plus<>());
        if (relu) test::relu(expected);
        const ConvForward op{g, true, accumulate, relu};
        CHECK(rms_error(run(op, type, {src, weights, bias, accumulate ? old : Values{}}, 3), expected) <=
              tolerance(type));
      }
    const Values diff_dst = stored_values(g.dst(), 4, type);
    CHECK(test::relative_error(run(ConvBackwardWeights{g, true}, type, {src, diff_dst, {}, {}}, 3),
                               test::bias_gradient(diff_dst, g.dst())) <= 1e-5);
    CHECK(rms_error(run(ConvBackwardWeights{g, true}, type, {src, diff_dst, {}, {}}, 2),
                    test::reference_backward_weights(g, src, diff_dst)) <= tolerance(type));
  }
}

TEST_CASE("Winograd's method adds a tensor and takes moments", "[winograd]") {
  if (cases().empty()) return test::skip("this processor has no AVX2");
  for (const auto& [type, filter, stride] : cases()) {
    // Several blocks of tiles; tiles over the border; padded channels; all panels.
    for (const ConvGeometry& g : {conv(40, 64, 16, 16, 150, filter, stride, filter / 2),
                                  conv(3, 64, 8, 8, 70, filter, stride, filter / 2),
                                  conv(2, 64, 14, 10, 64, filter, stride, filter / 2),
                                  conv(9, 64, 13, 13, 64, filter, stride, filter / 2),
                                  conv(33, 64, 6, 5, 64, filter, stride, filter / 2)}) {
      const Values src = stored_values(g.src(), 1, type), weights = test::test_values(g.weights(), 2),
                   bias = test::test_values(g.k, 3), addend = stored_values(g.dst(), 5, type);
      if (winograd(ConvForward{g}, type) == nullptr) continue;
      for (const bool sum : {false, true})
        for (const bool relu : {false, true}) {
          INFO(to_string(type) << filter << sum << relu << to_string(g.dst()));
          std::vector<Values> inputs = {src, weights, bias};
          if (sum) inputs.push_back(addend);
          const std::size_t dst = inputs.size();
          Values expected = run(ConvForward{g, true, false, false}, type, {src, weights, bias, {}}, 3);
          inputs.resize(dst + 3);
          const ConvForward op{g, true, false, relu, sum, true};
          const Values out = run(op, type, inputs, dst);
          if (sum)
            std::transform(expected.begin(), expected.end(), addend.begin(), expected.begin(), std::plus<>());
          if (relu) test::relu(expected);
          CHECK(rms_error(out, expected) <= tolerance(type));
          // The moments are those of the output, up to its rounding.
          const Values mean = run(op, type, inputs, dst + 1), variance = run(op, type, inputs, dst + 2);
          const std::int64_t pixels = g.oh * g.ow;
          for (std::int64_t k = 0; k < g.k; ++k) {
            double total = 0, squares = 0;
            const auto each = [&](const auto& f) {
              for (std::int64_t n = 0; n < g.n; ++n)
                for (std::int64_t i = 0; i < pixels; ++i)
                  f(out[static_cast<std::size_t>((n * g.k + k) * pixels + i)]);
            };
            each([&](double v) { total += v; });
            const double exact = total / static_cast<double>(g.n * pixels);
            each([&](double v) { squares += (v - exact) * (v - exact); });
            const double variance_of = squares / static_cast<double>(g.n * pixels);
            const double rounding = tolerance(type);
            CHECK(std::abs(mean[static_cast<std::size_t>(k)] - exact) <= rounding * std::sqrt(variance_of));
            CHECK(std::abs(variance[static_cast<std::size_t>(k)] - variance_of) <= rounding * variance_of);
          }
        }
    }
    const ConvGeometry g = conv(3, 64, 8, 8, 70, filter, stride, filter / 2);
    const Values diff_dst = stored_values(g.dst(), 4, type), weights = test::test_values(g.weights(), 2),
                 addend = stored_values(g.src(), 5, type);
    Values expected = test::reference_backward_data(g, diff_dst, weights);
    std::transform(expected.begin(), expected.end(), addend.begin(), expected.begin(), std::plus<>());
    const Values sum = run(ConvBackwardData{g, true}, type, {diff_dst, weights, addend, {}}, 3);
    CHECK(rms_error(sum, expected) <= tolerance(type));
    // The same where the addend is written over: arguments 2 and 3 are one tensor.
    CHECK(run_over_addend(ConvBackwardData{g, true}, type, {diff_dst, weights, addend}) == sum);
  }
}

TEST_CASE("Winograd's moments keep the digits of a variance far from zero", "[winograd]") {
  if (!can_run(DataType::f32)) return test::skip("this processor has no AVX2");
  const ConvGeometry g = conv(20, 32, 16, 16, 32, 3, 1, 1);
  Values bias(32, 1000);
  const std::vector<Values> inputs = {
      test::test_values(g.src(), 1), test::test_values(g.weights(), 2), bias, {}, {}, {}};
  const ConvForward op{g, true, false, false, false, true};
  const Values far = run(op, DataType::f32, inputs, 5);
  std::vector<Values> near_inputs = inputs;
  near_inputs[2] = Values(32, 0);
  const Values near = run(op, DataType::f32, near_inputs, 5);
  for (std::size_t k = 0; k < far.size(); ++k) CHECK(std::abs(far[k] - near[k]) <= 1e-4 * near[k]);
}

TEST_CASE("Winograd's moments are those of the numbers that are stored", "[winograd]") {
  if (!can_run(DataType::bf16)) return test::skip("this processor has no products of bf16 numbers");
  // All outputs are the bias, which bf16 rounds.
  const ConvGeometry g = conv(3, 64, 8, 8, 70, 3, 1, 1);
  const Values weights(static_cast<std::size_t>(element_count(g.weights())), 0);
  const std::vector<Values> inputs = {
      stored_values(g.src(), 1, DataType::bf16), weights, Values(70, 1.003), {}, {}, {}};
  const ConvForward op{g, true, false, false, false, true};
  const Values out = run(op, DataType::bf16, inputs, 3), mean = run(op, DataType::bf16, inputs, 4);
  CHECK(out[0] == 1);
  CHECK(mean == Values(70, out[0]));
  CHECK(run(op, DataType::bf16, inputs, 5) == Values(70, 0));
}

TEST_CASE("Winograd's method keeps NaN where it is seen, also below a relu", "[winograd]") {
  if (cases().empty()) return test::skip("this processor has no AVX2");
  for (const auto& [type, filter, stride] : cases()) {
    const ConvGeometry g = conv(2, 64, 8, 8, 64, filter, stride, filter / 2);
    const ConvForward op{g, false, false, true};
    Values src = stored_values(g.src(), 1, type);
    src[0] = std::nan("");
    const Values out = run(op, type, {src, test::test_values(g.weights(), 2), {}}, 2);
    CHECK(std::isnan(out[0]));
    CHECK(std::none_of(out.begin() + static_cast<std::ptrdiff_t>(out.size() / 2), out.end(),
                       [](double v) { return std::isnan(v); }));
  }
}

TEST_CASE("images of 13x13 share tiles of Winograd's method", "[winograd]") {
  if (!can_run(DataType::f32)) return test::skip("this processor has no AVX2");
  // Four images take 49 tiles; NaN of an image reaches the tiles of its grid, but no other grid.
  const ConvGeometry g = conv(8, 64, 13, 13, 64, 3, 1, 1);
  Values src = test::test_values(g.src(), 1);
  const std::size_t image = src.size() / 8;
  std::fill_n(src.begin(), image, std::nan(""));
  const Values out = run(ConvForward{g, false, false, false}, DataType::f32,
                         {src, test::test_values(g.weights(), 2), {}}, 2);
  const auto is_nan = [](double v) { return std::isnan(v); };
  CHECK(std::all_of(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(image), is_nan));
  const auto nans = [&](std::size_t i) {
    const auto first = out.begin() + static_cast<std::ptrdiff_t>(i * image);
    return std::count_if(first, first + static_cast<std::ptrdiff_t>(image), is_nan);
  };
  // Its right neighbour has two columns of 13, and the image below two rows, in tiles of both images.
  CHECK(nans(1) == 64 * 2 * 13);
  CHECK(nans(2) == 64 * 2 * 13);
  for (std::size_t i = 4; i < 8; ++i) CHECK(nans(i) == 0);
}

TEST_CASE("Winograd's method is for convolutions that it was measured to make faster", "[winograd]") {
  const DataType f32 = DataType::f32, bf16 = DataType::bf16;
  const auto taken = [](DataType type, const ConvGeometry& g) {
    return winograd(ConvForward{g, false, false, false}, type) != nullptr;
  };
  CHECK(taken(f32, conv(2, 16, 8, 8, 32, 3, 1, 1)) == can_run(f32));
  CHECK(taken(f32, conv(2, 16, 8, 8, 32, 5, 1, 2)) == can_run(f32));
  CHECK(taken(bf16, conv(2, 16, 8, 8, 48, 3, 1, 1)) == can_run(bf16));
  // With AVX2 the library has direct convolutions only.
  const bool narrow = can_run(f32) && instruction_set() < InstructionSet::avx512_core;
  CHECK(taken(f32, conv(2, 16, 8, 8, 16, 3, 1, 1)) == narrow);     // few channels
  CHECK(taken(f32, conv(12, 512, 8, 8, 512, 3, 1, 1)) == narrow);  // many filters
  CHECK_FALSE(taken(f32, conv(2, 8, 8, 8, 16, 3, 1, 1)));
  CHECK_FALSE(taken(f32, conv(2, 3, 8, 8, 96, 3, 1, 1)));     // mostly padding
  CHECK_FALSE(taken(f32, conv(2, 512, 8, 8, 512, 3, 1, 1)));  // many filters for few tiles
  CHECK_FALSE(taken(bf16, conv(2, 16, 8, 8, 32, 3, 1, 1)));
  CHECK(taken(bf16, conv(2, 32, 8, 8, 32, 5, 1, 2)) == can_run(bf16));
  CHECK_FALSE(taken(bf16, conv(2, 16, 8, 8, 48, 5, 1, 2)));
  CHECK_FALSE(taken(bf16, conv(2, 64, 7, 7, 64, 5, 1, 2)));  // tiles over the border
  for (const DataType type : {f32, bf16}) {
    CHECK(taken(type, conv(2, 64, 8, 8, 64, 3, 2, 1)) == can_run(type));
    CHECK_FALSE(taken(type, conv(2, 32, 8, 8, 32, 3, 2, 1)));
    CHECK_FALSE(taken(type, conv(2, 64, 8, 8, 64, 3, 2, 0)));  // gradients of inputs want padding of 1
    CHECK_FALSE(taken(type, conv(2, 64, 8, 8, 64, 3, 1, 1, 2)));
    CHECK_FALSE(taken(type, conv(2, 32, 1, 1, 32, 3, 1, 1)));  // one of 4 or 16 outputs is wanted
    CHECK_FALSE(taken(type, conv(0, 32, 8, 8, 32, 3, 1, 1)));
  }
}

}  // namespace convnet::winograd_test
