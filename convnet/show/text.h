// Conversion of outside text (names of layers and classes, paths) for pictures and pages.
#pragma once

#include <string>
#include <string_view>

namespace convnet {

/// Decodes UTF-8 text. Invalid bytes become U+FFFD, control characters become blanks.
std::u32string code_points(std::string_view text);

/// Escapes text for the content and the quoted attributes of HTML and SVG: & < > " ' become entities. The
/// result is valid UTF-8; of the control characters it has only line feeds.
std::string html_escape(std::string_view text);

}  // namespace convnet
