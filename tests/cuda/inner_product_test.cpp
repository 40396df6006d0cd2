#include <cmath>

#include "tests/catch.h"
#include "tests/cuda/run_prepared.h"

using namespace convnet;
using namespace convnet::test;

namespace {

void check_all(const InnerProductGeometry& g) {
  for (const bool bias : {false, true}) {
    for (const bool accumulate : {false, true})
      for (const bool relu : {false, true}) check_on_both({InnerProductForward{g, bias, accumulate, relu}});
    check_on_both({InnerProductBackwardWeights{g, bias}});
  }
  check_on_both({InnerProductBackwardData{g}});
}

}  // namespace

TEST_CASE("inner products on both backends", "[cuda]") {
  check_all({1, 1, 1});
  check_all({3, 5, 7});
  check_all({1, 64, 10});
  check_all({5, 130, 67});
  check_all({128, 20, 10});  // bias sums in pieces
  check_all({37, 6, 1});
}

TEST_CASE("inner products in parts on both backends", "[cuda]") {
  check_all({1, 1, 1, 1});
  check_all({3, 5, 7, 1});
  check_all({4, 5, 3, 6});
  check_all({33, 40, 17, 3});
}

TEST_CASE("inner products of no images on both backends", "[cuda]") {
  for (const std::int64_t parts : {0, 3}) check_all({0, 5, 7, parts});
}

// The CPU's are not compared: their fused relu loses NaN.
TEST_CASE("inner products of the CUDA backend keep NaN through relu", "[cuda]") {
  const InnerProductGeometry g{2, 3, 3};
  Values src = test_values(g.src(), 1);
  src[0] = std::nan("");
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    const auto backend = make_cuda_backend(precision);
    for (const bool bias : {false, true}) {
      const InnerProductForward op{g, bias, false, true};
      const auto prepared = backend->prepare(op, LayoutHints(arguments(op).size()));
      const Values dst = run_prepared(*backend, op, *prepared, {src}).back();
      INFO(to_string(precision));
      CHECK(std::isnan(dst[0]));
      CHECK_FALSE(std::isnan(dst[3]));  // the other image's
    }
  }
}

TEST_CASE("inner products in parts keep NaN through relu on both backends", "[cuda]") {
  const InnerProductGeometry g{2, 3, 3, 2};
  Values src = test_values(g.src(), 1);
  src[0] = std::nan("");
  check_on_both({InnerProductForward{g, true, false, true}, {src}});
}
