// Conversion of outside text (names of layers and classes, paths) for pictures and pages.
#pragma once

#include <string>
#include <string_view>

namespace convnet {

/// Decodes UTF-8 text: invalid bytes become U+FFFD, control characters blanks.
std::u32string code_points(std::string_view text);

/// Escapes text for HTML and SVG content and quoted attributes: valid UTF-8, & < > " ' as entities; of the
/// control characters only line feeds are left.
std::string html_escape(std::string_view text);

}  // namespace convnet
