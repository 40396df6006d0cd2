#include <cmath>

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("the CUDA backend says what batch norm it has not", "[cuda]") {
  const auto cuda = make_cuda_backend(Precision::fp32);
  CHECK_THROWS_AS(prepared_for_test(*cuda, BatchNormMoments{{2, 3, 4}}, {}), std::logic_error);
}
