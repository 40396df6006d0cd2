#include "convnet/base/utf8.h"

#include <fmt/format.h>

#include <cstdint>

namespace convnet {

std::optional<char32_t> take_code_point(std::string_view& text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  const std::size_t length = lead < 0x80                   ? 1
                             : lead >= 0xC2 && lead < 0xE0 ? 2
                             : lead >= 0xE0 && lead < 0xF0 ? 3
                             : lead >= 0xF0 && lead < 0xF5 ? 4
                                                           : 0;
  char32_t code = length == 1 ? lead : lead & (0xFFU >> (length + 1));
  bool valid = length > 0 && length <= text.size();
  for (std::size_t i = 1; valid && i < length; ++i) {
    valid = (byte(i) & 0xC0) == 0x80;
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  valid = valid && !overlong && !surrogate && code <= 0x10FFFF;
  text.remove_prefix(valid ? length : 1);
  return valid ? std::optional(code) : std::nullopt;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    if (!take_code_point(text)) return false;
  }
  return true;
}

std::string escape_non_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::string_view before = text;
    const bool whole = take_code_point(text).has_value();
    const std::string_view taken = before.substr(0, before.size() - text.size());
    out += whole ? std::string(taken) : fmt::format("\\x{:02x}", static_cast<unsigned char>(taken[0]));
  }
  return out;
}

std::vector<std::string> escape_non_utf8(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (const std::string& text : texts) out.push_back(escape_non_utf8(text));
  return out;
}

std::size_t character_count(std::string_view text) {
  std::size_t count = 0;
  for (; !text.empty(); ++count) take_code_point(text);
  return count;
}

void append_utf8(std::string& out, char32_t code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace convnet
