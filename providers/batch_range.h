// Numbers of batches.
#pragma once

#include <string>
#include <vector>

namespace convnet {

/// Inclusive range of batch numbers.
struct BatchRange {
  int first = 0, last = 0;
  int count() const { return last - first + 1; }
  bool holds(int batch) const { return batch >= first && batch <= last; }
  std::string str() const;  ///< "1-5" or "6"
  /// Reads "1-5" or "6". Throws InputError with what is allowed.
  static BatchRange parse(const std::string& text);
  bool operator==(const BatchRange&) const = default;
};

/// Returns sorted batch numbers as "1-5, 7".
std::string batches_text(const std::vector<int>& batches);

}  // namespace convnet
