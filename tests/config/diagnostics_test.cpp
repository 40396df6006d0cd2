#include "convnet/config/diagnostics.h"

#include "tests/catch.h"

#include "convnet/config/text.h"

using namespace convnet;

namespace {
SourceLocation at(const char* file, int line) { return {std::make_shared<const std::string>(file), line}; }
}  // namespace

TEST_CASE("a location prints as file:line", "[diagnostics]") {
  CHECK(at("configs/x.cfg", 41).str() == "configs/x.cfg:41");
  CHECK(at("configs/x.cfg", 0).str() == "configs/x.cfg");
  CHECK(SourceLocation{}.str().empty());
}

TEST_CASE("errors and warnings are collected with their places", "[diagnostics]") {
  Diagnostics diagnostics;
  diagnostics.warning(at("a.cfg", 1), "odd");
  diagnostics.warning({}, "odd option");
  CHECK_FALSE(diagnostics.has_errors());
  CHECK_NOTHROW(diagnostics.throw_if_errors());
  diagnostics.error(at("a.cfg", 3), "wrong");
  diagnostics.error({}, "wrong option");
  CHECK(diagnostics.has_errors());
  CHECK(diagnostics.warnings() == std::vector<std::string>{"a.cfg:1: warning: odd", "warning: odd option"});
  CHECK(diagnostics.errors() == std::vector<std::string>{"a.cfg:3: wrong", "wrong option"});
  try {
    diagnostics.throw_if_errors();
    FAIL("no exception");
  } catch (const InputError& error) {
    CHECK(std::string(error.what()) == "a.cfg:3: wrong\nwrong option");
  }
}

TEST_CASE("a flood of messages is cut", "[diagnostics]") {
  Diagnostics diagnostics;
  for (std::size_t i = 0; i < 3 * Diagnostics::max_messages; ++i) diagnostics.error({}, "wrong");
  REQUIRE(diagnostics.errors().size() == Diagnostics::max_messages + 1);
  CHECK(diagnostics.errors().back() == "more follow, which are not shown");
}

TEST_CASE("nearest finds the closest candidate", "[diagnostics]") {
  const std::vector<std::string> keys = {"filters", "filterSize", "stride", "padding"};
  CHECK(nearest("fliterSize", keys) == "filterSize");
  CHECK(nearest("stirde", keys) == "stride");
  CHECK(nearest("STRIDES", keys) == "stride");
  CHECK(nearest("padding", keys) == "padding");
  CHECK(nearest("pad", keys) == "");
  CHECK(nearest("stirde", keys, 1) == "stride");
  CHECK(nearest("strat", {"start"}, 1) == "start");
  CHECK(nearest("kepe", {"keep"}, 1) == "keep");
  CHECK(nearest("ab", {"ba"}, 1) == "ba");
  CHECK(nearest("stidre", keys, 1) == "");
  CHECK(nearest("tsirde", keys) == "stride");
  CHECK(nearest("tsirde", keys, 1) == "");
  CHECK(nearest("strde", keys, 1) == "stride");
  CHECK(nearest("stride", keys, 0) == "stride");
  CHECK(nearest("", keys) == "");
  CHECK(nearest("x", {}) == "");
  CHECK(nearest("bat", {"cat", "rat", "bat"}) == "bat");
  CHECK(nearest("hat", {"cat", "rat"}) == "cat");
  CHECK(nearest(std::string(100000, 'a'), keys) == "");
}

TEST_CASE("short words have fewer typing mistakes", "[diagnostics]") {
  CHECK(typing_edits("steps") == 1);
  CHECK(typing_edits("stride") == 2);
}

TEST_CASE("join", "[diagnostics]") {
  CHECK(join({}) == "");
  CHECK(join({"a"}) == "a");
  CHECK(join({"a", "b", "c"}) == "a, b, c");
  CHECK(join({"a", "b"}, "\n") == "a\nb");
}

TEST_CASE("numbers are written plainly and read back", "[diagnostics]") {
  CHECK(format_number(4096) == "4096");
  CHECK(format_number(100000) == "100000");
  CHECK(format_number(-1) == "-1");
  CHECK(format_number(0.001) == "0.001");
  for (const double value : {0.1, 1e-5, 1e300, 123456.789, 1.0 / 3})
    CHECK(to_number<double>(format_number(value)) == value);
}
