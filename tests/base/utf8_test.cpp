// UTF-8 text, well-formed or not.
#include "convnet/base/utf8.h"

#include "tests/catch.h"

namespace convnet {

TEST_CASE("UTF-8: characters of one to four bytes, and bytes that belong to none") {
  CHECK(is_utf8(""));
  CHECK(is_utf8("a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80"));
  CHECK(character_count("a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80") == 4);
  // Alone, cut off, overlong, a surrogate, beyond the last code point.
  for (const char* const wrong :
       {"\x80", "a\xC3", "\xC3(", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF"}) {
    INFO(wrong);
    CHECK_FALSE(is_utf8(wrong));
  }
  CHECK(character_count("\xFF\xFF") == 2);
  std::string text;
  for (const char32_t code : {U'a', U'\u00E4', U'\u20AC', U'\U0001F600'}) append_utf8(text, code);
  CHECK(text == "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80");
}

TEST_CASE("UTF-8: bytes that belong to no character are escaped") {
  CHECK(escape_non_utf8("") == "");
  CHECK(escape_non_utf8("a\n\xC3\xA4") == "a\n\xC3\xA4");
  CHECK(escape_non_utf8("caf\xE9 \xC3\xA4\xC3") == "caf\\xe9 \xC3\xA4\\xc3");
}

}  // namespace convnet
