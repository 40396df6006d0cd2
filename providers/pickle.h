// Python pickles, read as data: the format of the batches of cuda-convnet and of CIFAR's Python distribution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convnet/base/tensor.h"

namespace convnet {

/// A NumPy array as it is stored.
struct PickleArray {
  char type = 'u';       ///< b(ool), i(nteger), u(nsigned), f(loat)
  int item_bytes = 1;    ///< 1, 2, 4 or 8
  bool swapped = false;  ///< the items have the other byte order than this machine
  bool fortran = false;  ///< the first index runs fastest
  Dims dims = {0};
  std::string_view data;  ///< all items; lives as long as the values of the file

  bool is_bytes() const { return type == 'u' && item_bytes == 1; }
  double number(std::size_t item) const;
  /// Nothing for a float that is no integer, and for what does not fit.
  std::optional<std::int64_t> integer(std::size_t item) const;
};

enum class PickleKind : std::uint8_t {
  none,
  boolean,
  integer,
  real,
  text,
  bytes,
  list,
  tuple,
  dict,
  array,
  global,  ///< the name of a function or class
  dtype    ///< a NumPy type
};

/// A value of a pickle. The file's contents live as long as one of its values; values that the file repeats
/// by reference are shared, and a list may hold itself: who descends must bound the depth.
class PickleValue {
 public:
  struct Contents;
  PickleValue(std::shared_ptr<const Contents> contents, std::uint32_t index)
      : contents_(std::move(contents)), index_(index) {}

  PickleKind kind() const;
  /// "a list of 3 values", for messages.
  std::string describe() const;
  /// Throws InputError: the file, the byte at which the value stands, `what`.
  [[noreturn]] void fail(const std::string& what) const;

  bool is_none() const { return kind() == PickleKind::none; }
  /// The length of a list, a tuple or an array's first dimension; a dict has a key and a value for each
  /// entry. 0 for others.
  std::size_t size() const;
  /// Item `i` < size() of a list or tuple.
  PickleValue operator[](std::size_t i) const;
  /// A dict's value of a key that is this text, or these bytes; nothing in other values.
  std::optional<PickleValue> find(std::string_view key) const;
  /// The same; fails if it is not there, or this is no dict.
  PickleValue at(std::string_view key) const;
  /// The keys of a dict that are text or bytes, for messages.
  std::vector<std::string> keys() const;

  // These fail() if the value is something else; `what` names it in the message. Floats with whole values
  // are integers, too: the original's users store labels so.
  std::int64_t integer(const std::string& what) const;
  double number(const std::string& what) const;
  std::string_view string(const std::string& what) const;  ///< of text (UTF-8) or bytes
  const PickleArray& array(const std::string& what) const;
  /// A flat list, a tuple, or an array in C order.
  std::vector<std::int64_t> integers(const std::string& what) const;
  std::vector<double> numbers(const std::string& what) const;

 private:
  std::shared_ptr<const Contents> contents_;
  std::uint32_t index_;
};

/// Reads the first pickle of a file, of protocol 0 to 4: None, numbers, strings, lists, tuples, dicts, NumPy
/// arrays and scalars. Nothing is called; any other object, by the name of its class, is an InputError, like
/// everything that is damaged, with the byte where it stands. Integers beyond 64 bits are refused. Memory is
/// bounded by the file's size. Throws RunError for I/O errors.
PickleValue read_pickle(const std::string& path);
/// The same of bytes; `name` stands for the file in messages.
PickleValue parse_pickle(std::string bytes, std::string name);

/// `filenames` of a batch's dict: a name for each of its images, of any bytes; empty where there are none.
/// Fails if they are no list of `images` strings.
std::vector<std::string> read_file_names(const PickleValue& batch, std::int64_t images);

}  // namespace convnet
