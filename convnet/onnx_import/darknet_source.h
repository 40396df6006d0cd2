// The two files of a net of Darknet, taken apart: the sections of its .cfg and the numbers of its .weights.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "convnet/base/tensor.h"

namespace convnet {

/// A section of a .cfg.
struct DarknetSection {
  std::string type;  ///< its usual name, like "convolutional" for [conv]
  int line = 0;
  std::map<std::string, std::string> keys;
};

/// Takes a cfg apart. Several sections have one name, and blanks mean nothing. Throws InputError, with the
/// line, for what is neither a section nor a key; messages call the file `name`.
std::vector<DarknetSection> parse_darknet_sections(const std::string& name, std::string_view text);

/// The numbers of a weights file, read from its beginning.
class DarknetWeights {
 public:
  /// Reads the header. `name` and `bytes` outlive the object. Throws InputError for another file.
  DarknetWeights(const std::string& name, std::string_view bytes);

  bool transposed = false;  ///< the weights of connected layers are (inputs, outputs)

  /// Reads numbers of these dims, which are positive. Throws InputError if the file has fewer.
  std::vector<float> take(const Dims& dims, const std::string& layer);
  /// Throws InputError if numbers are left.
  void check_end() const;

 private:
  const std::string& name_;
  std::string_view rest_;
};

}  // namespace convnet
