// Recognises what a file is by its first bytes, so that a message can say it where another kind is expected.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace convnet {

/// Groups of formats. What to do about a file depends on the group.
enum class FileKind {
  compressed,  ///< one compressed file
  archive,     ///< many files in one
  picture,     ///< one that is read
  other_picture,
  arrays,      ///< numbers of other programs
  model,       ///< a trained net or its weights
  importable,  ///< a trained net of which convnet import makes one
  web_page,
  document
};

struct FileFormat {
  FileKind kind;
  const char* name;  ///< "a zip archive"
  const char* cure;  ///< what to type or to do, "unpack it with unzip"; "" if it depends on the place
};

/// The number of bytes at the beginning of a file that tell all formats.
constexpr std::size_t kFormatBytes = 512;

class InputFile;
/// Returns these bytes of a file, or all that it has. Throws RunError.
std::string format_bytes(const InputFile& file);

/// Returns the format of a file that begins with these bytes; null if none is recognised, or if it is a text
/// that is not the beginning of a web page or the like.
const FileFormat* find_format(std::string_view first);
/// Returns whether that is a pickle.
bool is_pickle(std::string_view first);
/// Returns the same, or null for formats that are texts.
const FileFormat* find_binary_format(std::string_view first);

/// Returns "is a zip archive, not WANTED; unpack it with unzip", or `otherwise` if the format is not
/// recognised.
std::string other_format_text(std::string_view first, const std::string& wanted,
                              const std::string& otherwise);

}  // namespace convnet
