#include <algorithm>
#include <cmath>

#include "kernels/cuda/chunked.h"
#include "tests/catch.h"
#include "tests/cuda/chunks.h"
#include "tests/cuda/run_prepared.h"
#include "tests/rounding.h"

using namespace convnet;
using namespace convnet::test;

// The CPU's are not compared: their fused relu loses NaN.
TEST_CASE("convolutions of the CUDA backend keep NaN through relu", "[cuda][cudnn]") {
  const ConvGeometry g = conv(2, 16, 7, 5, 32, 3, 1, 1);
  Values src = test_values(g.src(), 1);
  src[0] = std::nan("");
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    const auto backend = make_cuda_backend(precision);
    for (const bool bias : {false, true}) {
      const ConvForward op{g, bias, false, true};
      const auto prepared = prepared_for_test(*backend, op, LayoutHints(arguments(op).size()));
      INFO(to_string(precision) << " " << prepared->algorithm());
      const Values dst = run_prepared(*backend, op, *prepared, {src}).back();
      CHECK(std::isnan(dst[0]));
      CHECK(std::isnan(dst[static_cast<std::size_t>(g.oh * g.ow + 1)]));  // beside it, in another map
      CHECK_FALSE(std::isnan(dst.back()));                                // of the other image
    }
  }
}

TEST_CASE("convolutions by matrix products in chunks of images", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  for (const ConvGeometry& g :
       {conv(5, 6, 5, 4, 4, 3, 1, 1, 2), conv(5, 8, 5, 4, 4, 3, 1, 1), conv(5, 8, 5, 4, 4, 1)}) {
    const std::int64_t one = g.oh * g.ow * g.c * g.filter.area() * size_of(DataType::f32);
    const auto terms = static_cast<double>(std::max(g.n * g.oh * g.ow, std::max(g.c, g.k) * g.filter.area()));
    const auto check = [&](const auto& op) {
      check_chunks(*backend, op, one, {0, 1, 2, 3}, rounding_of(terms));
    };
    check(ConvForward{g, true, true, true});
    check(ConvBackwardData{g});
    check(ConvBackwardWeights{g, true});
  }
  const ConvGeometry g = conv(5, 8, 5, 4, 4, 3, 1, 1);
  check_rounded_once(ConvBackwardWeights{g, true}, g.oh * g.ow * g.c * 9 * size_of(DataType::bf16),
                     {1, 2, 3});
}

TEST_CASE("convolutions read maps that must lie plain", "[cuda][cudnn]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const ConvGeometry g = conv(2, 8, 5, 4, 4, 1);
  const auto forward = prepared_for_test(*backend, ConvForward{g}, hints_for(ConvForward{g}, false));
  CHECK(forward->args()[0].plain());
  CHECK_FALSE(forward->args()[3].plain());
  CHECK(prepared_for_test(*backend, ConvBackwardData{g}, hints_for(ConvBackwardData{g}, false))
            ->args()[2]
            .plain());
}
