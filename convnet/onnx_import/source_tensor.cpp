#include "convnet/onnx_import/source_tensor.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string_view>

#include "convnet/base/endian.h"
#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/printable.h"
#include "convnet/base/small_floats.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;
using protozero::pbf_reader, protozero::pbf_wire_type, protozero::tag_and_type;

/// The number of dimensions that a tensor may have.
constexpr std::size_t kMostDims = 16;

/// Field numbers of TensorProto in onnx.proto.
namespace field {
constexpr unsigned dims = 1, data_type = 2, float_data = 4, int32_data = 5, int64_data = 7, name = 8,
                   raw_data = 9, double_data = 10, uint64_data = 11, external_data = 13, data_location = 14;
}

/// An element type of ONNX: its size in raw bytes, and how an element becomes a number.
struct ElementType {
  std::int64_t code, bytes;
  float (*real)(const char* bytes);            ///< null for integers
  std::int64_t (*integer)(const char* bytes);  ///< null for floating-point numbers
};

template <class T>
constexpr ElementType integer_type(std::int64_t code) {
  return {code, sizeof(T), nullptr,
          [](const char* bytes) { return static_cast<std::int64_t>(from_bytes<T>(bytes)); }};
}

constexpr std::array<ElementType, 13> kTypes = {{
    {1, 4, [](const char* b) { return from_bytes<float>(b); }, nullptr},
    integer_type<std::uint8_t>(2),
    integer_type<std::int8_t>(3),
    integer_type<std::uint16_t>(4),
    integer_type<std::int16_t>(5),
    integer_type<std::int32_t>(6),
    integer_type<std::int64_t>(7),
    integer_type<std::uint8_t>(9),  // bool
    {10, 2, [](const char* b) { return from_f16(from_bytes<std::uint16_t>(b)); }, nullptr},
    {11, 8, [](const char* b) { return static_cast<float>(from_bytes<double>(b)); }, nullptr},
    integer_type<std::uint32_t>(12),
    integer_type<std::uint64_t>(13),
    {16, 2, [](const char* b) { return from_bf16(from_bytes<std::uint16_t>(b)); }, nullptr},
}};

const ElementType* find_type(std::int64_t code) {
  for (const ElementType& type : kTypes)
    if (type.code == code) return &type;
  return nullptr;
}

/// The fields of a TensorProto that hold numbers.
struct Numbers {
  std::string_view raw;
  bool has_raw = false;
  std::vector<float> floats;           ///< float_data and double_data
  std::vector<std::int64_t> integers;  ///< int32_data, int64_data and uint64_data
  std::string location;                ///< a file for the bytes that `raw` would hold
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length;
  bool is_external = false;
};

std::string_view view(const protozero::data_view& bytes) { return {bytes.data(), bytes.size()}; }

template <class To, class Range>
void append(std::vector<To>& to, const Range& range) {
  for (const auto value : range) to.push_back(static_cast<To>(value));
}

std::uint64_t number_of(const std::string& key, std::string_view text) {
  const auto number = to_number<std::uint64_t>(text);
  if (!number) throw InputError(fmt::format("the {} of external data is {}", key, excerpt(text)));
  return *number;
}

void read_external_entry(pbf_reader entry, Numbers& numbers) {
  const auto [key, value] = read_texts(entry);
  if (key == "location") numbers.location = value;
  if (key == "offset") numbers.offset = number_of(key, value);
  if (key == "length") numbers.length = number_of(key, value);
}

/// Returns the path of a file of external data. Throws InputError unless it lies in `folder`, also after
/// symbolic links.
std::string external_path(const std::string& folder, const std::string& location) {
  check_name(location);
  const fs::path relative = fs::path(location).lexically_normal();
  const auto refuse = [&](const char* why) {
    return InputError(fmt::format("its numbers are in {}, {}", excerpt(location), why));
  };
  if (folder.empty()) throw refuse("another file, which cannot be read here");
  if (relative.empty() || relative.is_absolute() || *relative.begin() == "..")
    throw refuse("which is not in the model's folder");
  std::error_code error;
  const fs::path root = fs::canonical(folder, error), file = fs::canonical(root / relative, error);
  if (error) throw refuse("which is not there");
  const fs::path inside = file.lexically_relative(root);
  if (inside.empty() || *inside.begin() == "..") throw refuse("a link out of the model's folder");
  return file.string();
}

/// Returns the bytes of a tensor in another file.
std::string external_bytes(const Numbers& numbers, const std::string& folder, std::uint64_t bytes) {
  const InputFile file(external_path(folder, numbers.location));
  if (numbers.length && *numbers.length != bytes)
    throw InputError(fmt::format("it has {} bytes in {}, but its dims say {}", *numbers.length,
                                 excerpt(numbers.location), bytes));
  if (bytes > file.size() || numbers.offset > file.size() - bytes)
    throw InputError(fmt::format("{} ends before its numbers do", excerpt(numbers.location)));
  return file.read(numbers.offset, bytes);
}

