// Windows over the two sides of an image: those of convolutions, of locally-connected layers and of pooling.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convnet {

/// A number for each of the two directions in which windows move over an image.
struct Sides {
  std::int64_t y = 0;  ///< vertical
  std::int64_t x = 0;  ///< horizontal

  constexpr Sides() = default;
  constexpr Sides(std::int64_t vertical, std::int64_t horizontal) : y(vertical), x(horizontal) {}
  /// The same number for both.
  constexpr Sides(std::int64_t both) : y(both), x(both) {}  // NOLINT(google-explicit-constructor)

  constexpr bool equal() const { return y == x; }
  constexpr std::int64_t area() const { return y * x; }
  constexpr bool operator==(const Sides&) const = default;
};

/// Returns "3", or "1x7" if the two numbers differ: the vertical one, then the horizontal one.
inline std::string to_string(const Sides& sides) {
  return sides.equal() ? std::to_string(sides.x) : std::to_string(sides.y) + "x" + std::to_string(sides.x);
}

/// Windows along one direction of an image. Window i has its taps at the pixels origin(i) + dilation * tap.
/// It may hang over both edges.
struct WindowLine {
  std::int64_t pixels = 0;   ///< pixels of the image
  std::int64_t windows = 0;  ///< number of windows
  std::int64_t size = 0;     ///< taps of a window
  std::int64_t stride = 1;   ///< pixels from one window to the next
  std::int64_t start = 0;    ///< origin of the first window; negative if it begins before the image
  std::int64_t dilation = 1;

  std::int64_t origin(std::int64_t window) const { return start + stride * window; }
  /// Returns the pixels from the first tap of a window to its last one.
  std::int64_t extent() const { return (size - 1) * dilation + 1; }
  /// Returns the pixel behind the last window. It is less than `pixels` if the last pixels are in no window.
  std::int64_t end() const { return origin(windows - 1) + extent(); }
  bool holds(std::int64_t pixel) const { return pixel >= 0 && pixel < pixels; }
};

}  // namespace convnet
