#include <cmath>

#include "tests/catch.h"
#include "tests/cuda/run_prepared.h"

using namespace convnet;
using namespace convnet::test;

// The CPU's are not compared: their fused relu loses NaN.
TEST_CASE("inner products of the CUDA backend keep NaN through relu", "[cuda]") {
  const InnerProductGeometry g{2, 3, 3};
  Values src = test_values(g.src(), 1);
  src[0] = std::nan("");
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    const auto backend = make_cuda_backend(precision);
    for (const bool bias : {false, true}) {
      const InnerProductForward op{g, bias, false, true};
      const auto prepared = prepared_for_test(*backend, op, LayoutHints(arguments(op).size()));
      const Values dst = run_prepared(*backend, op, *prepared, {src}).back();
      INFO(to_string(precision));
      CHECK(std::isnan(dst[0]));
      CHECK_FALSE(std::isnan(dst[3]));  // the other image's
    }
  }
}
