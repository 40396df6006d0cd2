// The built-in font.
#pragma once

#include <string>
#include <string_view>

#include "convnet/show/canvas.h"

namespace convnet {

/// Pixels that `text` takes in `size` pixels a line.
double text_width(std::string_view text, double size);

/// `text`, or as much of its beginning, with an ellipsis, as is not wider than `width`.
std::string fitted(const std::string& text, double size, double width);

void draw_text(Picture& picture, Point at, std::string_view text, Color color, double size, Anchor anchor);

}  // namespace convnet
