#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("an update of the CUDA backend refuses more gradients than one launch takes", "[cuda]") {
  const auto cuda = make_cuda_backend(Precision::fp32);
  CHECK_THROWS_AS(cuda->prepare(Update{{{10, 8, 0, 193}}}, LayoutHints(198)), DeviceError);
}
