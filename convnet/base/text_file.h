// Reads text files as people write them on any system: with a byte order mark or without, with line ends of
// Unix or Windows, in UTF-8 or an older encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convnet {

/// How a text that is not UTF-8 is treated.
enum class NotUtf8 {
  is_latin1,  ///< it is read as Latin-1
  is_error    ///< for names of files, which must keep their bytes
};

/// A mistake that makes the bytes of a file no text.
struct TextMistake {
  std::int64_t line = 0;  ///< counted from 1; 0: the whole file
  std::string what;       ///< what the file or the line is or holds
};
/// Finds a mark of UTF-16, a known binary format or a NUL, and with `is_error` bytes that are not UTF-8.
std::optional<TextMistake> text_mistake(std::string_view bytes, NotUtf8 rule);

/// Returns UTF-8 text without the byte order mark that some editors put before it.
std::string_view without_byte_order_mark(std::string_view text);
/// Returns the text in UTF-8: as it is, or converted from Latin-1 if it is not UTF-8.
std::string as_utf8(std::string text);

/// Returns the bytes as UTF-8 text without a byte order mark, each of whose lines ends with "\n" alone.
/// Throws InputError naming `file` and the line.
std::string text_of(const std::string& file, std::string_view bytes, NotUtf8 rule);

/// Returns the bytes of a file, a pipe or the like, at most `most` + 1, because some have no end. Throws
/// InputError.
std::string read_bytes(const std::string& path, std::size_t most);
/// Returns the lines of a list of names, in UTF-8 or Latin-1, without blanks at their ends and without blank
/// lines. Throws like InputFile, and InputError for a file that is no text.
std::vector<std::string> read_names(const std::string& path);

}  // namespace convnet
