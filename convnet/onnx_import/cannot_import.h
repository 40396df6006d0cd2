// The reason why an operator of a model cannot become layers.
#pragma once

#include <stdexcept>

namespace convnet {

/// The message says what the operator does that layers cannot: "it has a dilation of 2". The import adds the
/// operator's name.
class CannotImport : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace convnet
