#include <cmath>

#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("softmax on both backends", "[cuda]") {
  for (const std::int64_t n : {0, 1, 37})
    for (const std::int64_t c : {1, 2, 10, 33, 1000}) {
      Values x = test_values({n, c}, 1);
      for (double& v : x) v *= 8;
      check_on_both({SoftmaxForward{n, c}, {x}});
      for (double& v : x) v = std::abs(v) / 8;
      check_on_both({SoftmaxBackward{n, c}, {x}});
    }
}

TEST_CASE("softmax of large values and of none on both backends", "[cuda]") {
  // Each of two rows: an outlier shows in its own.
  for (const double bad : Values{1e30, -1e30, NAN, INFINITY, -INFINITY}) {
    check_on_both({SoftmaxForward{3, 2}, {{bad, 1, 500, 500, 2, bad}}});
    check_on_both({SoftmaxForward{2, 2}, {{bad, bad, 1, 2}}});
    check_on_both({SoftmaxBackward{2, 2}, {{0.5, 0.5, 0.25, 0.75}, {bad, 1, 1, 2}}});
  }
}

TEST_CASE("softmax averages the views of an image on both backends", "[cuda]") {
  for (const std::int64_t views : {2, 9}) check_on_both({SoftmaxForward{4 * views, 11, views}});
  CHECK_THROWS_AS(make_cuda_backend(Precision::fp32)->prepare(SoftmaxForward{5, 3, 2}, LayoutHints(2)),
                  std::logic_error);
}
