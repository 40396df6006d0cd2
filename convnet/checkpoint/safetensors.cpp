#include "convnet/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <utility>

#include "convnet/base/checksum.h"
#include "convnet/base/error.h"
#include "convnet/base/file_format.h"
#include "convnet/base/output_file.h"
#include "convnet/base/printable.h"
#include "convnet/checkpoint/stored_type.h"

namespace convnet {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as in the format's own library
constexpr std::size_t kMaxDims = 16;
constexpr const char* metadata_key = "__metadata__";

// ---- Checksums ----

constexpr const char* tensors_checksum_key = "checksum.tensors";
constexpr const char* metadata_checksum_key = "checksum.metadata";

/// A CRC-32 of texts and numbers. It includes their lengths, so that a byte cannot move from one to the next
/// unnoticed.
class Crc {
 public:
  void add(const void* bytes, std::size_t count) {
    const std::uint64_t length = count;
    crc_.add(&length, sizeof length);
    crc_.add(bytes, count);
  }
  void add(const std::string& text) { add(text.data(), text.size()); }
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.data(), values.size() * sizeof(T));
  }
  /// Eight hexadecimal digits.
  std::string text() const { return crc_.text(); }

 private:
  Crc32 crc_;
};

std::string checksum_of(const std::map<std::string, NamedTensor>& tensors) {
  Crc crc;
  for (const auto& [name, tensor] : tensors) {
    crc.add(name);
    crc.add(tensor.dims);
    crc.add(tensor.values);
  }
  return crc.text();
}

/// Returns the checksum of the metadata, which includes the entry with the checksum of the tensors.
std::string checksum_of(const std::map<std::string, std::string>& metadata) {
  Crc crc;
  for (const auto& [key, text] : metadata) {
    crc.add(key);
    crc.add(text);
  }
  return crc.text();
}

/// Removes the checksums from the metadata that was read from `file`. If there is only one of them, a name is
/// damaged.
void take_checksums(const std::string& file, TensorFile& contents, Checksums checksums) {
  auto& metadata = contents.metadata;
  const auto whole = metadata.extract(metadata_checksum_key);
  const std::string of_metadata = checksum_of(metadata);
  const auto tensors = metadata.extract(tensors_checksum_key);
  if (checksums == Checksums::ignore || (whole.empty() && tensors.empty())) return;
  const auto fail = [&](const char* part, const char* key) {
    throw InputError(fmt::format("{}: is damaged: its {} are not what was written, says '{}' in its metadata",
                                 file, part, key));
  };
  if (whole.empty() || whole.mapped() != of_metadata) fail("metadata", metadata_checksum_key);
  if (tensors.empty() || tensors.mapped() != checksum_of(contents.tensors))
    fail("tensors", tensors_checksum_key);
}

// ---- Reading ----

/// Formats a name from a file for an error message: shortened, without control characters.
std::string shown(const std::string& name) {
  constexpr std::size_t longest = 100;
  return "'" + replace_controls(name.substr(0, longest), '?') + (name.size() > longest ? "…'" : "'");
}

/// The position of a tensor: bytes [begin, end) of the data section.
struct TensorEntry {
  std::string name;
  const StoredType* type = nullptr;
  Dims dims;
  std::uint64_t begin = 0, end = 0;
};

struct Header {
  std::vector<TensorEntry> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// Converts the header's JSON to a Header. It handles each member as soon as it is complete and then drops
/// it, and stops at the first error, so that a hostile header never becomes a large tree in memory.
class HeaderParser {
 public:
  HeaderParser(const std::string& file, std::uint64_t data_bytes, TensorTypes types)
      : file_(file), data_bytes_(data_bytes), types_(types) {}

  Header parse(std::string_view text) {
    if (text.empty() || text[0] != '{') fail("the header is not a JSON object");
    // The JSON library takes a zero byte for the end.
    if (text.find('\0') != std::string_view::npos) fail("the header is not valid JSON");
    try {
      const json ignored = json::parse(text.begin(), text.end(), [this](int depth, auto event, json& value) {
        return on_event(depth, event, value);
      });
    } catch (const json::exception&) {
      fail("the header is not valid JSON");
    }
    check_tiling();
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw InputError(file_ + ": " + what); }
  [[noreturn]] void fail_tensor(const std::string& name, const std::string& what) const {
    fail(fmt::format("tensor {} {}", shown(name), what));
  }

