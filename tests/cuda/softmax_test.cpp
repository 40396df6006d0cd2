#include <stdexcept>

#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("the CUDA backend refuses an image with part of its views", "[cuda]") {
  CHECK_THROWS_AS(make_cuda_backend(Precision::fp32)->prepare(AverageViews{5, 3, 2}, LayoutHints(2)),
                  std::logic_error);
}
