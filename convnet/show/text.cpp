#include "convnet/show/text.h"

#include "convnet/base/utf8.h"

namespace convnet {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

bool is_control(char32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0); }

}  // namespace

std::u32string code_points(std::string_view text) {
  std::u32string codes;
  while (!text.empty()) {
    const char32_t c = take_code_point(text).value_or(kReplacement);
    codes += is_control(c) ? U' ' : c;
  }
  return codes;
}

std::string html_escape(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const char32_t c = take_code_point(text).value_or(kReplacement);
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      case '\n': out += '\n'; break;
      default: append_utf8(out, is_control(c) ? U' ' : c);
    }
  }
  return out;
}

}  // namespace convnet
