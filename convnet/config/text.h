// Small text helpers of the config code. Nothing here depends on the locale.
#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "convnet/base/names.h"

namespace convnet {

/// Returns the text with its ASCII letters in lower case.
inline std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = lower(c);
  return out;
}

inline bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Removes blanks and line breaks at both ends.
inline std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

/// Returns "0,1,3".
inline std::string number_list(const std::vector<int>& numbers) {
  std::string text;
  for (int n : numbers) text += (text.empty() ? "" : ",") + std::to_string(n);
  return text;
}

/// Parses the whole of `text` as a finite number of type T; nullopt if it is anything else or does not fit.
template <class T>
std::optional<T> to_number(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  T value{};
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (wrong != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>)
    if (!std::isfinite(value)) return std::nullopt;
  return value;
}

/// Returns the shortest decimal text that reads back as `value`, without an exponent for integers below 1e15.
inline std::string format_number(double value) {
  char buffer[32];
  const bool whole = std::abs(value) < 1e15 && std::trunc(value) == value;
  const auto format = whole ? std::chars_format::fixed : std::chars_format::general;
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr};
}

}  // namespace convnet
