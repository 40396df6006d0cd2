// A canvas that writes SVG, and pictures as data URIs.
#pragma once

#include "convnet/show/canvas.h"

namespace convnet {

/// Returns the picture as a PNG file in a URI, "data:image/png;base64,…".
std::string data_uri(const Picture& picture);

/// Returns "#3b7dc4".
std::string css_color(Color color);

class SvgCanvas final : public Canvas {
 public:
  /// `attributes` are those of the svg element besides its size. They are not escaped.
  SvgCanvas(double width, double height, const std::string& attributes = "");

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
