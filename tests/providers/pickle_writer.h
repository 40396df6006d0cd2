// Pickles of protocol 2 as Python 2 and NumPy write them, for tests of what reads them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace convnet::pickles {

inline std::string little(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

inline std::string str(const std::string& text) { return "T" + little(text.size(), 4) + text; }

inline std::string integer(std::int64_t value) { return "J" + little(static_cast<std::uint64_t>(value), 4); }

inline std::string list(const std::vector<std::string>& values) {
  std::string out = "](";
  for (const std::string& value : values) out += value;
  return out + "e";
}

inline std::string integers(const std::vector<int>& values) {
  std::vector<std::string> items;
  for (int value : values) items.push_back(integer(value));
  return list(items);
}

inline std::string dict(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out = "}(";
  for (const auto& [key, value] : entries) out += str(key) + value;
  return out + "u";
}

/// `type` is like "u1"; items are little-endian and in C order.
inline std::string array(const std::vector<std::int64_t>& dims, const std::string& type,
                         const std::string& data) {
  std::string shape = "(";
  for (std::int64_t dim : dims) shape += integer(dim);
  return "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + integer(0) + "\x85" + str("b") +
         "\x87R(" + integer(1) + shape + "tcnumpy\ndtype\n" + str(type) + integer(0) + integer(1) + "\x87R(" +
         integer(3) + str("<") + "NNN" + integer(-1) + integer(-1) + integer(0) + "tb\x89" + str(data) + "tb";
}

inline std::string whole(const std::string& value) { return "\x80\x02" + value + "."; }

}  // namespace convnet::pickles
