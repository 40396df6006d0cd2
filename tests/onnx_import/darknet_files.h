// Weights files of Darknet.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convnet {

/// Appends a number as it is in memory.
template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Returns a weights file with these numbers. `minor` is the version of its form: from 2 on the number of
/// images seen has 64 bits, and above 1000 it has 32 again and the weights of connected layers are
/// transposed.
inline std::string darknet_weights(const std::vector<float>& numbers, std::int32_t minor = 2) {
  std::string bytes;
  for (const std::int32_t version : {0, minor, 0}) append(bytes, version);
  if (minor >= 2 && minor < 1000)
    append(bytes, std::int64_t{12800});
  else
    append(bytes, std::int32_t{12800});
  for (const float number : numbers) append(bytes, number);
  return bytes;
}

/// Returns a weights file with the numbers 0, 1, 2, …
inline std::string darknet_weights(std::int64_t count) {
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<float>(i));
  return darknet_weights(numbers);
}

}  // namespace convnet
