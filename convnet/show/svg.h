// A canvas that writes SVG, and pictures as data URIs.
#pragma once

#include <optional>
#include <string>

#include "convnet/show/canvas.h"

namespace convnet {

/// Returns the picture as a PNG file in a URI, "data:image/png;base64,…".
/// Pixels of the colour `transparent`, if given, are transparent.
std::string data_uri(const Picture& picture, const std::optional<Color>& transparent = {});

/// Returns "#3b7dc4".
std::string css_color(Color color);

class SvgCanvas final : public Canvas {
 public:
  /// `label` says what the drawing shows, for who cannot see it. `attributes` are those of the svg element
  /// besides its size and label, and are not escaped.
  SvgCanvas(double width, double height, const std::string& label, const std::string& attributes = "");

  /// Returns the whole svg element.
  std::string str() const { return text_ + "</svg>\n"; }

  void box(const Box& box, Color fill) override;
  void line(const std::vector<Point>& points, Color color, double width) override;
  void dot(Point center, double radius, Color color) override;
  void text(Point at, const std::string& text, Color color, double size, Anchor anchor) override;
  void image(const Box& box, const Picture& picture) override;

 private:
  std::string text_;
};

}  // namespace convnet
