// The surface for pictures with lines and text: pixels (picture_canvas.h) or SVG (svg.h).
#pragma once

#include <string>
#include <vector>

#include "convnet/show/picture.h"

namespace convnet {

/// A point in pixels from the top left corner; y points downwards.
struct Point {
  double x = 0, y = 0;
  bool operator==(const Point&) const = default;
};

/// A rectangle, in pixels; (x, y) is its top left corner.
struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  double right() const { return x + width; }
  double bottom() const { return y + height; }
};

/// The part of a text that is at its position: the beginning, the middle or the end.
enum class Anchor { start, middle, end };

/// A surface to draw on. Sizes and widths are in pixels.
class Canvas {
 public:
  Canvas() = default;
  Canvas(const Canvas&) = delete;
  Canvas& operator=(const Canvas&) = delete;
  virtual ~Canvas() = default;

  /// Fills a rectangle.
  virtual void box(const Box& box, Color fill) = 0;
  /// Draws straight lines from point to point.
  virtual void line(const std::vector<Point>& points, Color color, double width) = 0;
  virtual void dot(Point center, double radius, Color color) = 0;
  /// Draws text; `at` is on the baseline. Bytes that are not UTF-8 are drawn as a replacement character.
  virtual void text(Point at, const std::string& text, Color color, double size, Anchor anchor) = 0;
  /// Draws a picture stretched to the box without smoothing.
  virtual void image(const Box& box, const Picture& picture) = 0;
};

/// Colours of all drawings.
namespace palette {
constexpr Color ink = {38, 43, 51};
constexpr Color faint = {107, 114, 128};  ///< labels, notes
constexpr Color rule = {225, 228, 232};   ///< grid lines
constexpr Color train = {59, 125, 196};
constexpr Color test = {217, 83, 30};
constexpr Color right = {46, 139, 87};  ///< a true label
/// The colours of the series of a chart; more series begin again with the first colour.
constexpr Color series[] = {train,         test,          right,          {142, 89, 176},
                            {178, 134, 0}, {0, 137, 150}, {196, 60, 110}, {110, 110, 110}};
}  // namespace palette

}  // namespace convnet
