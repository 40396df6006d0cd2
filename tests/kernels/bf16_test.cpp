#include "kernels/bf16.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "convnet/base/error.h"
#include "kernels/cpu/onednn.h"
#include "tests/catch.h"
#include "tests/kernels/dnn_reference.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_runner.h"

namespace convnet {
namespace {

using test::Values;

/// Products of numbers with 8 bits of mantissa, relative to the largest result.
constexpr double kBf16Tolerance = 1e-2;

float rounded(float v) { return to_float(to_bf16(v)); }

bool can_imitate() {
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) &
          static_cast<unsigned>(dnnl::cpu_isa::avx512_core)) ==
         static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
}

template <class Op>
void check(const Op& op, const std::vector<Values>& inputs, std::size_t which, const Values& expected,
           std::vector<DataType> types) {
  const auto prepared = cpu::prepare(op, LayoutHints(inputs.size()), DataType::bf16);
  INFO(op_name(op) << " by " << prepared->algorithm());
  for (std::size_t i = 0; i < types.size(); ++i) CHECK(prepared->args()[i].type == types[i]);
  CHECK(test::relative_error(test::run_plain(OpDesc(op), *prepared, inputs)[which], expected) <=
        kBf16Tolerance);
}

/// Operations that compute with activations of bf16 as they are stored.
const std::set<std::string> kKeepBf16 = {"accumulate",
                                         "bias.backward",
                                         "bias.forward",
                                         "blur",
                                         "bnorm.backward_data",
                                         "bnorm.backward_data+relu",
                                         "bnorm.backward_data+sum",
                                         "bnorm.backward_data+sum+relu",
                                         "bnorm.backward_weights",
                                         "bnorm.backward_weights+relu",
                                         "bnorm.forward",
                                         "bnorm.forward+relu",
                                         "bnorm.forward+sum",
                                         "bnorm.forward+sum+relu",
                                         "bnorm.moments",
                                         "cmpool.backward",
                                         "cmpool.forward",
                                         "cmrnorm.backward",
                                         "cmrnorm.forward",
                                         "cnorm.backward",
                                         "cnorm.forward",
                                         "concat",
                                         "dropout",
                                         "eltmax.backward",
                                         "eltmax.forward",
                                         "eltmul",
                                         "eltmul.maps",
                                         "eltmul.sums",
                                         "eltsum",
                                         "neuron.backward",
                                         "neuron.forward",
                                         "nrelu.forward",
                                         "pool.backward",
                                         "pool.forward",
                                         "pool.forward+relu",
                                         "resize",
                                         "rgb2lab",
                                         "rgb2yuv",
                                         "rnorm.backward",
                                         "rnorm.forward",
                                         "rscale",
                                         "sample.backward",
                                         "sample.forward",
                                         "scale",
                                         "split",
                                         "sum.backward",
                                         "sum.forward"};

/// Returns hints that the activations of `op` are stored as `type`, in blocks of `block` channels.
LayoutHints hints_of(const OpDesc& op, int block, DataType type) {
  LayoutHints hints;
  for (const Argument& arg : arguments(op)) {
    hints.emplace_back();
    if (arg.type != DataType::f32 || (arg.dims.size() != 2 && arg.dims.size() != 4)) continue;
    hints.back() = arg.dims.size() == 4 && block > 1 ? cpu::blocked_activations(arg.dims, block, type)
                                                     : TensorDesc{arg.dims, type, nullptr};
  }
  return hints;
}

/// Returns whether an argument is stored as bf16 that could also be f32.
bool keeps_bf16(const OpDesc& op, const PreparedOp& prepared) {
  const std::vector<Argument> args = arguments(op);
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i].type == DataType::f32 && prepared.args()[i].type == DataType::bf16) return true;
  }
  return false;
}

/// The inputs of a case, rounded where they may be stored as bf16.
std::vector<Values> inputs_of(const test::OpCase& c) {
  const std::vector<Argument> args = arguments(c.op);
  std::vector<Values> inputs;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const DataType type = args[i].type;
    if (i < c.raw.size() && !c.raw[i].empty())
      inputs.push_back(test::unpacked(c.raw[i], type));
    else if (args[i].access == Access::write)
      inputs.emplace_back();
    else if (i < c.inputs.size() && !c.inputs[i].empty())
      inputs.push_back(c.inputs[i]);
    else
      inputs.push_back(test::test_values(args[i].dims, static_cast<std::uint32_t>(i + 1)));
    if (type != DataType::f32) continue;
    for (double& v : inputs.back()) v = static_cast<double>(rounded(static_cast<float>(v)));
  }
  return inputs;
}

}  // namespace

