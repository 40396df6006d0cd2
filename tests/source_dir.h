// The folder with the repository's files.
#pragma once

#include <cstdlib>
#include <string>

namespace convnet::test {

/// The environment's CONVNET_SOURCE_DIR, for programs that were built elsewhere, else the folder they were
/// built from.
inline std::string source_dir() {
  const char* folder = std::getenv("CONVNET_SOURCE_DIR");
  return folder == nullptr ? CONVNET_SOURCE_DIR : folder;
}

}  // namespace convnet::test
