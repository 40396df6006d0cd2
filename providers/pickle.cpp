#include "providers/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "convnet/base/printable.h"
#include "providers/pickle_parser.h"

namespace convnet {

namespace {

using Contents = PickleValue::Contents;
using Node = Contents::Node;

}  // namespace

std::string PickleValue::Contents::describe(const Node& node) const {
  switch (node.kind) {
    case PickleKind::none: return "None";
    case PickleKind::boolean: return node.number != 0 ? "True" : "False";
    case PickleKind::integer: return fmt::format("the integer {}", node.number);
    case PickleKind::real: return fmt::format("the number {}", std::bit_cast<double>(node.number));
    case PickleKind::text: return fmt::format("the text '{}'", printable(node.string));
    case PickleKind::bytes: return fmt::format("a string of {} bytes", node.string.size());
    case PickleKind::list: return fmt::format("a list of {} values", items_of(node).size());
    case PickleKind::tuple: return fmt::format("a tuple of {} values", items_of(node).size());
    case PickleKind::dict: return fmt::format("a dict of {} entries", items_of(node).size() / 2);
    case PickleKind::array: {
      const PickleArray& a = arrays[node.child];
      return fmt::format("an array of {} numbers of type {}{}", to_string(a.dims), a.type, a.item_bytes);
    }
    case PickleKind::global: return "the name of a function or class";
    case PickleKind::dtype: return "a NumPy type";
    case PickleKind::storage: return fmt::format("a storage of {} numbers", storages[node.child].count);
    case PickleKind::tensor:
      return fmt::format("a tensor of {} numbers", to_string(tensors[node.child].dims));
    case PickleKind::object: return fmt::format("an object of {}", printable(node.string));
  }
  return "";
}

PickleKind PickleValue::kind() const { return contents_->nodes[index_].kind; }

std::string PickleValue::describe() const { return contents_->describe(contents_->nodes[index_]); }

void PickleValue::fail(const std::string& what) const {
  contents_->fail(contents_->nodes[index_].offset, what);
}

std::size_t PickleValue::size() const {
  const Node& node = contents_->nodes[index_];
  switch (node.kind) {
    case PickleKind::array: break;
    case PickleKind::global:
    case PickleKind::dtype:
    case PickleKind::storage:
    case PickleKind::tensor:
    case PickleKind::object: return 0;
    default: return contents_->items_of(node).size();
  }
  const Dims& dims = contents_->arrays[node.child].dims;
  return dims.empty() ? 0 : static_cast<std::size_t>(dims[0]);
}

PickleValue PickleValue::operator[](std::size_t i) const {
  return {contents_, contents_->items_of(contents_->nodes[index_]).at(i)};
}

std::optional<PickleValue> PickleValue::find(std::string_view key) const {
  if (kind() != PickleKind::dict) return std::nullopt;
  const std::vector<std::uint32_t>& items = contents_->items_of(contents_->nodes[index_]);
  for (std::size_t i = items.size(); i > 1; i -= 2) {  // the last one counts
    const Node& node = contents_->nodes[items[i - 2]];
    if ((node.kind == PickleKind::text || node.kind == PickleKind::bytes) && node.string == key)
      return PickleValue(contents_, items[i - 1]);
  }
  return std::nullopt;
}

PickleValue PickleValue::at(std::string_view key) const {
  if (kind() != PickleKind::dict) fail(fmt::format("a dict should be here, not {}", describe()));
  if (const auto found = find(key)) return *found;
  std::vector<std::string> known = keys();
  known.resize(std::min<std::size_t>(known.size(), 20));
  fail(fmt::format("there is no '{}'; {}", key,
                   known.empty() ? "it is empty" : fmt::format("the keys are {}", fmt::join(known, ", "))));
}

std::optional<PickleValue> PickleValue::attributes() const {
  const Contents::Node& node = contents_->nodes[index_];
  if (node.kind != PickleKind::object || contents_->items_of(node).empty()) return std::nullopt;
  return PickleValue(contents_, contents_->items_of(node).front());
}

std::vector<std::string> PickleValue::keys() const {
  std::vector<std::string> keys;
  if (kind() != PickleKind::dict) return keys;
  const std::vector<std::uint32_t>& items = contents_->items_of(contents_->nodes[index_]);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    const Node& node = contents_->nodes[items[i]];
    if (node.kind == PickleKind::text || node.kind == PickleKind::bytes)
      keys.push_back(printable(node.string));
  }
  return keys;
}

std::vector<std::pair<std::string_view, PickleValue>> PickleValue::entries() const {
  std::vector<std::pair<std::string_view, PickleValue>> entries;
  if (kind() != PickleKind::dict) return entries;
  const std::vector<std::uint32_t>& items = contents_->items_of(contents_->nodes[index_]);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    const Node& node = contents_->nodes[items[i]];
    if (node.kind == PickleKind::text || node.kind == PickleKind::bytes)
      entries.emplace_back(node.string, PickleValue(contents_, items[i + 1]));
  }
  return entries;
}

