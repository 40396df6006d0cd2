// Reads Python pickles as data, without running code: the format of the batches of cuda-convnet, of CIFAR's
// Python distribution, and within the files of torch.save.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convnet/base/tensor.h"

namespace convnet {

/// A NumPy array as it is stored.
struct PickleArray {
  char type = 'u';       ///< b(ool), i(nteger), u(nsigned), f(loat)
  int item_bytes = 1;    ///< 1, 2, 4 or 8
  bool swapped = false;  ///< the items have the other byte order than this machine
  bool fortran = false;  ///< column-major: the first index varies fastest
  Dims dims = {0};
  std::string_view data;  ///< all items; lives as long as any value of the file

  bool is_bytes() const { return type == 'u' && item_bytes == 1; }
  double number(std::size_t item) const;
  /// Returns an item as an integer; nullopt if it is a float with a fraction, or does not fit.
  std::optional<std::int64_t> integer(std::size_t item) const;
};

/// Numbers of a file of torch.save, which tensors view. They are outside of the pickle.
struct PickleStorage {
  std::string_view type;    ///< "Float" for torch.FloatStorage
  std::string_view key;     ///< name of the numbers in the file; lives as long as any value of the file
  std::int64_t offset = 0;  ///< its first number among those of the key
  std::int64_t count = 0;   ///< numbers, from `offset` on
};

/// A tensor of PyTorch: a view of a storage. Element (i, j, …) is number offset + i·strides[0] + j·strides[1]
/// + … of it, which exists for all elements.
struct PickleTensor {
  PickleStorage storage;
  std::int64_t offset = 0;
  Dims dims, strides;  ///< as many; none is negative

  /// Returns how many numbers of the storage, from `offset` on, hold all elements.
  std::int64_t extent() const;
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
  dtype,   ///< a NumPy type
  storage,
  tensor,
  object  ///< of a class that is not read; only in pickles of tensors
};

/// What a pickle may hold besides None, numbers, strings, lists, tuples and dicts.
enum class PickleNames {
  arrays,  ///< NumPy arrays and scalars
  tensors  ///< these, what PyTorch's state_dicts consist of, and objects of any class, which are left out
};

/// A value of a pickle. The contents of the file live as long as any of its values. Values that the file
/// repeats by reference are shared, and a list may contain itself, so recursive code must limit its depth.
class PickleValue {
 public:
  struct Contents;
  PickleValue(std::shared_ptr<const Contents> contents, std::uint32_t index)
      : contents_(std::move(contents)), index_(index) {}

  PickleKind kind() const;
  /// Returns a number that tells values of the file apart; a value that the file repeats has one.
  std::uint32_t id() const { return index_; }
  /// Returns "a list of 3 values", for messages.
  std::string describe() const;
  /// Throws InputError with the file, the byte offset of the value, and `what`.
  [[noreturn]] void fail(const std::string& what) const;

  bool is_none() const { return kind() == PickleKind::none; }
  bool is_sequence() const { return kind() == PickleKind::list || kind() == PickleKind::tuple; }
  /// Returns the length of a list, a tuple or an array's first dimension; for a dict twice the number of
  /// entries, for a key and a value each; 0 for others.
  std::size_t size() const;
  /// Returns item `i` < size() of a list or tuple.
  PickleValue operator[](std::size_t i) const;
  /// Returns the value of a dict for a key that is this text or these bytes; nullopt if there is none.
  std::optional<PickleValue> find(std::string_view key) const;
  /// Returns the same value; calls fail() if there is none.
  PickleValue at(std::string_view key) const;
  /// Returns the attributes of an object of any class, usually a dict; nullopt if it has none, and for other
  /// values.
  std::optional<PickleValue> attributes() const;
  /// Returns the keys of a dict that are text or bytes, for messages.
  std::vector<std::string> keys() const;
  /// Returns the entries of a dict whose keys are text or bytes; none for other values.
  std::vector<std::pair<std::string_view, PickleValue>> entries() const;

  // These return the value as a C++ type. They call fail() if the value has another type; `what` names the
  // value in the message. Floats without fractions count as integers, because users of cuda-convnet store
  // labels as floats.
  std::int64_t integer(const std::string& what) const;
  double number(const std::string& what) const;
  std::string_view string(const std::string& what) const;  ///< text (UTF-8) or bytes
  const PickleArray& array(const std::string& what) const;
  const PickleTensor& tensor(const std::string& what) const;
  /// Return the items of a flat list, a tuple, or an array (in C order).
  std::vector<std::int64_t> integers(const std::string& what) const;
  std::vector<double> numbers(const std::string& what) const;
  /// Returns the items of a list or tuple of texts or bytes; with `numbered`, an item of another kind is its
  /// index. Also fails if they have more bytes than the file, which would repeat them by reference.
  std::vector<std::string> strings(const std::string& what, bool numbered = false) const;
  /// Returns the size of the file in bytes.
  std::size_t file_bytes() const;

  /// Returns all storages that the pickle names, whether or not a tensor views them.
  const std::vector<PickleStorage>& storages() const;

 private:
  std::shared_ptr<const Contents> contents_;
  std::uint32_t index_;
};

/// Reads the first pickle of a file, of protocol 0 to 5: None, numbers, strings, lists, tuples, dicts, NumPy
/// arrays and scalars. Nothing that the pickle names is called. Throws InputError, with the byte offset, for
/// objects of any other class, for integers beyond 64 bits, and for damaged files; RunError for I/O errors.
/// Memory is bounded by the file's size.
PickleValue read_pickle(const std::string& path);
/// Does the same for bytes in memory; messages call them `name`.
PickleValue parse_pickle(std::string bytes, std::string name);
/// Does the same for a pickle that begins at byte `at` of a file in memory, and moves `at` behind it.
PickleValue parse_pickle_at(std::shared_ptr<const std::string> file, std::size_t& at, std::string name,
                            PickleNames names);

/// Returns `filenames` of a batch's dict: a name for each of its images, of any bytes; empty if there are
/// none. Throws InputError if they are not a list of `images` strings.
std::vector<std::string> read_file_names(const PickleValue& batch, std::int64_t images);

/// Returns the numbers of a mean image, `data_mean` of batches.meta. Throws InputError if one is not finite,
/// or beyond any pixel.
std::vector<float> read_mean_image(const PickleValue& data_mean);

}  // namespace convnet
