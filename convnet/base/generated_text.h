// Text files that commands make, and replace as long as nobody has edited them.
#pragma once

#include <string>

namespace convnet {

/// Returns the text, of lines in which # begins a comment, with a last line that holds its checksum. If the
/// text was made from what this function has returned, that last line is left out.
std::string generated_text(const std::string& text);

/// Returns whether the file at `path` is empty, or holds what generated_text() has returned.
bool is_unedited(const std::string& path);

}  // namespace convnet
