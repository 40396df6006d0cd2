#include "providers/npy_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "convnet/base/endian.h"
#include "convnet/base/error.h"
#include "convnet/base/file_format.h"
#include "convnet/base/printable.h"

namespace convnet {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers of files are used as they are");

struct TypeName {
  std::string_view name;  ///< without the byte order
  NpyType type;
};
constexpr std::array kTypes = {
    TypeName{"b1", NpyType::boolean}, TypeName{"i1", NpyType::i8},  TypeName{"u1", NpyType::u8},
    TypeName{"i2", NpyType::i16},     TypeName{"u2", NpyType::u16}, TypeName{"i4", NpyType::i32},
    TypeName{"u4", NpyType::u32},     TypeName{"i8", NpyType::i64}, TypeName{"u8", NpyType::u64},
    TypeName{"f4", NpyType::f32},     TypeName{"f8", NpyType::f64}};

/// Calls f(T{}) with the C++ type of the numbers.
template <class F>
auto with_type_of(NpyType type, const F& f) {
  switch (type) {
    case NpyType::boolean:
    case NpyType::u8: return f(std::uint8_t{});
    case NpyType::i8: return f(std::int8_t{});
    case NpyType::i16: return f(std::int16_t{});
    case NpyType::u16: return f(std::uint16_t{});
    case NpyType::i32: return f(std::int32_t{});
    case NpyType::u32: return f(std::uint32_t{});
    case NpyType::i64: return f(std::int64_t{});
    case NpyType::u64: return f(std::uint64_t{});
    case NpyType::f32: return f(float{});
    case NpyType::f64: break;
  }
  return f(double{});
}

std::uint64_t item_bytes(NpyType type) {
  return with_type_of(type, [](auto item) -> std::uint64_t { return sizeof item; });
}

/// Reads the dict of a header, a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class DictParser {
 public:
  DictParser(const InputFile& file, std::string_view text) : file_(file), rest_(text) {}

