// Our own kernels for depthwise convolutions, and which kernels do which convolution.
#include "kernels/cuda/depthwise.h"

#include "tests/catch.h"
#include "tests/cuda/run_prepared.h"
#include "tests/kernels/op_runner.h"
#include "tests/kernels/values.h"

using namespace convnet;
using namespace convnet::test;

namespace {

ConvGeometry depthwise(std::int64_t n, std::int64_t maps, std::int64_t h, std::int64_t w, Sides filter,
                       Sides stride = 1, Sides pad = 0, Sides dilation = 1, bool floor = false) {
  return conv(n, maps, h, w, maps, filter, stride, pad, maps, floor, dilation);
}

}  // namespace

TEST_CASE("own kernels for depthwise convolutions agree with the CPU", "[cuda]") {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const auto backend = make_cuda_backend(precision);
    const double allowed = precision == Precision::bf16 ? 1e-2 : 1e-5;
    const auto check = [&](const auto& op) {
      INFO(op.name() << " " << to_string(op.g.src()) << " " << to_string(precision));
      const OpForm form = backend->target().form(op, LayoutHints(arguments(op).size()));
      const auto prepared = cuda::prepare_depthwise(op, form);
      CHECK(prepared->algorithm() == "depthwise:own");
      CHECK(prepared->workspace_bytes() <= form.workspace_bytes);
      const std::vector<Values> inputs = stored_inputs(op, *prepared);
      const Results actual = run_prepared(*backend, op, *prepared, inputs);
      const Results expected = run_plain(op, inputs);
      for (std::size_t i = 0; i < actual.size(); ++i)
        CHECK(relative_error(actual[i], expected[i]) <= allowed);
    };
    // Maps that vectors divide and that they do not, strips that are not full, every kind of border.
    for (const ConvGeometry& g :
         {depthwise(2, 16, 9, 11, 3, 1, 1), depthwise(3, 6, 5, 4, 3, 2, 1), depthwise(2, 24, 7, 7, 5, 2, 2),
          depthwise(1, 8, 6, 6, 5, 1, 4), depthwise(2, 8, 8, 9, 3, {2, 1}, {0, 1}),
          depthwise(2, 12, 9, 10, 3, 1, 2, 2), depthwise(2, 8, 9, 10, {3, 1}, 2, {2, 0}, {2, 1}),
          depthwise(2, 8, 12, 11, 3, 4, 0, 1, true), depthwise(40, 8, 6, 5, 3, 1, 1),
          with_zeros_behind(depthwise(2, 8, 5, 6, 3, 1, 1), 1)}) {
      check(ConvForward{g, false});
      check(ConvForward{g, true, false, true});
      check(ConvForward{g, true, true, true});
      check(ConvBackwardData{g});
      check(ConvBackwardWeights{g, true});
      check(ConvBackwardWeights{g, false});
    }
  }
}

TEST_CASE("depthwise convolutions keep NaN through relu", "[cuda]") {
  const ConvForward op{depthwise(1, 8, 5, 5, 3, 1, 1), true, false, true};
  const auto backend = make_cuda_backend(Precision::fp32);
  const auto prepared = cuda::prepare_depthwise(op, backend->target().form(op, LayoutHints(4)));
  Values src = test_values(op.g.src(), 1);
  src[0] = std::nan("");
  const Values dst = run_prepared(*backend, op, *prepared, {src}).back();
  CHECK(std::isnan(dst[0]));
  CHECK_FALSE(std::isnan(dst.back()));
}

#if defined(CONVNET_CUDA_EMULATED)
TEST_CASE("matrix products do the convolutions that nothing else can do") {
  const auto backend = make_cuda_backend(Precision::bf16);
  const auto algorithms = [&](const ConvGeometry& g, bool last) {
    const auto of = [&](const auto& op) {
      return prepared_for_test(*backend, op, hints_for(op, last))->algorithm();
    };
    return std::vector{of(ConvForward{g}), of(ConvBackwardData{g}), of(ConvBackwardWeights{g})};
  };
  const std::vector<std::string> own(3, "depthwise:own"), products(3, "im2col");
  CHECK(algorithms(depthwise(2, 8, 5, 5, 3), true) == own);
  CHECK(algorithms(depthwise(2, 8, 5, 5, 3), false) == products);
  CHECK(algorithms(conv(2, 8, 5, 5, 16, 3, 1, 1, 8), true) == products);
  CHECK(algorithms(conv(2, 8, 5, 5, 8, 3, 1, 1, 4), true) == products);
  CHECK(algorithms(conv(2, 1, 5, 5, 1, 3), true) == products);
}
#endif
