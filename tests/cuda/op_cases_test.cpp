// Every case of the table that the tests of all backends share, on both backends.
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet::test;

namespace {

void check_all(const std::vector<OpCase>& cases) {
  for (const OpCase& c : cases) check_on_both(c);
}

}  // namespace

TEST_CASE("products on both backends", "[cuda]") { check_all(product_cases()); }
TEST_CASE("pooling on both backends", "[cuda]") { check_all(pooling_cases()); }
TEST_CASE("norms on both backends", "[cuda]") { check_all(norm_cases()); }
TEST_CASE("element-wise operations on both backends", "[cuda]") { check_all(elementwise_cases()); }
TEST_CASE("operations on images on both backends", "[cuda]") { check_all(image_cases()); }
TEST_CASE("costs on both backends", "[cuda]") { check_all(cost_cases()); }
TEST_CASE("loads, copies and sums on both backends", "[cuda]") { check_all(memory_cases()); }
TEST_CASE("updates on both backends", "[cuda]") { check_all(update_cases()); }
