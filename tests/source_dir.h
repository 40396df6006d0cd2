// The repository's files.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace convnet::test {

/// Returns the folder of the repository: $CONVNET_SOURCE_DIR, for programs that were built elsewhere, else
/// the folder from which they were built.
inline std::string source_dir() {
  const char* folder = std::getenv("CONVNET_SOURCE_DIR");
  return folder == nullptr ? CONVNET_SOURCE_DIR : folder;
}

/// Returns the text of a file, whose path begins at the repository's folder.
inline std::string source_text(const std::string& path) {
  std::ifstream file(source_dir() + "/" + path);
  if (!file) throw std::runtime_error(path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace convnet::test