TEST_CASE("own operations keep activations of bf16, and compute what they do with f32") {
  std::set<std::string> kept;
  for (const test::OpCase& c : test::op_cases()) {
    for (const int block : {1, 8, 16}) {
      if (std::holds_alternative<Reorder>(c.op) || std::holds_alternative<FillZero>(c.op)) continue;
      const cpu::Prepared stored = cpu::prepare(c.op, hints_of(c.op, block, DataType::bf16));
      if (!keeps_bf16(c.op, *stored)) continue;
      INFO(op_name(c.op) << " of " << to_string(stored->args()[0].dims) << " in blocks of " << block);
      kept.insert(op_name(c.op));
      const std::vector<Values> inputs = inputs_of(c);
      const test::Results expected =
          test::run_plain(c.op, *cpu::prepare(c.op, hints_of(c.op, block, DataType::f32)), inputs);
      const test::Results actual = test::run_plain(c.op, *stored, inputs);
      const std::vector<Argument> args = arguments(c.op);
      for (std::size_t i = 0; i < args.size(); ++i) {
        if (args[i].access == Access::read) continue;
        INFO(args[i].name);
        CHECK(test::relative_error(actual[i], expected[i]) <= 1.0 / 256);  // half of a last bit, and sums
      }
    }
  }
  CHECK(kept == kKeepBf16);
}

TEST_CASE("images are loaded as the type of products") {
  for (const test::OpCase& c : test::op_cases()) {
    const auto* load = std::get_if<LoadImages>(&c.op);
    if (load == nullptr) continue;
    const std::vector<std::optional<TensorDesc>> hints(arguments(c.op).size());
    const cpu::Prepared stored = cpu::prepare(c.op, hints, DataType::bf16);
    CHECK(stored->args().back().type == (load->dims.size() == 4 ? DataType::bf16 : DataType::f32));
    std::vector<Values> inputs = inputs_of(c);
    if (load->source == DataType::u8 && c.raw.empty())
      for (double& v : inputs[0]) v = std::floor(std::abs(v) * 255);
    const Values expected = test::run_plain(c.op, *cpu::prepare(c.op, hints), inputs).back();
    const Values actual = test::run_plain(c.op, *stored, inputs).back();
    REQUIRE(actual.size() == expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const auto wanted = static_cast<float>(expected[i]);
      if (actual[i] != static_cast<double>(load->dims.size() == 4 ? rounded(wanted) : wanted))
        FAIL(op_name(c.op) << " gives " << actual[i] << " instead of " << wanted);
    }
  }
}

