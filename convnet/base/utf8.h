// Reads text from outside, which may not be valid UTF-8, character by character.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convnet {

/// Returns whether a byte is an ASCII character. (Whether a plain `char` is signed depends on the processor.)
constexpr bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

/// Removes the first character from `text`, which must not be empty, and returns its code point. Removes one
/// byte and returns nullopt if no well-formed sequence begins there. Overlong forms and surrogates are not
/// well-formed.
std::optional<char32_t> take_code_point(std::string_view& text);

/// Returns whether all of the text is well-formed.
bool is_utf8(std::string_view text);

/// Returns the text with each byte that belongs to no well-formed character as \xHH.
std::string escape_non_utf8(std::string_view text);
std::vector<std::string> escape_non_utf8(const std::vector<std::string>& texts);

/// Returns the number of characters, which is about the number of columns that a terminal needs. A byte that
/// belongs to no well-formed character counts as one.
std::size_t character_count(std::string_view text);

void append_utf8(std::string& out, char32_t code);

}  // namespace convnet