  NpyHeader parse() {
    expect('{');
    while (!next_is('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !descr_)
        descr_ = type();
      else if (key == "fortran_order" && !fortran_)
        fortran_ = boolean();
      else if (key == "shape" && !shape_)
        shape_ = shape();
      else
        fail(fmt::format(
            "has {} '{}'",
            key == "descr" || key == "fortran_order" || key == "shape" ? "a second key" : "an unknown key",
            printable(key)));
      if (!next_is(',')) {
        expect_end_of_dict();
        break;
      }
      expect(',');
      if (next_is('}')) {
        expect_end_of_dict();
        break;
      }
    }
    if (!descr_ || !fortran_ || !shape_) fail("lacks one of 'descr', 'fortran_order' and 'shape'");
    if (*fortran_)
      throw InputError(
          file_.path() +
          ": is in Fortran order; save it again with numpy.save(file, numpy.ascontiguousarray(a))");
    return {*descr_, *shape_, 0};
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("{}: the header of this .npy file {}", file_.path(), what));
  }
  void skip_spaces() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }
  bool next_is(char c) {
    skip_spaces();
    return !rest_.empty() && rest_[0] == c;
  }
  void expect(char c) {
    if (!next_is(c)) fail(fmt::format("has '{}' where '{}' belongs", printable(rest_.substr(0, 12)), c));
    rest_.remove_prefix(1);
  }
  void expect_end_of_dict() {
    expect('}');
    skip_spaces();
    if (!rest_.empty()) fail(fmt::format("goes on after its dict with '{}'", printable(rest_.substr(0, 12))));
  }
  std::string_view quoted() {
    const char quote = next_is('"') ? '"' : '\'';
    expect(quote);
    const std::size_t end = rest_.find(quote);
    if (end == std::string_view::npos) fail("has a text without an end");
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return text;
  }
  NpyType type() {
    if (next_is('[')) fail("is of a structured array; save each field as an array of its own");
    const std::string_view descr = quoted();
    // NumPy writes "<f4" and "|u1", other programs also "=f4", "f4" and "<u1".
    const std::string_view name = descr.substr(descr.find_first_of("<>|=") == 0 ? 1 : 0);
    const auto* const found =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& t) { return t.name == name; });
    if (found != kTypes.end() && (!descr.starts_with('>') || item_bytes(found->type) == 1))
      return found->type;
    fail(fmt::format("says that its {} are '{}'; {}", is_text(descr) ? "elements" : "numbers",
                     printable(descr), advice(descr)));
  }
  static bool is_text(std::string_view descr) { return descr.find_first_of("USa") < 2; }
  /// Says what becomes of an array whose elements have another type.
  static std::string advice(std::string_view descr) {
    if (is_text(descr))
      return "texts become whole numbers from 0 by numpy.unique(a, return_inverse=True), whose first array "
             "are the names for classes.txt, and whose second one are the numbers";
    if (descr == "|O")
      return "these are Python objects, perhaps arrays of several shapes; make one array of numbers of "
             "them, as by numpy.stack";
    if (descr.starts_with('>'))
      return "numbers should be little-endian, as in numpy.save(file, a.astype(a.dtype.newbyteorder('<')))";
    return "they may be whole numbers of 8 to 64 bits, float32 and float64, little-endian: convert them, as "
           "in numpy.save(file, a.astype('<f4'))";
  }
  bool boolean() {
    skip_spaces();
    for (const auto& [word, value] : {std::pair{std::string_view("True"), true}, {"False", false}}) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return value;
    }
    fail("has a 'fortran_order' that is neither True nor False");
  }
  Dims shape() {
    constexpr std::size_t kMostDims = 32;  // as many as NumPy has
    Dims dims;
    expect('(');
    while (!next_is(')')) {
      std::int64_t dim = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), dim);
      if (error != std::errc() || dim < 0 || dims.size() == kMostDims)
        fail(fmt::format("has a shape with '{}'", printable(rest_.substr(0, 24))));
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      dims.push_back(dim);
      if (rest_.starts_with('L')) rest_.remove_prefix(1);  // Python 2
      if (!next_is(')')) expect(',');
    }
    expect(')');
    return dims;
  }

  const InputFile& file_;
  std::string_view rest_;
  std::optional<NpyType> descr_;
  std::optional<bool> fortran_;
  std::optional<Dims> shape_;
};

/// Returns the bytes of all numbers; nullopt if they are more than 2^62.
std::optional<std::uint64_t> bytes_of(const NpyHeader& header) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  std::uint64_t bytes = item_bytes(header.type);
  for (const std::int64_t dim : header.dims) {
    if (dim == 0) return 0;
    if (bytes > kMost / static_cast<std::uint64_t>(dim)) return std::nullopt;
    bytes *= static_cast<std::uint64_t>(dim);
  }
  return bytes;
}

}  // namespace

NpyHeader read_npy_header(const InputFile& file) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  constexpr std::uint64_t kPrefix = 8;  // magic and version
  // The header of an array without fields has some 100 bytes.
  constexpr std::uint64_t kMostHeader = std::uint64_t{1} << 20;
  if (file.size() < kPrefix + 2 || file.read(0, kMagic.size()) != kMagic)
    throw InputError(file.path() + ": " +
                     other_format_text(file.read(0, std::min<std::uint64_t>(file.size(), kFormatBytes)),
                                       "a .npy file", "is not a .npy file, as numpy.save() writes them"));
  const int version = static_cast<unsigned char>(file.read(kMagic.size(), 1)[0]);
  if (version < 1 || version > 3)
    throw InputError(
        fmt::format("{}: is of version {} of the .npy format; 1, 2 and 3 are known", file.path(), version));
  const std::uint64_t width = version == 1 ? 2 : 4;
  if (file.size() < kPrefix + width) throw InputError(file.path() + ": ends within its header");
  const std::uint64_t length = little_endian(file.read(kPrefix, width), 0, width);
  const std::uint64_t offset = kPrefix + width + length;
  if (length > kMostHeader || offset > file.size())
    throw InputError(fmt::format("{}: says that its header has {} bytes; the file has {}", file.path(),
                                 length, file.size()));
  const std::string text = file.read(kPrefix + width, length);
  NpyHeader header = DictParser(file, text).parse();
  header.offset = offset;
  const std::optional<std::uint64_t> bytes = bytes_of(header);
  if (const std::uint64_t there = file.size() - offset; bytes != there)
    throw InputError(
        fmt::format("{}: {} its numbers: an array of {} needs {} bytes, but {} follow the header",
                    file.path(), bytes && *bytes < there ? "has more than" : "ends within",
                    to_string(header.dims), bytes ? std::to_string(*bytes) : "over 2^62", there));
  return header;
}