TEST_CASE("bf16 rounds to the nearest number, ties to even") {
  CHECK(rounded(1.0F) == 1.0F);
  CHECK(rounded(-0.0F) == 0.0F);
  CHECK(std::signbit(rounded(-0.0F)));
  CHECK(rounded(1.0F + 1.0F / 128) == 1.0F + 1.0F / 128);
  CHECK(rounded(1.0F + 1.0F / 256) == 1.0F);
  CHECK(rounded(1.0F + 3.0F / 256) == 1.0F + 4.0F / 256);
  CHECK(rounded(1.0F + 1.1F / 256) == 1.0F + 1.0F / 128);
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(rounded(infinity) == infinity);
  CHECK(rounded(-infinity) == -infinity);
  CHECK(rounded(std::numeric_limits<float>::max()) == infinity);
  CHECK(std::isnan(rounded(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(rounded(-std::numeric_limits<float>::signaling_NaN())));
  CHECK(rounded(std::numeric_limits<float>::denorm_min()) == 0.0F);
}

TEST_CASE("tensors of bf16 are converted and laid out like those of f32") {
  const TensorDesc wide{{2, 19, 3, 5}, DataType::f32, nullptr};
  const TensorDesc blocked = cpu::blocked_activations(wide.dims, 16, DataType::bf16);
  CHECK(with_type(blocked, DataType::f32).layout->equals(*cpu::blocked_activations(wide.dims, 16).layout));
  CHECK_FALSE(same_layout(blocked, with_type(blocked, DataType::f32)));
  const Values values = test::test_values(wide.dims, 7);
  const auto there = test::reordered(test::packed(values, DataType::f32), wide, blocked);
  const auto back = test::unpacked(test::reordered(there, blocked, wide), DataType::f32);
  for (std::size_t i = 0; i < values.size(); ++i)
    CHECK(back[i] == static_cast<double>(rounded(static_cast<float>(values[i]))));
}

TEST_CASE("convolutions and inner products take bf16 factors, and give f32 gradients of weights") {
  if (!can_imitate()) return test::skip("this processor has no AVX-512");
  const DataType f = DataType::f32, b = DataType::bf16;
  for (const std::int64_t channels : {3, 16, 40}) {
    ConvGeometry g;
    g.n = 2, g.c = channels, g.h = 9, g.w = 7, g.k = 24, g.filter = 5, g.stride = 1, g.pad = 2;
    g.oh = g.h, g.ow = g.w;
    const Values src = test::test_values(g.src(), 1), weights = test::test_values(g.weights(), 2),
                 bias = test::test_values(g.k, 3), diff_dst = test::test_values(g.dst(), 4);
    Values expected = test::reference_forward(g, src, weights);
    test::add_bias(expected, g.dst(), bias);
    check(ConvForward{g, true, false, false}, {src, weights, bias, {}}, 3, expected, {b, b, f, b});
    check(ConvBackwardData{g}, {diff_dst, weights, {}}, 2,
          test::reference_backward_data(g, diff_dst, weights), {b, b, b});
    check(ConvBackwardWeights{g, false}, {src, diff_dst, {}}, 2,
          test::reference_backward_weights(g, src, diff_dst), {b, b, f});
  }
}

TEST_CASE("depthwise convolutions give f32 gradients of weights for bf16 factors") {
  if (!can_imitate()) return test::skip("this processor has no AVX-512");
  for (const std::int64_t filter : {3, 5, 7}) {
    for (const std::int64_t stride : {1, 2}) {
      const ConvGeometry g = test::conv(9, 40, 9, 7, 40, filter, stride, filter / 2, 40);
      const Values src = test::test_values(g.src(), 1), diff_dst = test::test_values(g.dst(), 4);
      check(ConvBackwardWeights{g, false}, {src, diff_dst, {}}, 2,
            test::reference_backward_weights(g, src, diff_dst),
            {DataType::bf16, DataType::bf16, DataType::f32});
    }
  }
}

// oneDNN 2.6 does not write some gradients of bf16 weights in convolutions that it computes as they are
// given.
TEST_CASE("strided convolutions of images smaller than their filters write every gradient") {
  if (!can_imitate()) return test::skip("this processor has no AVX-512");
  const DataType f = DataType::f32, b = DataType::bf16;
  for (const std::int64_t filter : {3, 4, 5, 7}) {
    for (const std::int64_t stride : {1, 2, 3, 4}) {
      for (std::int64_t pad = 0; pad < filter; ++pad) {
        for (std::int64_t h = 1; h <= 3; ++h) {
          for (std::int64_t w = 1; w <= 3; ++w) {
            if (std::min(h, w) + 2 * pad < filter) continue;
            const std::int64_t groups = 1 + pad % 2;
            const ConvGeometry g = test::conv(2, 16 * groups, h, w, 32, filter, stride, pad, groups);
            INFO(to_string(g.src()) << " filter " << filter << " stride " << stride << " pad " << pad);
            const Values src = test::test_values(g.src(), 1), weights = test::test_values(g.weights(), 2),
                         diff_dst = test::test_values(g.dst(), 4);
            check(ConvForward{g, false, false, false}, {src, weights, {}}, 2,
                  test::reference_forward(g, src, weights), {b, b, b});
            check(ConvBackwardData{g}, {diff_dst, weights, {}}, 2,
                  test::reference_backward_data(g, diff_dst, weights), {b, b, b});
            check(ConvBackwardWeights{g, false}, {src, diff_dst, {}}, 2,
                  test::reference_backward_weights(g, src, diff_dst), {b, b, f});
          }
        }
      }
    }
  }
}

}  // namespace convnet