ConstantPtr constant_from(const ElementType& type, const Dims& dims, const Numbers& numbers,
                          const std::string& folder) {
  const std::int64_t count = element_count(dims);
  constexpr std::int64_t kMost = std::int64_t{1} << 40;  // so that a product with a size does not overflow
  const auto wrong_size = [&](std::size_t there) {
    return InputError(fmt::format("it has the dims {}, but {} bytes or numbers", to_string(dims), there));
  };
  if (count > kMost) throw wrong_size(numbers.raw.size());
  Constant constant{dims, {}};
  std::string outside;
  std::string_view raw = numbers.raw;
  if (numbers.is_external)
    raw = outside = external_bytes(numbers, folder, static_cast<std::uint64_t>(count * type.bytes));
  if (numbers.has_raw || numbers.is_external) {
    if (std::ssize(raw) != count * type.bytes) throw wrong_size(raw.size());
    const auto convert = [&]<class T>(std::vector<T> to, T (*number)(const char*)) {
      to.reserve(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) to.push_back(number(raw.data() + i * type.bytes));
      constant.numbers = std::move(to);
    };
    if (type.real != nullptr)
      convert(std::vector<float>(), type.real);
    else
      convert(std::vector<std::int64_t>(), type.integer);
    return std::make_shared<const Constant>(std::move(constant));
  }
  constexpr std::int64_t kF16 = 10, kBf16 = 16;
  std::vector<float> floats = numbers.floats;
  if (type.code == kF16 || type.code == kBf16) {  // their bits are in int32_data
    for (const std::int64_t bits : numbers.integers)
      floats.push_back(type.code == kF16 ? from_f16(static_cast<std::uint16_t>(bits))
                                         : from_bf16(static_cast<std::uint16_t>(bits)));
  }
  if (type.real != nullptr) {
    if (std::ssize(floats) != count) throw wrong_size(floats.size());
    constant.numbers = std::move(floats);
  } else {
    if (std::ssize(numbers.integers) != count) throw wrong_size(numbers.integers.size());
    constant.numbers = numbers.integers;
  }
  return std::make_shared<const Constant>(std::move(constant));
}

}  // namespace

std::pair<std::string, std::string> read_texts(pbf_reader message) {
  std::pair<std::string, std::string> entry;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(1, pbf_wire_type::length_delimited): entry.first = message.get_string(); break;
      case tag_and_type(2, pbf_wire_type::length_delimited): entry.second = message.get_string(); break;
      default: message.skip();
    }
  }
  return entry;
}

std::int64_t Constant::count() const {
  return std::visit([](const auto& values) { return static_cast<std::int64_t>(values.size()); }, numbers);
}

double Constant::number(std::int64_t i) const {
  const auto at = static_cast<std::size_t>(i);
  return is_float() ? static_cast<double>(floats()[at]) : static_cast<double>(integers()[at]);
}

NamedStoredTensor read_tensor(pbf_reader message, const std::string& folder) {
  constexpr auto bytes = pbf_wire_type::length_delimited, varint = pbf_wire_type::varint,
                 fixed32 = pbf_wire_type::fixed32, fixed64 = pbf_wire_type::fixed64;
  NamedStoredTensor result;
  Dims dims;
  Numbers numbers;
  std::int64_t type_code = 0;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(field::dims, varint): dims.push_back(message.get_int64()); break;
      case tag_and_type(field::dims, bytes): append(dims, message.get_packed_int64()); break;
      case tag_and_type(field::data_type, varint): type_code = message.get_int64(); break;
      case tag_and_type(field::name, bytes): result.name = message.get_string(); break;
      case tag_and_type(field::raw_data, bytes):
        numbers.raw = view(message.get_view());
        numbers.has_raw = true;
        break;
      case tag_and_type(field::float_data, bytes): append(numbers.floats, message.get_packed_float()); break;
      case tag_and_type(field::float_data, fixed32): numbers.floats.push_back(message.get_float()); break;
      case tag_and_type(field::double_data, bytes):
        append(numbers.floats, message.get_packed_double());
        break;
      case tag_and_type(field::double_data, fixed64):
        numbers.floats.push_back(static_cast<float>(message.get_double()));
        break;
      case tag_and_type(field::int32_data, bytes):
      case tag_and_type(field::int64_data, bytes):
      case tag_and_type(field::uint64_data, bytes):
        append(numbers.integers, message.get_packed_int64());
        break;
      case tag_and_type(field::int32_data, varint):
      case tag_and_type(field::int64_data, varint):
      case tag_and_type(field::uint64_data, varint): numbers.integers.push_back(message.get_int64()); break;
      case tag_and_type(field::external_data, bytes):
        read_external_entry(message.get_message(), numbers);
        break;
      case tag_and_type(field::data_location, varint): numbers.is_external = message.get_int64() == 1; break;
      default: message.skip();
    }
  }
  const ElementType* type = find_type(type_code);
  if (dims.size() > kMostDims)
    result.tensor.problem = fmt::format("it has {} dimensions", dims.size());
  else if (std::any_of(dims.begin(), dims.end(), [](std::int64_t side) { return side < 0; }))
    result.tensor.problem = fmt::format("it has the dims {}", to_string(dims));
  else if (type == nullptr)
    result.tensor.problem = fmt::format("its numbers have the type {}, which is not read", type_code);
  if (!result.tensor.problem.empty()) return result;
  try {
    result.tensor.constant = constant_from(*type, dims, numbers, folder);
  } catch (const InputError& wrong) {
    result.tensor.problem = wrong.what();
  }
  return result;
}

}  // namespace convnet
