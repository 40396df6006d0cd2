#include "convnet/show/text.h"

#include "tests/catch.h"

using namespace convnet;

TEST_CASE("UTF-8 is decoded, and what is none replaced byte by byte") {
  CHECK(code_points("a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80") == U"aä€😀");
  CHECK(code_points("\x80") == U"\uFFFD");
  CHECK(code_points("\xC3(") == U"\uFFFD(");
  CHECK(code_points("\xE2\x82") == U"\uFFFD\uFFFD");
  CHECK(code_points("\xC0\x80") == U"\uFFFD\uFFFD");            // overlong
  CHECK(code_points("\xE0\x80\x80") == U"\uFFFD\uFFFD\uFFFD");  // overlong
  CHECK(code_points("\xED\xA0\x80") == U"\uFFFD\uFFFD\uFFFD");  // surrogate
  CHECK(code_points("\xF4\x90\x80\x80").find_first_not_of(U'\uFFFD') == std::u32string::npos);
  CHECK(code_points("\xFF\xFE") == U"\uFFFD\uFFFD");
  CHECK(code_points(std::string("a\0b\x1B[31m\x7F", 9)) == U"a b [31m ");
  CHECK(code_points("").empty());
}

TEST_CASE("nothing of a text is markup after escaping") {
  CHECK(html_escape("<script>alert(\"1\")</script>") == "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;");
  CHECK(html_escape("' onload='x' & y") == "&#39; onload=&#39;x&#39; &amp; y");
  CHECK(html_escape("ä€\n") == "ä€\n");
  CHECK(html_escape("\xFF<\x01\xC3") == "\xEF\xBF\xBD&lt; \xEF\xBF\xBD");
  CHECK(html_escape("😀") == "😀");
}
