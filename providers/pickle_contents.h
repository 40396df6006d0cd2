// Types that the parts of the pickle reader share: the values of a file, and the items of NumPy arrays.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "providers/pickle.h"

namespace convnet {

/// All values of a file. They refer to each other by index and do not own each other, so that depth and
/// cycles do no harm.
struct PickleValue::Contents {
  static constexpr std::uint32_t no_items = std::numeric_limits<std::uint32_t>::max();

  struct Node {
    PickleKind kind = PickleKind::none;
    /// The index in `items` of a list, tuple, dict or object (its attributes), or no_items; the index in
    /// `arrays` of an array or dtype, in `storages` of a storage, in `tensors` of a tensor.
    std::uint32_t child = no_items;
    std::size_t offset = 0;        ///< byte offset of the opcode
    std::int64_t number = 0;       ///< boolean, integer; real: its bits; global: a Known
    std::string_view string = {};  ///< text, bytes; global of a storage: its type; object: its class
  };

  std::string name;                         ///< name of the file
  std::shared_ptr<const std::string> file;  ///< contents of the file
  std::deque<std::string> decoded;          ///< strings that the file holds in an encoded form
  std::vector<Node> nodes;
  std::vector<std::vector<std::uint32_t>> items;
  std::vector<PickleArray> arrays;
  std::vector<PickleStorage> storages;
  std::vector<PickleTensor> tensors;
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

/// The most dimensions of an array or tensor, as in NumPy.
constexpr std::size_t kMaxArrayDims = 32;

// NumPy arrays (pickle_array.cpp).

/// Parses "u1", "i8", "f4", … to the type and the bytes of an item; nullopt for unsupported types.
std::optional<std::pair<char, int>> parse_item_type(std::string_view name);
/// Returns a float as an integer; nullopt if it has a fraction or does not fit into 64 bits.
std::optional<std::int64_t> whole_number(double value);
std::size_t item_count(const Dims& dims);
/// Calls `visit` with the index in memory of each item, in C order.
void each_in_c_order(const PickleArray& array, const std::function<void(std::size_t)>& visit);

}  // namespace convnet
