#include <omp.h>

#include <algorithm>
#include <array>
#include <functional>
#include <future>
#include <random>

#include "convnet/base/error.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/onednn.h"
#include "tests/catch.h"
#include "tests/every_case.h"
#include "tests/kernels/dnn_reference.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_runner.h"

namespace convnet::conv_test {
namespace {

using test::conv;
using test::Values;

std::string text(const ConvGeometry& g) {
  return to_string(g.src()) + " * " + to_string(g.weights()) + " -> " + to_string(g.dst()) + " stride " +
         to_string(g.stride) + " pad " + to_string(g.pad) + " dilation " + to_string(g.dilation) +
         " groups " + std::to_string(g.groups);
}

double tolerance(const PreparedOp& op) { return op.algorithm().rfind("winograd", 0) == 0 ? 2e-4 : 1e-5; }

/// Prepares and runs with the hints given, and compares argument `which` with `expected`.
template <class Op>
void check(const Op& op, const LayoutHints& hints, const std::vector<Values>& inputs, std::size_t which,
           const Values& expected) {
  const auto prepared = cpu::prepare(op, hints);
  INFO(op_name(op) << " " << text(op.g) << " by " << prepared->algorithm());
  CHECK(test::relative_error(test::run_plain(OpDesc(op), *prepared, inputs)[which], expected) <=
        tolerance(*prepared));
}

/// Forward and both backward passes against the reference.
void check_all(const ConvGeometry& g) {
  const Values src = test::test_values(g.src(), 1), weights = test::test_values(g.weights(), 2);
  const Values bias = test::test_values(g.k, 3), diff_dst = test::test_values(g.dst(), 4);
  Values expected = test::reference_forward(g, src, weights);
  check(ConvForward{g, false, false, false}, LayoutHints(3), {src, weights, {}}, 2, expected);
  test::add_bias(expected, g.dst(), bias);
  check(ConvForward{g, true, false, false}, LayoutHints(4), {src, weights, bias, {}}, 3, expected);

  check(ConvBackwardData{g}, LayoutHints(3), {diff_dst, weights, {}}, 2,
        test::reference_backward_data(g, diff_dst, weights));

  const Values diff_weights = test::reference_backward_weights(g, src, diff_dst);
  check(ConvBackwardWeights{g, false}, LayoutHints(3), {src, diff_dst, {}}, 2, diff_weights);
  check(ConvBackwardWeights{g, true}, LayoutHints(4), {src, diff_dst, {}, {}}, 2, diff_weights);
  check(ConvBackwardWeights{g, true}, LayoutHints(4), {src, diff_dst, {}, {}}, 3,
        test::bias_gradient(diff_dst, g.dst()));
}

TEST_CASE("convolution matches the reference", "[conv]") {
  for (const ConvGeometry& g : test::conv_geometries()) check_all(g);
}

/// Returns the sizes of a convolution by lot; the zeros behind an image may be more or fewer than those
/// before.
ConvGeometry random_geometry(unsigned seed) {
  std::mt19937 lot(seed);
  const auto number = [&](int least, int most) {
    return std::int64_t{std::uniform_int_distribution<int>(least, most)(lot)};
  };
  constexpr std::array<std::int64_t, 7> channels = {1, 3, 8, 16, 24, 33, 40};
  const auto some_channels = [&] { return channels.at(static_cast<std::size_t>(number(0, 6))); };
  const std::int64_t taps = number(0, 3) == 0 ? number(1, 7) : 2 * number(0, 2) + 1,
                     stride = number(1, 5) / 4 + 1;
  const std::int64_t pad = number(0, static_cast<int>(taps) - 1), n = number(1, 6);
  const bool depthwise = number(0, 5) == 0;
  const std::int64_t c = some_channels(), k = depthwise ? c : some_channels();
  const std::int64_t h = number(static_cast<int>(taps), 15), w = number(static_cast<int>(taps), 15);
  const ConvGeometry g = conv(n, c, h, w, k, taps, stride, pad, depthwise ? c : 1);
  const auto last = static_cast<int>(taps) - 1;
  return number(0, 1) == 0 ? g : test::with_zeros_behind(g, {number(0, last), number(0, last)});
}

TEST_CASE("convolutions of random sizes match the reference", "[conv]") {
  for (const unsigned seed : test::seeds(1, 60, static_cast<std::uint32_t>(test::every_case()))) {
    INFO("seed " << seed);
    check_all(random_geometry(seed));
  }
}

TEST_CASE("3x3 convolutions of many channels use Winograd where it exists", "[conv]") {
  check_all(conv(2, 32, 13, 13, 64, 3, 1, 1));
  check_all(conv(3, 64, 7, 5, 96, 3, 1, 1));
  check_all(conv(1, 48, 8, 9, 80, 3));
  check_all(conv(2, 50, 6, 6, 70, 3, 1, 1));
  const auto algorithm = [](const auto& op) { return cpu::prepare(op, LayoutHints(3))->algorithm(); };
  const ConvGeometry thin = conv(2, 8, 13, 13, 16, 3, 1, 1);
  CHECK(algorithm(ConvForward{thin, false, false, false}).rfind("direct:", 0) == 0);
  CHECK(algorithm(ConvBackwardWeights{thin, false}).rfind("direct:", 0) == 0);
}

TEST_CASE("convolution fuses ReLU and accumulation", "[conv]") {
  for (const ConvGeometry& g : test::fused_conv_geometries()) {
    const Values src = test::test_values(g.src(), 1), weights = test::test_values(g.weights(), 2);
    const Values bias = test::test_values(g.k, 3), old = test::test_values(g.dst(), 5);
    Values plain = test::reference_forward(g, src, weights);
    test::add_bias(plain, g.dst(), bias);
    Values rectified = plain, sum = plain;
    test::relu(rectified);
    std::transform(sum.begin(), sum.end(), old.begin(), sum.begin(), std::plus<>());
    Values rectified_sum = sum;
    test::relu(rectified_sum);
    check(ConvForward{g, true, false, true}, LayoutHints(4), {src, weights, bias, {}}, 3, rectified);
    check(ConvForward{g, true, true, false}, LayoutHints(4), {src, weights, bias, old}, 3, sum);
    check(ConvForward{g, true, true, true}, LayoutHints(4), {src, weights, bias, old}, 3, rectified_sum);
  }
}

TEST_CASE("convolution keeps a hinted weight layout where it costs nothing", "[conv]") {
  for (const ConvGeometry& g : {conv(2, 32, 8, 8, 64, 3, 1, 1), conv(2, 32, 8, 8, 64, 5, 1, 2),
                                conv(2, 32, 7, 5, 64, 3, 1, 1, 2), conv(2, 6, 7, 5, 4, 3, 1, 1, 2)}) {
    const Values src = test::test_values(g.src(), 1), weights = test::test_values(g.weights(), 2);
    const Values diff_dst = test::test_values(g.dst(), 4);
    const auto gradient = cpu::prepare(ConvBackwardWeights{g, false}, LayoutHints(3));
    const TensorDesc master = gradient->args()[2];
    const ConvForward forward{g, false, false, false};
    // Without AVX2, the library computes gradients by plain products, and nothing else in that layout.
    if (instruction_set() >= InstructionSet::avx2)
      CHECK(same_layout(cpu::prepare(forward, {std::nullopt, master, std::nullopt})->args()[1], master));
    const TensorDesc plain{g.weights(), DataType::f32, nullptr};
    for (const TensorDesc& hint : {master, plain}) {
      check(forward, {std::nullopt, hint, std::nullopt}, {src, weights, {}}, 2,
            test::reference_forward(g, src, weights));
      check(ConvBackwardData{g}, {std::nullopt, hint, std::nullopt}, {diff_dst, weights, {}}, 2,
            test::reference_backward_data(g, diff_dst, weights));
      check(ConvBackwardWeights{g, false}, {std::nullopt, std::nullopt, hint}, {src, diff_dst, {}}, 2,
            test::reference_backward_weights(g, src, diff_dst));
    }
  }
}

TEST_CASE("convolution gives the same bits again", "[conv]") {
  const ConvGeometry g = conv(4, 32, 9, 9, 64, 3, 1, 1);
  const Values src = test::test_values(g.src(), 1), diff_dst = test::test_values(g.dst(), 4);
  const ConvBackwardWeights op{g, true};
  CHECK(test::run_plain(op, {src, diff_dst, {}, {}}) == test::run_plain(op, {src, diff_dst, {}, {}}));
}

TEST_CASE("one prepared convolution runs in several threads at once", "[conv]") {
  const ConvGeometry g = conv(4, 32, 9, 9, 64, 3, 1, 1);
  const ConvBackwardWeights op{g, false};
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto prepared = cpu::prepare(op, LayoutHints(3));
  omp_set_num_threads(threads);
  const auto bytes_of = [&](std::size_t i) { return prepared->args()[i].bytes(); };
  const auto input = [&](std::size_t i, std::uint32_t seed) {
    const TensorDesc& to = prepared->args()[i];
    return test::reordered(test::packed(test::test_values(to.dims, seed), to.type), test::plain_of(to), to);
  };
  const auto src = input(0, 1), diff_dst = input(1, 2);
  const auto gradient = [&] {
    omp_set_num_threads(1);
    test::GuardedBuffer in(bytes_of(0)), diff(bytes_of(1)), out(bytes_of(2)),
        workspace(prepared->workspace_bytes());
    std::memcpy(in.data(), src.data(), src.size());
    std::memcpy(diff.data(), diff_dst.data(), diff_dst.size());
    const std::vector<std::byte*> pointers = {in.data(), diff.data(), out.data()};
    for (int i = 0; i < 20; ++i) prepared->run(pointers, workspace.data(), nullptr);
    return out.copy();
  };
  auto first = std::async(std::launch::async, gradient), second = std::async(std::launch::async, gradient);
  const auto a = first.get(), b = second.get();
  CHECK(a == b);
  const Values canonical = test::unpacked(
      test::reordered(a, prepared->args()[2], test::plain_of(prepared->args()[2])), DataType::f32);
  const Values expected =
      test::reference_backward_weights(g, test::test_values(g.src(), 1), test::test_values(g.dst(), 2));
  CHECK(test::relative_error(canonical, expected) <= tolerance(*prepared));
}

TEST_CASE("an impossible convolution is refused by name", "[conv]") {
  ConvGeometry g = conv(2, 8, 8, 8, 16, 3);
  g.oh = 3;  // stops windows before the end of the image by more than a stride
  CHECK_THROWS_AS(cpu::prepare(ConvForward{g, false, false, false}, LayoutHints(3)), DeviceError);
  CHECK_THROWS_WITH(cpu::prepare(ConvBackwardData{g}, LayoutHints(3)),
                    Catch::Contains("conv.backward_data") && Catch::Contains("2x8x8x8"));
}

TEST_CASE("a slow reference implementation is refused unless the operation is small", "[conv]") {
  using tag = dnnl::memory::format_tag;
  const auto with_odd_layouts = [](const ConvGeometry& g) {
    const auto desc = [](const Dims& dims, tag format) {
      return dnnl::memory::desc(dims, dnnl::memory::data_type::f32, format);
    };
    const auto pd = cpu::forward_pd<dnnl::convolution_forward>(
        cpu::attributes(), dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct,
        desc(g.src(), tag::nhwc), desc(g.weights(), tag::oihw), dnnl::memory::desc(),
        desc(g.dst(), tag::nChw16c), Dims{1, 1}, Dims{1, 1}, Dims{1, 1});
    REQUIRE(cpu::is_reference(pd));
    const cpu::DnnlOp op(ConvForward{g, false, false, false}, pd, dnnl::convolution_forward(pd),
                         {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST});
    return op.algorithm();
  };
  CHECK_NOTHROW(with_odd_layouts(conv(1, 16, 8, 8, 16, 3, 1, 1)));
  const ConvGeometry large = conv(64, 32, 32, 32, 32, 3, 1, 1);
  CHECK_THROWS_AS(with_odd_layouts(large), DeviceError);
  CHECK_THROWS_WITH(with_odd_layouts(large), Catch::Contains("conv.forward src 64x32x32x32") &&
                                                 Catch::Contains("reference implementation"));
}

}  // namespace
}  // namespace convnet::conv_test
