// The classes of ILSVRC-2012, from its devkit's meta.mat.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace convnet {

struct Synset {
  int id = 0;         ///< ILSVRC2012_ID, from 1
  std::string wnid;   ///< "n01440764", the name of its tar of images
  std::string words;  ///< "tench, Tinca tinca"
};

/// Reads the struct array `synsets` of a MATLAB 5 file, in its order. Messages call the file `name`. Throws
/// InputError if the file holds no such array. Damaged files can crash the library that reads this format or
/// make it run forever, so it runs in a child process with limited memory and time.
std::vector<Synset> read_synsets(std::string_view mat_file, const std::string& name);

}  // namespace convnet
