// A PNG file back as pixels, by another library than the one that wrote it.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#include <stb/stb_image.h>

#include "convnet/show/picture.h"

namespace convnet {

inline Picture decode_png(const std::string& bytes) {
  int width = 0;
  int height = 0;
  int channels = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(reinterpret_cast<const stbi_uc*>(bytes.data()), static_cast<int>(bytes.size()),
                            &width, &height, &channels, 3),
      stbi_image_free);
  if (!pixels) throw std::runtime_error("no PNG");
  Picture picture(width, height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const stbi_uc* p = pixels.get() + (y * width + x) * 3;
      picture.set(x, y, {p[0], p[1], p[2]});
    }
  }
  return picture;
}

}  // namespace convnet
