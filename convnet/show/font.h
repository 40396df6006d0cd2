// The built-in font.
#pragma once

#include <string>
#include <string_view>

#include "convnet/show/canvas.h"

namespace convnet {

/// Returns the width of `text` in pixels at a line height of `size` pixels.
double text_width(std::string_view text, double size);

/// Returns `text`, or the longest beginning that fits `width` together with an ellipsis.
std::string fitted(const std::string& text, double size, double width);

void draw_text(Picture& picture, Point at, std::string_view text, Color color, double size, Anchor anchor);

}  // namespace convnet
