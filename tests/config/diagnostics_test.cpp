#include "convnet/config/diagnostics.h"

#include "convnet/base/printable.h"
#include "convnet/config/text.h"
#include "tests/catch.h"

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
    CHECK(std::string(error.what()) == "a.cfg:1: warning: odd\na.cfg:3: wrong\nwrong option");
  }
}

TEST_CASE("equal lines are collected once", "[diagnostics]") {
  Diagnostics diagnostics;
  for (const int line : {1, 2, 1}) {
    diagnostics.warning(at("a.cfg", line), "odd");
    diagnostics.error(at("a.cfg", line), "wrong");
  }
  CHECK(diagnostics.warnings() == std::vector<std::string>{"a.cfg:1: warning: odd", "a.cfg:2: warning: odd"});
  CHECK(diagnostics.errors() == std::vector<std::string>{"a.cfg:1: wrong", "a.cfg:2: wrong"});
}

TEST_CASE("warnings with a place are printed beside errors, in the order of lines", "[diagnostics]") {
  Diagnostics diagnostics;
  diagnostics.note("Note: a file is read");
  diagnostics.warning(at("b.cfg", 2), "odd");
  diagnostics.warning(at("a.cfg", 9), "later");
  diagnostics.warning(at("a.cfg", 4), "between");
  diagnostics.error(at("a.cfg", 5), "wrong");
  diagnostics.error(at("a.cfg", 3), "wrong, too");
  try {
    diagnostics.throw_if_errors();
    FAIL("no exception");
  } catch (const InputError& error) {
    CHECK(std::string(error.what()) ==
          "a.cfg:3: wrong, too\na.cfg:4: warning: between\na.cfg:5: wrong\na.cfg:9: warning: later\n"
          "b.cfg:2: warning: odd");
  }
}

TEST_CASE("a flood of messages is cut", "[diagnostics]") {
  Diagnostics diagnostics;
  for (std::size_t i = 0; i < 3 * Diagnostics::max_messages; ++i)
    diagnostics.error({}, "wrong " + std::to_string(i));
  REQUIRE(diagnostics.errors().size() == Diagnostics::max_messages + 1);
  CHECK(diagnostics.errors().back() == "more follow, which are not shown");
}

TEST_CASE("excerpts are short and harmless", "[diagnostics]") {
  CHECK(excerpt("a\nb\x1b[31m") == "'a b [31m'");
  CHECK(excerpt(std::string(60, 'x')) == "'" + std::string(60, 'x') + "'");
  CHECK(excerpt(std::string(61, 'x')) == "'" + std::string(60, 'x') + "...'");
  CHECK(excerpt(std::string(59, 'x') + "\xC3\xA9 and more") == "'" + std::string(59, 'x') + "...'");
}

TEST_CASE("numbers are written plainly and read back", "[diagnostics]") {
  CHECK(format_number(4096) == "4096");
  CHECK(format_number(100000) == "100000");
  CHECK(format_number(-1) == "-1");
  CHECK(format_number(0.001) == "0.001");
  for (const double value : {0.1, 1e-5, 1e300, 123456.789, 1.0 / 3})
    CHECK(to_number<double>(format_number(value)) == value);
}
