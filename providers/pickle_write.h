// Writes pickles of protocol 2, as Python 2 and NumPy write them and everything reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convnet/base/tensor.h"

/// Each function gives the bytes that make one value; whole() makes a file of them.
namespace convnet::pickles {

/// Bytes: a str of Python 2.
std::string str(std::string_view bytes);
std::string integer(std::int64_t value);
std::string list(const std::vector<std::string>& values);
std::string integers(const std::vector<int>& values);
std::string tuple(const std::vector<std::string>& values);
std::string dict(const std::vector<std::pair<std::string, std::string>>& entries);

/// A NumPy array. `type` is like "u1"; items are little-endian and in C order.
std::string array(const Dims& dims, const std::string& type, std::string_view items);
std::string array(const Dims& dims, const std::vector<float>& items);
std::string array(const Dims& dims, const std::vector<double>& items);
std::string array(const Dims& dims, const std::vector<std::uint64_t>& items);

/// The file whose value this is.
std::string whole(const std::string& value);

}  // namespace convnet::pickles
