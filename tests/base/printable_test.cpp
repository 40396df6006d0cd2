// Text from outside that goes to a terminal.
#include "convnet/base/printable.h"

#include "tests/catch.h"

namespace convnet {

TEST_CASE("excerpts are short and harmless") {
  CHECK(excerpt("a\nb\x1b[31m") == "'a b [31m'");
  CHECK(excerpt(std::string(60, 'x')) == "'" + std::string(60, 'x') + "'");
  CHECK(excerpt(std::string(61, 'x')) == "'" + std::string(60, 'x') + "...'");
  CHECK(excerpt(std::string(59, 'x') + "\xC3\xA9 and more") == "'" + std::string(59, 'x') + "...'");
}

TEST_CASE("control characters are replaced or escaped; all else stays") {
  CHECK(replace_controls("a\nb\x7F\xC3\xA9", '?') == "a?b?\xC3\xA9");
  CHECK(escape_controls("a\nb\x7F\xC3\xA9") == "a\\x0ab\\x7f\xC3\xA9");
}

TEST_CASE("a piece of a file is printed with letters of all languages, up to a length") {
  CHECK(printable("a\nb\xC3\xA9~\x7F") == "a\\x0ab\xC3\xA9~\\x7f");
  CHECK(printable("caf\xE9\xC2\x9B") ==
        "caf\\xe9\\xc2\\x9b");  // Latin-1, and a control sequence of one character
  CHECK(printable("\xC3\xA9\xC3\xA9", 3) == "\xC3\xA9…");
  CHECK(printable(std::string(60, 'x')) == std::string(60, 'x'));
  CHECK(printable(std::string(61, 'x')) == std::string(60, 'x') + "…");
  CHECK(printable("abc", 2) == "ab…");
}

}  // namespace convnet
