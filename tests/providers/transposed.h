#pragma once

#include "providers/decode.h"

namespace convnet::test {

/// Returns the image with rows and columns exchanged.
inline DecodedImage transposed(const DecodedImage& image) {
  DecodedImage out{image.width, image.height, {}};
  for (int x = 0; x < image.width; ++x)
    for (int y = 0; y < image.height; ++y)
      for (int c = 0; c < 3; ++c)
        out.pixels.push_back(image.pixels[static_cast<std::size_t>((y * image.width + x) * 3 + c)]);
  return out;
}

}  // namespace convnet::test
