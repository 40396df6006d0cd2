// A canvas of pixels.
#pragma once

#include "convnet/show/canvas.h"

namespace convnet {

class PictureCanvas final : public Canvas {
 public:
  PictureCanvas(int width, int height) : picture_(width, height) {}

  const Picture& picture() const { return picture_; }

  void box(const Box& box, Color fill) override;
  void line(const std::vector<Point>& points, Color color, double width) override;
  void dot(Point center, double radius, Color color) override;
  void text(Point at, const std::string& text, Color color, double size, Anchor anchor) override;
  void image(const Box& box, const Picture& picture) override;

 private:
  Picture picture_;
};

}  // namespace convnet
