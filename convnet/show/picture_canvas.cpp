#include "convnet/show/picture_canvas.h"

#include <algorithm>
#include <cmath>

#include "convnet/show/font.h"

namespace convnet {
namespace {

/// Pixels from `low` to `high` that are among `count`.
std::pair<int, int> pixels(double low, double high, int count) {
  const double last = count - 1;
  return {static_cast<int>(std::clamp(std::floor(low), 0.0, last)),
          static_cast<int>(std::clamp(std::ceil(high), 0.0, last))};
}

double distance_to_segment(Point p, Point a, Point b) {
  const double dx = b.x - a.x;
  const double dy = b.y - a.y;
  const double squared = dx * dx + dy * dy;
  const double along =
      squared > 0 ? std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / squared, 0.0, 1.0) : 0;
  return std::hypot(p.x - a.x - along * dx, p.y - a.y - along * dy);
}

}  // namespace

void PictureCanvas::box(const Box& box, Color fill) {
  const auto [left, right] = pixels(box.x, box.right(), picture_.width());
  const auto [top, bottom] = pixels(box.y, box.bottom(), picture_.height());
  for (int y = top; y <= bottom; ++y) {
    for (int x = left; x <= right; ++x) {
      const double across = std::min(x + 1.0, box.right()) - std::max<double>(x, box.x);
      const double down = std::min(y + 1.0, box.bottom()) - std::max<double>(y, box.y);
      if (across > 0 && down > 0) picture_.blend(x, y, fill, across * down);
    }
  }
}

void PictureCanvas::line(const std::vector<Point>& points, Color color, double width) {
  // A pixel where segments meet counts once.
  std::vector<float> coverage(picture_.rgb().size() / 3);
  const double reach = width / 2 + 1;
  for (std::size_t i = 1; i < points.size(); ++i) {
    const Point a = points[i - 1];
    const Point b = points[i];
    const auto [left, right] =
        pixels(std::min(a.x, b.x) - reach, std::max(a.x, b.x) + reach, picture_.width());
    const auto [top, bottom] =
        pixels(std::min(a.y, b.y) - reach, std::max(a.y, b.y) + reach, picture_.height());
    for (int y = top; y <= bottom; ++y) {
      for (int x = left; x <= right; ++x) {
        const double inside = width / 2 + 0.5 - distance_to_segment({x + 0.5, y + 0.5}, a, b);
        float& c = coverage[static_cast<std::size_t>(y) * static_cast<std::size_t>(picture_.width()) +
                            static_cast<std::size_t>(x)];
        c = std::max(c, static_cast<float>(std::clamp(inside, 0.0, std::min(1.0, width))));
      }
    }
  }
  for (int y = 0; y < picture_.height(); ++y) {
    for (int x = 0; x < picture_.width(); ++x)
      picture_.blend(x, y, color,
                     coverage[static_cast<std::size_t>(y) * static_cast<std::size_t>(picture_.width()) +
                              static_cast<std::size_t>(x)]);
  }
}

void PictureCanvas::dot(Point center, double radius, Color color) {
  const auto [left, right] = pixels(center.x - radius - 1, center.x + radius + 1, picture_.width());
  const auto [top, bottom] = pixels(center.y - radius - 1, center.y + radius + 1, picture_.height());
  for (int y = top; y <= bottom; ++y) {
    for (int x = left; x <= right; ++x)
      picture_.blend(x, y, color, radius + 0.5 - std::hypot(x + 0.5 - center.x, y + 0.5 - center.y));
  }
}

void PictureCanvas::text(Point at, const std::string& text, Color color, double size, Anchor anchor) {
  draw_text(picture_, at, text, color, size, anchor);
}

void PictureCanvas::image(const Box& box, const Picture& picture) {
  const auto [left, right] = pixels(box.x, box.right(), picture_.width());
  const auto [top, bottom] = pixels(box.y, box.bottom(), picture_.height());
  for (int y = top; y <= bottom; ++y) {
    for (int x = left; x <= right; ++x) {
      const double across = (x + 0.5 - box.x) / box.width;
      const double down = (y + 0.5 - box.y) / box.height;
      if (across < 0 || across >= 1 || down < 0 || down >= 1) continue;
      picture_.set(
          x, y,
          picture.at(static_cast<int>(across * picture.width()), static_cast<int>(down * picture.height())));
    }
  }
}

}  // namespace convnet
