// Small sets of images, and folders as what is in their files.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "providers/decode.h"
#include "tests/providers/test_images.h"
#include "tests/temp_folder.h"

namespace convnet {

/// An image of one colour as PNG.
inline std::string plain_png(int height, int width, std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  DecodedImage image{height, width, {}};
  for (int i = 0; i < height * width; ++i)
    for (const std::uint8_t value : {red, green, blue}) image.pixels.push_back(value);
  return test_images::png(image);
}

/// Makes the folders it needs.
inline void write_below(const std::string& folder, const std::string& name, const std::string& bytes) {
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  std::filesystem::create_directories(path.parent_path());
  write_file(path.string(), bytes);
}

/// The bytes of all files in a folder, by path below it.
inline std::map<std::string, std::string> all_files(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(folder).string()] = read_file(entry.path().string());
  return files;
}

}  // namespace convnet
