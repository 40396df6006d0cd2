#include "kernels/bf16.h"

#include <cmath>
#include <limits>

#include "convnet/base/error.h"
#include "kernels/cpu/onednn.h"
#include "tests/catch.h"
#include "tests/kernels/dnn_reference.h"
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

}  // namespace

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
    g.n = 2, g.c = channels, g.h = 9, g.w = 7, g.k = 24, g.filter = 3, g.stride = 1, g.pad = 1;
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

}  // namespace convnet
