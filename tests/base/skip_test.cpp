// Hidden cases, which tests/base/skip_test.py runs through ctest.
#include "tests/catch.h"

using namespace convnet;

TEST_CASE("skips", "[.]") { return test::skip("to see that ctest reports it"); }

TEST_CASE("checks and skips", "[.]") {
  CHECK(true);
  return test::skip("too late");
}

TEST_CASE("fails and skips", "[.]") {
  CHECK(false);
  return test::skip("too late");
}

TEST_CASE("passes", "[.]") { CHECK(true); }

TEST_CASE("fails", "[.]") { CHECK(false); }