std::int64_t PickleValue::integer(const std::string& what) const {
  const Node& node = contents_->nodes[index_];
  if (node.kind == PickleKind::integer || node.kind == PickleKind::boolean) return node.number;
  const auto value =
      node.kind == PickleKind::real ? whole_number(std::bit_cast<double>(node.number)) : std::nullopt;
  if (!value) fail(fmt::format("{} should be an integer, not {}", what, describe()));
  return *value;
}

double PickleValue::number(const std::string& what) const {
  const Node& node = contents_->nodes[index_];
  if (node.kind == PickleKind::real) return std::bit_cast<double>(node.number);
  if (node.kind != PickleKind::integer && node.kind != PickleKind::boolean)
    fail(fmt::format("{} should be a number, not {}", what, describe()));
  return static_cast<double>(node.number);
}

std::string_view PickleValue::string(const std::string& what) const {
  if (kind() != PickleKind::text && kind() != PickleKind::bytes)
    fail(fmt::format("{} should be text, not {}", what, describe()));
  return contents_->nodes[index_].string;
}

const PickleArray& PickleValue::array(const std::string& what) const {
  if (kind() != PickleKind::array) fail(fmt::format("{} should be a NumPy array, not {}", what, describe()));
  return contents_->arrays[contents_->nodes[index_].child];
}

const PickleTensor& PickleValue::tensor(const std::string& what) const {
  if (kind() != PickleKind::tensor) fail(fmt::format("{} should be a tensor, not {}", what, describe()));
  return contents_->tensors[contents_->nodes[index_].child];
}

const std::vector<PickleStorage>& PickleValue::storages() const { return contents_->storages; }

std::vector<std::int64_t> PickleValue::integers(const std::string& what) const {
  std::vector<std::int64_t> values;
  if (kind() == PickleKind::array) {
    const PickleArray& a = array(what);
    values.reserve(item_count(a.dims));
    each_in_c_order(a, [&](std::size_t item) {
      const auto value = a.integer(item);
      if (!value)
        fail(fmt::format("item {} of {} should be an integer of at most 64 bits, not {}", values.size(), what,
                         a.number(item)));
      values.push_back(*value);
    });
    return values;
  }
  if (!is_sequence()) fail(fmt::format("{} should be a list of integers, not {}", what, describe()));
  for (std::size_t i = 0; i < size(); ++i)
    values.push_back((*this)[i].integer(fmt::format("item {} of {}", i, what)));
  return values;
}

std::size_t PickleValue::file_bytes() const { return contents_->file->size(); }

std::vector<std::string> PickleValue::strings(const std::string& what, bool numbered) const {
  if (!is_sequence()) fail(fmt::format("{} should be a list of names, not {}", what, describe()));
  std::vector<std::string> strings;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    const PickleValue item = (*this)[i];
    if (numbered && item.kind() != PickleKind::text && item.kind() != PickleKind::bytes) {
      strings.push_back(std::to_string(i));
      continue;
    }
    strings.emplace_back(item.string("a name in " + what));
    bytes += strings.back().size();
    if (bytes > file_bytes()) fail(fmt::format("the names in {} have more bytes than the file", what));
  }
  return strings;
}

std::vector<double> PickleValue::numbers(const std::string& what) const {
  std::vector<double> values;
  if (kind() == PickleKind::array) {
    const PickleArray& a = array(what);
    values.reserve(item_count(a.dims));
    each_in_c_order(a, [&](std::size_t item) { values.push_back(a.number(item)); });
    return values;
  }
  if (!is_sequence()) fail(fmt::format("{} should be a list of numbers, not {}", what, describe()));
  for (std::size_t i = 0; i < size(); ++i)
    values.push_back((*this)[i].number(fmt::format("item {} of {}", i, what)));
  return values;
}

PickleValue parse_pickle_at(std::shared_ptr<const std::string> file, std::size_t& at, std::string name,
                            PickleNames names) {
  auto contents = std::make_shared<Contents>();
  contents->name = std::move(name);
  contents->file = std::move(file);
  at = PickleParser(*contents, at, names).parse();
  const std::uint32_t root = contents->root;
  return {std::move(contents), root};
}

PickleValue parse_pickle(std::string bytes, std::string name) {
  std::size_t at = 0;
  return parse_pickle_at(std::make_shared<const std::string>(std::move(bytes)), at, std::move(name),
                         PickleNames::arrays);
}

PickleValue read_pickle(const std::string& path) { return parse_pickle(read_whole_file(path), path); }

std::vector<std::string> read_file_names(const PickleValue& batch, std::int64_t images) {
  const std::optional<PickleValue> names = batch.find("filenames");
  if (!names || names->is_none()) return {};
  if (!names->is_sequence() || static_cast<std::int64_t>(names->size()) != images)
    names->fail(fmt::format("filenames should be a list of {} names, one for each image, not {}", images,
                            names->describe()));
  return names->strings("filenames");
}

std::vector<float> read_mean_image(const PickleValue& data_mean) {
  const std::vector<double> values = data_mean.numbers("data_mean");
  if (!std::all_of(values.begin(), values.end(), [](double v) { return std::abs(v) < 1e30; }))
    data_mean.fail("data_mean holds numbers that are not finite, or beyond any pixel");
  return {values.begin(), values.end()};
}

}  // namespace convnet
