#include "convnet/data/pixel_sums.h"

#include "tests/catch.h"

using namespace convnet;

TEST_CASE("the mean image is by colour, row and column", "[pixel_sums]") {
  PixelSums sums(2);
  sums.add({2, 2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}});
  sums.add({2, 2, {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 255}});
  CHECK(sums.images == 2);
  CHECK(sums.colors.pixels == 8);
  CHECK(sums.mean_image() == std::vector<float>{2, 5, 8, 11, 3, 6, 9, 12, 4, 7, 10, 133.5F});
}
