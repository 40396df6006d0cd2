// Types that the parts of the pickle reader share: the values of a file, and the items of NumPy arrays.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "providers/pickle.h"

namespace convnet {

/// All values of a file, by index: nothing owns another, so that neither depth nor cycles matter.
struct PickleValue::Contents {
  static constexpr std::uint32_t no_items = std::numeric_limits<std::uint32_t>::max();

  struct Node {
    PickleKind kind = PickleKind::none;
    std::uint32_t child =
        no_items;             ///< list, tuple, dict: in `items`, if there are any; array, dtype: in `arrays`
    std::size_t offset = 0;   ///< of the opcode
    std::int64_t number = 0;  ///< boolean, integer; real: its bits; global: a Known
    std::string_view string = {};  ///< text, bytes
  };

  std::string name;  ///< of the file
  std::string file;
  std::deque<std::string> decoded;  ///< strings that are written in another way
  std::vector<Node> nodes;
  std::vector<std::vector<std::uint32_t>> items;
  std::vector<PickleArray> arrays;
  std::uint32_t root = 0;

  [[noreturn]] void fail(std::size_t offset, const std::string& what) const {
    throw InputError(fmt::format("{}: byte {}: {}", name, offset, what));
  }
  const std::vector<std::uint32_t>& items_of(const Node& node) const {
    static const std::vector<std::uint32_t> none;
    return node.child == no_items ? none : items[node.child];
  }
  std::string describe(const Node& node) const;
};

// NumPy arrays (pickle_array.cpp).

/// "u1", "i8", "f4", …: type and bytes of an item, if it is a type that is read.
std::optional<std::pair<char, int>> parse_item_type(std::string_view name);
/// The integer that a float is, if it is one of at most 64 bits.
std::optional<std::int64_t> whole_number(double value);
std::size_t item_count(const Dims& dims);
/// Calls `visit` with the place in memory of each item, in C order.
void each_in_c_order(const PickleArray& array, const std::function<void(std::size_t)>& visit);

}  // namespace convnet