namespace {

NpyHeader header_of_records(const InputFile& file) {
  NpyHeader header = read_npy_header(file);
  if (header.dims.empty()) throw InputError(file.path() + ": holds one number, not an array of records");
  if (element_count(header.dims) == 0)
    throw InputError(file.path() + ": holds no numbers: its shape is " + to_string(header.dims));
  return header;
}

}  // namespace

NpyArray::NpyArray(const std::string& path) : file_(path), header_(header_of_records(file_)) {}

NpyArray::NpyArray(std::string name, std::string contents)
    : file_(std::move(name), std::move(contents)), header_(header_of_records(file_)) {}

Dims NpyArray::record_dims() const {
  const Dims& dims = header_.dims;
  switch (dims.size()) {
    case 1: return {1};
    case 2: return {dims[1]};
    case 3: return {1, dims[1], dims[2]};
    case 4: return {dims[1], dims[2], dims[3]};
    default: break;
  }
  throw InputError(fmt::format("{}: its shape is {}; arrays are (N), (N,D), (N,H,W) or (N,C,H,W)", path(),
                               to_string(dims)));
}

bool NpyArray::is_labels() const {
  const bool whole = header_.type != NpyType::f32 && header_.type != NpyType::f64;
  return whole && element_count(header_.dims) == header_.dims[0] && header_.dims.size() <= 2;
}

std::string NpyArray::raw(std::int64_t first, std::int64_t count) const {
  const std::uint64_t record =
      item_bytes(header_.type) * static_cast<std::uint64_t>(element_count(header_.dims) / header_.dims[0]);
  return file_.read(header_.offset + static_cast<std::uint64_t>(first) * record,
                    static_cast<std::uint64_t>(count) * record);
}

std::vector<std::byte> NpyArray::numbers(std::int64_t first, std::int64_t count) const {
  const std::string stored = raw(first, count);
  const auto record = static_cast<std::size_t>(element_count(header_.dims) / header_.dims[0]);
  const auto as_stored = std::as_bytes(std::span(stored));
  if (header_.type == NpyType::u8) return {as_stored.begin(), as_stored.end()};
  return with_type_of(header_.type, [&]<class T>(T) {
    std::vector<float> converted(stored.size() / sizeof(T));
    for (std::size_t i = 0; i < converted.size(); ++i) {
      T item;
      std::memcpy(&item, stored.data() + i * sizeof item, sizeof item);
      converted[i] = static_cast<float>(item);
      if (!std::isfinite(converted[i]))
        throw InputError(
            fmt::format("{}: record {} (counted from 0) has the number {}, which is not finite as a "
                        "float32",
                        path(), first + static_cast<std::int64_t>(i / record), item));
    }
    const auto bytes = std::as_bytes(std::span(converted));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  });
}

std::vector<std::int32_t> NpyArray::labels(std::int64_t first, std::int64_t count) const {
  constexpr std::int32_t kLargest = 999'999;
  const std::string stored = raw(first, count);
  return with_type_of(header_.type, [&]<class T>(T) {
    std::vector<std::int32_t> labels(stored.size() / sizeof(T));
    for (std::size_t i = 0; i < labels.size(); ++i) {
      T item;
      std::memcpy(&item, stored.data() + i * sizeof item, sizeof item);
      if (!(item >= T{0}) || static_cast<double>(item) > kLargest)
        throw InputError(fmt::format("{}: record {} (counted from 0) is label {}; labels are 0 to {}", path(),
                                     first + static_cast<std::int64_t>(i), item, kLargest));
      labels[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(item));  // it is not negative
    }
    return labels;
  });
}

}  // namespace convnet
