// The median of measured numbers.
#include "convnet/base/median.h"

#include "tests/catch.h"

namespace convnet {

TEST_CASE("the median is the value in the middle, or the mean of two") {
  CHECK(median({}) == 0);
  CHECK(median({3}) == 3);
  CHECK(median({5, 1, 3}) == 3);
  CHECK(median({8, 1, 2, 4}) == 3);
}

}  // namespace convnet