  /// Depth is 0 for the header itself, 1 for its members, 2 for theirs. Returning false drops the value.
  bool on_event(int depth, json::parse_event_t event, json& value) {
    using Event = json::parse_event_t;
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        if (depth > 2) fail(fmt::format("the header nests too deeply in {}", shown(member_)));
        if (depth == 1 && event == Event::array_start)
          fail(fmt::format("{} is not an object", shown(member_)));
        if (depth == 1) fields_.clear();
        array_size_ = 0;
        return true;
      case Event::key:
        if (depth == 1) member_ = value.get<std::string>();
        if (!(depth == 1 ? members_ : fields_).insert(value.get<std::string>()).second)
          fail(fmt::format("the header has {} twice{}", shown(value.get<std::string>()),
                           depth == 1 ? "" : " in " + shown(member_)));
        return true;
      case Event::value:
        if (depth == 1) fail(fmt::format("{} is not an object", shown(member_)));
        if (depth == 3 && ++array_size_ > kMaxDims) fail_tensor(member_, "has a list of too many numbers");
        return true;
      case Event::object_end:
        if (depth != 1) return true;
        if (member_ == metadata_key)
          take_metadata(value);
        else
          take_tensor(value);
        return false;
      case Event::array_end: break;
    }
    return true;
  }

  void take_metadata(const json& object) {
    for (const auto& [key, value] : object.items()) {
      if (!value.is_string()) fail(fmt::format("metadata {} is not a string", shown(key)));
      header_.metadata.emplace(key, value.get<std::string>());
    }
  }

