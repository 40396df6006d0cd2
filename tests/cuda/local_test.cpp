
#include "tests/catch.h"
#include "tests/cuda/chunks.h"
#include "tests/rounding.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("local of the CUDA backend in chunks of positions", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const LocalGeometry g = local({3, 6, 5, 4}, 4, 3, 1, 1, 2);
  const std::int64_t one = g.n * (g.c * 9 + g.k) * size_of(DataType::f32);
  const auto check = [&](const auto& op) {
    check_chunks(*backend, op, one, {0, 1, 3, 7, 20}, rounding_of(6 * 3 * 3));
  };
  check(LocalForward{g, true, true, true});
  check(LocalBackwardData{g});
  check(LocalBackwardWeights{g, true});
  check_rounded_once(LocalBackwardData{g}, one, {1, 3, 7});
}
