// Checks PNG files before they are decoded, for decode.cpp.
#pragma once

#include <string>
#include <string_view>

namespace convnet {

constexpr std::string_view png_magic{"\x89PNG\r\n\x1a\n", 8};

/// A PNG that has been checked.
struct CheckedPng {
  std::string bytes;  ///< without empty chunks of pixels: stb_image copies from a null pointer for these
  int orientation = 1;
};

/// Checks the lengths and checksums of a PNG's chunks, which stb_image ignores. Throws InputError, whose
/// message begins with `name`.
CheckedPng checked_png(std::string_view bytes, const std::string& name);

/// Returns a PNG that checked_png() has returned with its pixels decompressed, at most as many bytes as its
/// header says that there are: a small file can hold gigabytes. What comes after them is left out, as libpng
/// does. A PNG that is damaged remains so, for the decoder to say how.
std::string with_bounded_pixels(const std::string& png);

}  // namespace convnet
