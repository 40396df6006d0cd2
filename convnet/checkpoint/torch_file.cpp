#include "convnet/checkpoint/torch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "convnet/base/endian.h"
#include "convnet/base/error.h"
#include "convnet/base/file_format.h"
#include "convnet/base/printable.h"
#include "convnet/checkpoint/stored_type.h"
#include "convnet/checkpoint/zip_archive.h"
#include "providers/pickle.h"

namespace convnet {
namespace {

/// The first pickle of the older form: the number 0x1950a86a20f9469cfc6c.
constexpr std::string_view kMagic("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
constexpr std::int64_t kOldProtocol = 1001;

/// The keys under which trainers keep a state_dict, the best first: averages are what tests saw.
constexpr std::array<const char*, 12> kPlaces = {
    "state_dict_ema", "model_ema", "ema_state_dict", "ema",     "state_dict", "model_state_dict",
    "model",          "net",       "network",        "weights", "params",     "module"};
constexpr int kDeepestPlace = 2, kDeepestModule = 100;
constexpr std::size_t kMostEntries =
    64;  ///< of a dict without a usual key in which a state_dict is looked for

/// The bytes that all tensors together may take in memory, for each byte of the file. A tensor that is stored
/// once needs at most four of them; several may view the same numbers.
constexpr std::uint64_t kMostGrowth = 16;

// ---- The state_dict ----

using Tensors = std::vector<std::pair<std::string, PickleTensor>>;

struct StateDict {
  PickleValue value;  ///< for messages
  Tensors tensors;
  std::string place = {};
};

/// Collects the tensors of a state_dict, or of a model that was saved whole.
class TensorCollector {
 public:
  explicit TensorCollector(const PickleValue& value)
      : value_(value), room_(value.file_bytes() * kMostGrowth) {}

  Tensors collect() {
    add_tensors(value_, "");
    add_module(value_, "", kDeepestModule);
    return std::move(tensors_);
  }

 private:
  /// A file may repeat values by reference, so what is made of them is counted.
  void take(std::uint64_t bytes) {
    if (bytes > room_) value_.fail("its values contain each other more often than those of a model do");
    room_ -= bytes;
  }

  void add_tensors(const PickleValue& dict, const std::string& prefix) {
    for (const auto& [key, value] : dict.entries()) {
      take(1);
      if (value.kind() != PickleKind::tensor) continue;
      take(prefix.size() + key.size() + sizeof(Tensors::value_type));
      tensors_.emplace_back(prefix + std::string(key), value.tensor("an entry"));
    }
  }

  /// Adds the parameters and buffers of an object of torch.nn.Module, and those of the modules in it, under
  /// the names that state_dict() gives them.
  void add_module(const PickleValue& module, const std::string& prefix, int depth) {
    const std::optional<PickleValue> attributes = module.attributes();
    if (!attributes) return;
    take(1 + attributes->size());
    for (const char* const kind : {"_parameters", "_buffers"})
      if (const auto dict = attributes->find(kind)) add_tensors(*dict, prefix);
    const auto modules = attributes->find("_modules");
    if (!modules) return;
    if (depth == 0) value_.fail("its modules are nested too deeply");
    for (const auto& [name, inner] : modules->entries()) {
      take(prefix.size() + name.size() + 1);
      add_module(inner, prefix + std::string(name) + ".", depth - 1);
    }
  }

  const PickleValue& value_;
  std::uint64_t room_;
  Tensors tensors_;
};

/// Returns the tensors of a state_dict, or of a model that was saved whole; none of other values.
Tensors tensors_of(const PickleValue& value) {
  Tensors tensors = TensorCollector(value).collect();
  // A single number beside a state_dict is a cost or a count.
  const bool only_numbers =
      std::all_of(tensors.begin(), tensors.end(), [](const auto& t) { return t.second.dims.empty(); });
  return only_numbers ? Tensors() : tensors;
}

/// Looks for the state_dict of a file. A value that the file repeats is searched once.
class StateDictSearch {
 public:
  /// Returns the state_dict that is `value` or within it, at most `depth` dicts deep; nullopt if there is
  /// none.
  std::optional<StateDict> find(const PickleValue& value, int depth) {
    const auto known = depth_in_vain_.find(value.id());
    if (known != depth_in_vain_.end() && known->second >= depth) return std::nullopt;
    std::optional<StateDict> found = find_anew(value, depth);
    if (!found) depth_in_vain_[value.id()] = depth;
    return found;
  }

 private:
  std::optional<StateDict> find_anew(const PickleValue& value, int depth) {
    const auto within = [&](const std::string& key, const PickleValue& inner) -> std::optional<StateDict> {
      std::optional<StateDict> found = find(inner, depth - 1);
      if (found) found->place = key + (found->place.empty() ? "" : "." + found->place);
      return found;
    };
    if (depth > 0) {
      for (const char* key : kPlaces) {
        const auto inner = value.find(key);
        if (!inner) continue;
        if (auto found = within(key, *inner)) return found;
      }
    }
    if (Tensors tensors = tensors_of(value); !tensors.empty()) return StateDict{value, std::move(tensors)};
    const auto entries = value.entries();
    if (depth < kDeepestPlace || entries.size() > kMostEntries) return std::nullopt;
    std::optional<StateDict> only;
    for (const auto& [key, inner] : entries) {
      auto found = within(printable(key), inner);
      if (found && only) return std::nullopt;  // nobody can tell which one is meant
      if (found) only = std::move(found);
    }
    return only;
  }

  std::map<std::uint32_t, int>
      depth_in_vain_;  ///< by the value's id: the depth to which it has no state_dict
};

StateDict state_dict_of(const PickleValue& root) {
  if (auto found = StateDictSearch().find(root, kDeepestPlace)) return *std::move(found);
  std::vector<std::string> keys = root.keys();
  keys.resize(std::min<std::size_t>(keys.size(), 20));
  const std::string with = keys.empty() ? "" : fmt::format(" with {}", fmt::join(keys, ", "));
  root.fail(
      fmt::format("{}{} holds no state_dict; in Python, torch.save(model.state_dict(), FILE) writes one",
                  root.describe(), with));
}

// ---- Tensors ----

const StoredType& type_of(const PickleStorage& storage) {
  static const std::map<std::string_view, const char*> names = {
      {"Double", "F64"}, {"Float", "F32"}, {"Half", "F16"},         {"BFloat16", "BF16"},
      {"Long", "I64"},   {"Int", "I32"},   {"Short", "I16"},        {"Char", "I8"},
      {"Byte", "U8"},    {"Bool", "BOOL"}, {"ComplexFloat", "C64"}, {"ComplexDouble", "C128"}};
  return *find_stored_type(names.at(storage.type));
}

/// Returns `bytes` bytes of a key's numbers, from byte `offset` on.
using ReadNumbers =
    std::function<std::string(std::string_view key, std::uint64_t offset, std::uint64_t bytes)>;

/// The numbers of a file, and how they are stored.
struct Numbers {
  ReadNumbers read;
  bool big_endian = false;
};

/// Reads the elements of a tensor, in row-major order.
std::vector<float> read_elements(const PickleTensor& tensor, const Numbers& numbers) {
  const StoredType& type = type_of(tensor.storage);
  const auto size = static_cast<std::size_t>(type.bytes);
  const auto count = static_cast<std::size_t>(element_count(tensor.dims));
  if (count == 0) return {};
  std::string raw = numbers.read(tensor.storage.key,
                                 static_cast<std::uint64_t>(tensor.storage.offset + tensor.offset) * size,
                                 static_cast<std::uint64_t>(tensor.extent()) * size);
  if (numbers.big_endian != (std::endian::native == std::endian::big))
    for (std::size_t at = 0; at < raw.size(); at += size)
      std::reverse(raw.begin() + static_cast<std::ptrdiff_t>(at),
                   raw.begin() + static_cast<std::ptrdiff_t>(at + size));
  std::vector<float> values(count);
  std::vector<std::int64_t> index(tensor.dims.size(), 0);
  std::int64_t at = 0;
  for (float& value : values) {
    value = type.number(raw.data() + static_cast<std::size_t>(at) * size);
    for (std::size_t d = index.size(); d-- > 0;) {
      at += tensor.strides[d];
      if (++index[d] < tensor.dims[d]) break;
      at -= index[d] * tensor.strides[d];
      index[d] = 0;
    }
  }
  return values;
}

TensorFile read_tensors(const InputFile& file, const StateDict& dict, const Numbers& numbers) {
  std::map<std::string_view, PickleTensor> last;  // of a key that is there twice, the last entry counts
  for (const auto& [key, tensor] : dict.tensors) last.insert_or_assign(key, tensor);
  TensorFile contents;
  std::uint64_t room = file.size() * kMostGrowth;
  for (const auto& [key, tensor] : last) {
    if (type_of(tensor.storage).number == nullptr) continue;
    const auto take = [&](std::int64_t count, std::uint64_t bytes) {
      if (static_cast<std::uint64_t>(count) > room / bytes)
        throw InputError(
            fmt::format("{}: its tensors view the same numbers so often that they would take more "
                        "than {} times the file's size",
                        file.path(), kMostGrowth));
      room -= static_cast<std::uint64_t>(count) * bytes;
    };
    take(tensor.extent(), static_cast<std::uint64_t>(type_of(tensor.storage).bytes));
    take(element_count(tensor.dims), sizeof(float));
    contents.tensors[std::string(key)] = {tensor.dims, read_elements(tensor, numbers)};
  }
  if (contents.tensors.empty()) dict.value.fail("the state_dict has no tensor of floating-point numbers");
  return contents;
}

// ---- The two forms of files ----

TorchWeights read_zip(const InputFile& file) {
  const ZipArchive archive(file);
  constexpr std::string_view pickle_name = "/data.pkl";
  std::string folder;
  for (const auto& [name, entry] : archive.entries())
    if (folder.empty() && name.ends_with(pickle_name) && name.find('/') == name.size() - pickle_name.size())
      folder = name.substr(0, name.size() - pickle_name.size() + 1);
  if (folder.empty())
    throw InputError(
        fmt::format("{}: {}", file.path(),
                    other_format_text(format_bytes(file), "a file of torch.save",
                                      "is a zip archive, not a file of torch.save: it has no data.pkl")));
  if (archive.entries().contains(folder + "constants.pkl"))
    throw InputError(file.path() +
                     ": is a program of TorchScript; in Python, "
                     "torch.save(torch.jit.load(FILE).state_dict(), OTHER) writes its weights");
  const std::string order = folder + "byteorder";
  Numbers numbers;
  numbers.read = [&](std::string_view key, std::uint64_t offset, std::uint64_t bytes) {
    return archive.read(folder + "data/" + std::string(key), offset, bytes);
  };
  numbers.big_endian = archive.entries().contains(order) && archive.read(order) == "big";
  std::size_t at = 0;
  const PickleValue root =
      parse_pickle_at(std::make_shared<const std::string>(archive.read(folder + "data.pkl")), at,
                      file.path() + ": data.pkl", PickleNames::tensors);
  const StateDict found = state_dict_of(root);
  return {read_tensors(file, found, numbers), found.place};
}

/// Where the numbers of a key are in a file.
struct Place {
  std::uint64_t begin = 0, bytes = 0;
};

/// Finds the numbers of the older form, which follow the pickles from byte `at` on: for each key its number
/// of elements, and these.
std::map<std::string_view, Place> find_numbers(const std::string& contents, std::size_t at,
                                               const PickleValue& root, const PickleValue& keys,
                                               bool big_endian) {
  std::map<std::string_view, const PickleStorage*> storages;
  for (const PickleStorage& storage : root.storages()) storages.try_emplace(storage.key, &storage);
  if (!keys.is_sequence()) keys.fail("a list of keys of numbers should be here, not " + keys.describe());
  std::map<std::string_view, Place> places;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::string_view key = keys[i].string("a key of numbers");
    const auto storage = storages.find(key);
    if (storage == storages.end()) keys[i].fail("numbers are in the file that nothing refers to");
    constexpr std::size_t kCount = 8;  // bytes
    if (contents.size() - at < kCount) keys[i].fail("the file is truncated: the numbers are missing");
    const std::uint64_t count =
        integer_of(contents, at, kCount, big_endian ? std::endian::big : std::endian::little);
    at += kCount;
    const auto size = static_cast<std::uint64_t>(type_of(*storage->second).bytes);
    if (count > (contents.size() - at) / size)
      keys[i].fail(
          fmt::format("the file is truncated: {} numbers of {} bytes should follow byte {}, there are "
                      "{} bytes",
                      count, size, at, contents.size() - at));
    places.try_emplace(key, Place{at, count * size});
    at += static_cast<std::size_t>(count * size);
  }
  return places;
}

TorchWeights read_old(const InputFile& file) {
  const auto contents = std::make_shared<const std::string>(file.read(0, file.size()));
  std::size_t at = kMagic.size();
  const auto next = [&] { return parse_pickle_at(contents, at, file.path(), PickleNames::tensors); };
  const PickleValue protocol = next();
  if (protocol.integer("the version of the format") != kOldProtocol)
    protocol.fail(fmt::format("the version of the format is {}, not {}", protocol.describe(), kOldProtocol));
  const PickleValue system = next(), root = next(), keys = next();
  const auto little = system.find("little_endian");
  const bool big_endian = little && little->integer("little_endian") == 0;
  const auto places = find_numbers(*contents, at, root, keys, big_endian);
  Numbers numbers;
  numbers.big_endian = big_endian;
  numbers.read = [&](std::string_view key, std::uint64_t offset, std::uint64_t bytes) {
    const auto place = places.find(key);
    if (place == places.end() || offset > place->second.bytes || bytes > place->second.bytes - offset)
      throw InputError(fmt::format("{}: numbers '{}' have {} bytes; {} from byte {} on are needed",
                                   file.path(), printable(key),
                                   place == places.end() ? 0 : place->second.bytes, bytes, offset));
    return contents->substr(static_cast<std::size_t>(place->second.begin + offset),
                            static_cast<std::size_t>(bytes));
  };
  const StateDict found = state_dict_of(root);
  return {read_tensors(file, found, numbers), found.place};
}

}  // namespace

bool is_torch_file(std::string_view first) {
  return first.starts_with("PK\3\4") || first.starts_with(kMagic);
}

TorchWeights read_torch_file(const InputFile& file) {
  const std::string first = file.read(0, std::min<std::uint64_t>(file.size(), kMagic.size()));
  return first.starts_with(kMagic) ? read_old(file) : read_zip(file);
}

}  // namespace convnet
