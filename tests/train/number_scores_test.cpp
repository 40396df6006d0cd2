// Errors and R^2 of numbers.
#include "convnet/net/number_scores.h"

#include <cmath>

#include "tests/catch.h"

namespace convnet {
namespace {

TEST_CASE("errors and R^2 of numbers are those of their formulas", "[numbers]") {
  NumberScores scores({"age", "height"});
  scores.add(std::vector<float>{1, 5}, std::vector<float>{2, 7});
  scores.add(std::vector<float>{4, 5}, std::vector<float>{4, 7});
  scores.add(std::vector<float>{9, 5}, std::vector<float>{6, 7});
  CHECK(scores.images() == 3);
  const std::vector<NumberScore> numbers = scores.by_number();
  REQUIRE(numbers.size() == 2);
  CHECK(numbers[0].root_mean_squared_error == Approx(std::sqrt(10.0 / 3)));
  CHECK(numbers[0].mean_absolute_error == Approx(4.0 / 3));
  CHECK(numbers[0].r2.value() == Approx(1 - 10.0 / 8));
  CHECK(numbers[1].root_mean_squared_error == Approx(2));
  CHECK_FALSE(numbers[1].r2);  // all targets are equal
  const NumberScore all = NumberScores::means(numbers);
  CHECK(all.root_mean_squared_error == Approx(std::sqrt((10.0 / 3 + 4) / 2)));
  CHECK(all.mean_absolute_error == Approx((4.0 / 3 + 2) / 2));
  CHECK(all.r2.value() == Approx(1 - 10.0 / 8));
  const std::string table = scores.table(1);
  INFO(table);
  CHECK(table.find("  age  ") != std::string::npos);
  CHECK(table.find("  and 1 more numbers; --json 1 has all\n") != std::string::npos);
  CHECK(table.find("  all  ") != std::string::npos);
  CHECK(NumberScores({"a"}).table(9).find(" -\n") != std::string::npos);
}

TEST_CASE("R^2 of large numbers that are near each other keeps its digits", "[numbers]") {
  NumberScores scores({"year"});
  for (int i = 0; i < 1000; ++i) {
    const auto year = static_cast<float>(2000000 + i % 10);
    scores.add(std::vector<float>{year + 1}, std::vector<float>{year});
  }
  CHECK(scores.by_number()[0].r2.value() == Approx(1 - 1 / 8.25));
}

}  // namespace
}  // namespace convnet
