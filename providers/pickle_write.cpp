#include "providers/pickle_write.h"

#include <bit>
#include <limits>
#include <stdexcept>

namespace convnet::pickles {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are written as they lie in memory");

std::string little(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

std::string joined(const char* start, const std::vector<std::string>& values, char end) {
  std::size_t size = 3;
  for (const std::string& value : values) size += value.size();
  std::string out;
  out.reserve(size);
  out += start;
  for (const std::string& value : values) out += value;
  return out += end;
}

template <class T>
std::string items_of(const std::vector<T>& items) {
  return {reinterpret_cast<const char*>(items.data()), items.size() * sizeof(T)};
}

}  // namespace

std::string str(std::string_view bytes) {
  if (bytes.size() > std::numeric_limits<std::int32_t>::max())
    throw std::length_error("a str of protocol 2 has less than 2 GiB");
  std::string out = bytes.size() < 256 ? "U" + little(bytes.size(), 1) : "T" + little(bytes.size(), 4);
  return out.append(bytes);
}

std::string integer(std::int64_t value) {
  if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max())
    return "J" + little(static_cast<std::uint64_t>(value), 4);
  return "\x8a\x08" + little(static_cast<std::uint64_t>(value), 8);
}

std::string list(const std::vector<std::string>& values) { return joined("](", values, 'e'); }

std::string integers(const std::vector<int>& values) {
  std::vector<std::string> items;
  for (int value : values) items.push_back(integer(value));
  return list(items);
}

std::string tuple(const std::vector<std::string>& values) { return joined("(", values, 't'); }

std::string dict(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::vector<std::string> items;
  for (const auto& [key, value] : entries) {
    items.push_back(str(key));
    items.push_back(value);
  }
  return joined("}(", items, 'u');
}

std::string array(const Dims& dims, const std::string& type, std::string_view items) {
  std::vector<std::string> sides;
  for (std::int64_t dim : dims) sides.push_back(integer(dim));
  const std::string empty = "cnumpy.core.multiarray\n_reconstruct\n" +
                            tuple({"cnumpy\nndarray\n", tuple({integer(0)}), str("b")}) + "R";
  const std::string none = "N", no = "\x89", yes = "\x88";
  const std::string kind = "cnumpy\ndtype\n" + tuple({str(type), no, yes}) + "R" +
                           tuple({integer(3), str(type.ends_with('1') ? "|" : "<"), none, none, none,
                                  integer(-1), integer(-1), integer(0)}) +
                           "b";
  return empty + tuple({integer(1), tuple(sides), kind, no, str(items)}) + "b";
}

std::string array(const Dims& dims, const std::vector<float>& items) {
  return array(dims, "f4", items_of(items));
}
std::string array(const Dims& dims, const std::vector<double>& items) {
  return array(dims, "f8", items_of(items));
}
std::string array(const Dims& dims, const std::vector<std::uint64_t>& items) {
  return array(dims, "u8", items_of(items));
}

std::string pickle_file(const std::string& value) { return "\x80\x02" + value + "."; }

}  // namespace convnet::pickles
