// Writes pickles of protocol 2, as Python 2 and NumPy do. All versions of Python read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convnet/base/tensor.h"

/// Each function returns the bytes for one value; pickle_file() makes a file of them.
namespace convnet::pickles {

/// Writes a str of Python 2, which holds bytes.
std::string str(std::string_view bytes);
std::string integer(std::int64_t value);
/// Writes a list of values, which are themselves bytes of these functions.
std::string list(const std::vector<std::string>& values);
std::string integers(const std::vector<int>& values);
std::string tuple(const std::vector<std::string>& values);
std::string dict(const std::vector<std::pair<std::string, std::string>>& entries);

/// Writes a NumPy array. `type` is a name like "u1"; items are little-endian and in C order.
std::string array(const Dims& dims, const std::string& type, std::string_view items);
std::string array(const Dims& dims, const std::vector<float>& items);
std::string array(const Dims& dims, const std::vector<double>& items);
std::string array(const Dims& dims, const std::vector<std::uint64_t>& items);

/// Returns the file that holds this value.
std::string pickle_file(const std::string& value);

}  // namespace convnet::pickles
