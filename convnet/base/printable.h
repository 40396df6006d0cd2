// Makes text from outside fit for output: names and pieces of files may hold control characters, which would
// control the terminal, and may be long.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace convnet {

/// Returns whether a byte is an ASCII control character.
constexpr bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }

/// Returns the text with `instead` in place of each control character.
std::string replace_controls(std::string_view text, char instead);

/// Returns the text with control characters, line ends among them, as \xHH.
std::string escape_controls(std::string_view text);

/// Formats a name or a piece of a file for a message: at most `most` bytes. Letters of all languages stay;
/// control characters and bytes that are no UTF-8 become \xHH.
std::string printable(std::string_view text, std::size_t most = 60);

/// Formats user text for a message: in quotes, with blanks for control characters, cut off after some 60
/// bytes.
std::string excerpt(std::string_view text);

/// Returns a path as a word of a shell's command line, in quotes if it needs them.
std::string shell_word(const std::string& path);

}  // namespace convnet
