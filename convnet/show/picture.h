// A picture in memory: RGB pixels, and their PNG file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace convnet {

struct Color {
  std::uint8_t r = 0, g = 0, b = 0;
  bool operator==(const Color&) const = default;
};

constexpr Color kWhite = {255, 255, 255};

/// A picture of RGB pixels. Pixel (0,0) is at the top left.
class Picture {
 public:
  /// Both sides must be at least 1; a picture has at most 2^28 pixels.
  Picture(int width, int height, Color background = kWhite);

  int width() const { return width_; }
  int height() const { return height_; }
  /// Return and set a pixel, which must lie inside the picture.
  Color at(int x, int y) const;
  void set(int x, int y, Color color);
  /// Blends a colour that covers the pixel by `coverage`, 0 to 1. Pixels outside the picture are ignored.
  void blend(int x, int y, Color color, double coverage);
  /// Returns the picture with each pixel enlarged to a square of side `factor`.
  Picture enlarged(int factor) const;

  const std::vector<std::uint8_t>& rgb() const { return rgb_; }  ///< (height, width, 3)
  /// All PNG files begin so (OutputOption::begins).
  static constexpr const char* png_begins = "\x89PNG";
  /// Returns the bytes of a PNG file. Pixels of the colour `transparent`, if given, are transparent in it.
  std::string png(const std::optional<Color>& transparent = {}) const;

 private:
  std::size_t index(int x, int y) const {
    return (static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) + static_cast<std::size_t>(x)) * 3;
  }

  int width_, height_;
  std::vector<std::uint8_t> rgb_;
};

}  // namespace convnet
