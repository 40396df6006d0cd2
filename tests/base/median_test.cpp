// The median and other quantiles of measured numbers.
#include "convnet/base/median.h"

#include "tests/catch.h"

namespace convnet {

TEST_CASE("the median is the value in the middle, or the mean of two") {
  CHECK(median({}) == 0);
  CHECK(median({3}) == 3);
  CHECK(median({5, 1, 3}) == 3);
  CHECK(median({8, 1, 2, 4}) == 3);
}

TEST_CASE("a quantile is a value that a share of the values does not exceed") {
  CHECK(quantile({}, 0.5) == 0);
  CHECK(quantile({3}, 0.95) == 3);
  CHECK(quantile({4, 1, 3, 2}, 0) == 1);
  CHECK(quantile({4, 1, 3, 2}, 0.5) == 2);
  CHECK(quantile({4, 1, 3, 2}, 0.51) == 3);
  CHECK(quantile({4, 1, 3, 2}, 1) == 4);
}

}  // namespace convnet
