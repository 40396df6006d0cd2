#include "convnet/base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>

#include "convnet/base/utf8.h"

namespace convnet {
namespace {

std::string hexadecimal(char c) { return fmt::format("\\x{:02x}", static_cast<unsigned char>(c)); }

}  // namespace

std::string replace_controls(std::string_view text, char instead) {
  std::string out(text);
  std::replace_if(out.begin(), out.end(), is_control, instead);
  return out;
}

std::string escape_controls(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (is_control(c))
      out += hexadecimal(c);
    else
      out += c;
  }
  return out;
}

std::string printable(std::string_view text, std::size_t most) {
  std::string out;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view before = rest;
    const std::optional<char32_t> code = take_code_point(rest);
    const std::string_view taken = before.substr(0, before.size() - rest.size());
    if (text.size() - rest.size() > most) return out + "…";
    // The second kind of control characters are those that Unicode adds to ASCII's.
    if (code && !is_control(taken[0]) && (*code < 0x80 || *code >= 0xA0)) {
      out += taken;
    } else {
      for (const char c : taken) out += hexadecimal(c);
    }
  }
  return out;
}

std::string excerpt(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string out(text.substr(0, longest));
  if (text.size() > longest) {
    // A cut UTF-8 sequence would garble the terminal: drop its first bytes too.
    std::size_t end = longest;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    out.resize(end);
    out += "...";
  }
  return "'" + replace_controls(out, ' ') + "'";
}

std::string shell_word(const std::string& path) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("_./=:,+@%-", c) != nullptr;
  };
  if (!path.empty() && std::all_of(path.begin(), path.end(), plain)) return path;
  std::string word = "'";
  for (const char c : path) {
    if (c == '\'')
      word += "'\\''";
    else
      word += c;
  }
  return word + "'";
}

}  // namespace convnet
