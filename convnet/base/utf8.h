// UTF-8 text from outside, which may be anything: its characters, one after the other.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace convnet {

/// Takes the character that `text`, which is not empty, begins with and returns its code point; nullopt for a
/// byte that begins no well-formed sequence, which is taken alone. Overlong forms and surrogates are not
/// well-formed.
std::optional<char32_t> take_code_point(std::string_view& text);

/// Returns whether all of the text is well-formed.
bool is_utf8(std::string_view text);

/// Number of characters, about the columns that a terminal needs; each byte that belongs to none counts.
std::size_t character_count(std::string_view text);

void append_utf8(std::string& out, char32_t code);

}  // namespace convnet