  void take_tensor(const json& object) {
    for (const auto& [key, value] : object.items())
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        fail_tensor(member_, "has an unknown member " + shown(key));
    if (object.size() != 3) fail_tensor(member_, "lacks one of dtype, shape, data_offsets");
    TensorEntry entry;
    entry.name = member_;
    entry.type = &type_of(object.at("dtype"));
    std::int64_t bytes = entry.type->bytes;
    for (std::uint64_t d : numbers(object.at("shape"), "shape")) {
      // Zeros are left out, so that the product of any part of the dimensions is in range too.
      const auto factor = std::max<std::uint64_t>(d, 1);
      if (__builtin_mul_overflow(bytes, factor, &bytes))
        fail_tensor(member_, "has a shape that is too large");
      entry.dims.push_back(static_cast<std::int64_t>(d));
    }
    if (std::count(entry.dims.begin(), entry.dims.end(), 0) > 0) bytes = 0;
    const std::vector<std::uint64_t> offsets = numbers(object.at("data_offsets"), "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1])
      fail_tensor(member_, "has data_offsets that are not [begin, end] with begin <= end");
    entry.begin = offsets[0];
    entry.end = offsets[1];
    if (entry.end > data_bytes_)
      fail_tensor(member_, fmt::format("ends at byte {} of the data, but the file holds {}: it is truncated",
                                       entry.end, data_bytes_));
    if (entry.end - entry.begin != static_cast<std::uint64_t>(bytes))
      fail_tensor(member_,
                  fmt::format("has shape {}, {} bytes, but its data_offsets [{}, {}] span {}",
                              to_string(entry.dims), bytes, entry.begin, entry.end, entry.end - entry.begin));
    header_.tensors.push_back(std::move(entry));
  }

  const StoredType& type_of(const json& dtype) const {
    const std::string name = dtype.is_string() ? dtype.get<std::string>() : "";
    const StoredType* found = find_stored_type(name);
    if (types_ == TensorTypes::f32 ? name != "F32" : found == nullptr)
      fail_tensor(
          member_,
          fmt::format("has dtype {}; {}", dtype.is_string() ? shown(name) : "of the wrong kind",
                      types_ == TensorTypes::f32 ? "only F32 is read" : "the format has no such type"));
    return *found;
  }

  std::vector<std::uint64_t> numbers(const json& list, const char* what) const {
    if (!list.is_array()) fail_tensor(member_, fmt::format("has a {} that is not a list", what));
    std::vector<std::uint64_t> result;
    for (const json& value : list) {
      if (!value.is_number_unsigned())
        fail_tensor(member_, fmt::format("has a {} with something other than whole numbers from 0", what));
      result.push_back(value.get<std::uint64_t>());
    }
    return result;
  }

  /// Checks that the tensors cover every byte of the data exactly once.
  void check_tiling() {
    auto& tensors = header_.tensors;
    std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    std::uint64_t at = 0;
    const TensorEntry* before = nullptr;
    for (const TensorEntry& tensor : tensors) {
      if (tensor.begin < at)
        fail_tensor(tensor.name, fmt::format("begins at byte {} of the data, inside tensor {}", tensor.begin,
                                             shown(before->name)));
      if (tensor.begin > at)
        fail_tensor(tensor.name,
                    fmt::format("begins at byte {} of the data; the bytes from {} on belong to no tensor",
                                tensor.begin, at));
      at = tensor.end;
      before = &tensor;
    }
    if (at != data_bytes_)
      fail(fmt::format("the tensors end at byte {} of the data, but the file holds {}: too long", at,
                       data_bytes_));
  }

  const std::string& file_;
  std::uint64_t data_bytes_;
  TensorTypes types_;
  Header header_;
  std::string member_;                      // being parsed
  std::set<std::string> members_, fields_;  // seen: of the header, of member_ (duplicates)
  std::size_t array_size_ = 0;
};

/// Copies the next `count` bytes of the file, which must exist, to `to`.
using ReadBytes = std::function<void(void* to, std::size_t count)>;

/// Reads a tensor, and converts its elements to float32.
NamedTensor read_tensor(TensorEntry& entry, const ReadBytes& read) {
  NamedTensor tensor;
  tensor.dims = std::move(entry.dims);
  const auto bytes = static_cast<std::size_t>(entry.end - entry.begin);
  const auto size = static_cast<std::size_t>(entry.type->bytes);
  tensor.values.resize(bytes / size);
  if (size == sizeof(float)) {
    read(tensor.values.data(), bytes);
    return tensor;
  }
  std::string raw(bytes, '\0');
  read(raw.data(), bytes);
  for (std::size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = entry.type->number(raw.data() + i * size);
  return tensor;
}

/// Returns what a file of another kind is, with what can be done about it, by its first bytes; "" if they do
/// not tell.
std::string other_kind(std::string_view first) {
  if (is_pickle(first)) return kIsPickle;
  const FileFormat* format = find_format(first);
  if (format != nullptr && format->kind == FileKind::model && *format->cure == '\0')
    return std::string("is ") + format->name + ", whose weights convnet cannot read";
  if (std::string text = other_format_text(first, "a safetensors file", ""); !text.empty()) return text;
  const auto is_text = [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\t' || c == '\r'; };
  if (std::all_of(first.begin(), first.end(), is_text)) return "is a text file, not a safetensors file";
  return "";
}

TensorFile parse(const std::string& name, std::uint64_t file_bytes, const ReadBytes& read,
                 Checksums checksums, TensorTypes types) {
  std::uint64_t header_bytes = 0;
  if (file_bytes < sizeof header_bytes)
    throw InputError(fmt::format("{}: it has {} bytes; a safetensors file has at least 8", name, file_bytes));
  read(&header_bytes, sizeof header_bytes);
  const std::uint64_t rest = file_bytes - sizeof header_bytes;
  if (header_bytes > rest) {
    std::string first(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
    first.resize(static_cast<std::size_t>(std::min<std::uint64_t>(file_bytes, kFormatBytes)));
    read(first.data() + sizeof header_bytes, first.size() - sizeof header_bytes);
    const std::string kind = other_kind(first);
    if (!kind.empty()) throw InputError(name + ": " + kind);
  }
  if (header_bytes > kMaxHeaderBytes)
    throw InputError(fmt::format("{}: not a safetensors file: a header of {} bytes; at most {} are allowed",
                                 name, header_bytes, kMaxHeaderBytes));
  if (header_bytes > rest)
    throw InputError(
        fmt::format("{}: truncated: a header of {} bytes is announced, {} follow", name, header_bytes, rest));
  std::string text(static_cast<std::size_t>(header_bytes), '\0');
  read(text.data(), text.size());
  Header header = HeaderParser(name, rest - header_bytes, types).parse(text);

  TensorFile contents;
  contents.metadata = std::move(header.metadata);
  for (TensorEntry& entry : header.tensors) {
    if (entry.type->number != nullptr) {
      contents.tensors[entry.name] = read_tensor(entry, read);
    } else {
      std::vector<std::byte> ignored(static_cast<std::size_t>(entry.end - entry.begin));
      read(ignored.data(), ignored.size());
    }
  }
  take_checksums(name, contents, checksums);
  return contents;
}

// ---- Writing ----

/// The length and the padded JSON, ready to be written.
std::string make_header(const std::string& path, const TensorFile& contents) {
  json header = json::object();
  std::map<std::string, std::string> metadata = contents.metadata;
  metadata[tensors_checksum_key] = checksum_of(contents.tensors);
  metadata.erase(metadata_checksum_key);
  metadata[metadata_checksum_key] = checksum_of(metadata);
  header[metadata_key] = std::move(metadata);
  std::uint64_t at = 0;
  for (const auto& [name, tensor] : contents.tensors) {
    if (name == metadata_key || element_count(tensor.dims) != static_cast<std::int64_t>(tensor.values.size()))
      throw std::logic_error(fmt::format("{}: tensor {} has a reserved name, or {} values for shape {}", path,
                                         shown(name), tensor.values.size(), to_string(tensor.dims)));
    const std::uint64_t end = at + tensor.values.size() * sizeof(float);
    header[name] = {{"dtype", "F32"}, {"shape", tensor.dims}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {
    throw RunError(fmt::format("{}: cannot be written: a name or a metadata text is not UTF-8", path));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t size = text.size();
  if (size > kMaxHeaderBytes)
    throw RunError(fmt::format("{}: cannot be written: the header would have {} bytes, the format allows {}",
                               path, size, kMaxHeaderBytes));
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes + text;
}

}  // namespace

void write_safetensors(const std::string& path, const TensorFile& contents) {
  const std::string header = make_header(path, contents);
  OutputFile file(path);
  file.write(header.data(), header.size());
  for (const auto& [name, tensor] : contents.tensors)
    file.write(tensor.values.data(), tensor.values.size() * sizeof(float));
  file.publish();
}

namespace {

TensorFile read_file(const std::string& path, TensorTypes types) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    throw InputError(fmt::format("{}: {}", path, fs::exists(path, error) ? "not a file" : "no such file"));
  std::ifstream file(path, std::ios::binary);
  const std::uintmax_t size = fs::file_size(path, error);
  if (!file || error) throw InputError(fmt::format("{}: cannot be opened", path));
  const ReadBytes read = [&](void* to, std::size_t count) {
    if (!file.read(static_cast<char*>(to), static_cast<std::streamsize>(count)))
      throw InputError(fmt::format("{}: cannot be read to its end", path));
  };
  return parse(path, size, read, Checksums::compare, types);
}

}  // namespace

TensorFile read_safetensors(const std::string& path) { return read_file(path, TensorTypes::f32); }

TensorFile read_any_safetensors(const std::string& path) { return read_file(path, TensorTypes::any); }

TensorFile parse_safetensors(const std::string& name, const std::string& bytes, Checksums checksums,
                             TensorTypes types) {
  std::size_t at = 0;
  const ReadBytes read = [&](void* to, std::size_t count) {
    if (count > 0) std::memcpy(to, bytes.data() + at, count);
    at += count;
  };
  return parse(name, bytes.size(), read, checksums, types);
}

}  // namespace convnet
