// The calls in a pickle of torch.save: dicts in order, storages, and tensors that view them.
#include <algorithm>
#include <array>

#include "convnet/base/printable.h"
#include "providers/pickle_parser.h"

namespace convnet {
namespace {

/// The types of numbers, as in the names of classes like torch.FloatStorage.
constexpr std::array<std::string_view, 12> kStorageTypes = {
    "Double", "Float", "Half", "BFloat16", "Long",         "Int",
    "Short",  "Char",  "Byte", "Bool",     "ComplexFloat", "ComplexDouble"};

/// The most elements of a storage: more than fit into any file, and few enough that no number of bytes
/// overflows.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;

}  // namespace

std::int64_t PickleTensor::extent() const {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0) return 0;
    last += (dims[i] - 1) * strides[i];
  }
  return last + 1;
}

bool PickleParser::push_storage_class(std::string_view module, std::string_view name) {
  constexpr std::string_view ending = "Storage";
  if (module != "torch" || !name.ends_with(ending)) return false;
  name.remove_suffix(ending.size());
  const auto* const type = std::find(kStorageTypes.begin(), kStorageTypes.end(), name);
  if (type == kStorageTypes.end()) return false;
  push_new(PickleKind::global, static_cast<std::int64_t>(KnownGlobal::storage_class), *type);
  return true;
}

/// Returns whether a call of this makes data that weights do not need: options of a training script, and
/// tensors of types that are not read. The parser refuses a file that wants anything else called.
bool PickleParser::makes_plain_data(const Node& function) const {
  static constexpr std::array<std::string_view, 26> names = {
      "__builtin__.bytearray", "__builtin__.complex",
      "__builtin__.frozenset", "__builtin__.range",
      "__builtin__.set",       "__builtin__.slice",
      "__builtin__.xrange",    "builtins.bytearray",
      "builtins.complex",      "builtins.frozenset",
      "builtins.range",        "builtins.set",
      "builtins.slice",        "collections.defaultdict",
      "collections.deque",     "datetime.date",
      "datetime.datetime",     "datetime.time",
      "datetime.timedelta",    "functools.partial",
      "pathlib.PosixPath",     "pathlib.PurePosixPath",
      "pathlib.WindowsPath",   "torch._utils._rebuild_qtensor",
      "torch.device",          "torch._utils._rebuild_tensor_v3"};
  return function.kind == PickleKind::global && known(function) == KnownGlobal::other &&
         std::find(names.begin(), names.end(), function.string) != names.end();
}

std::uint32_t PickleParser::make_object(std::uint32_t of_class) {
  const Node& named = node(of_class);
  if (named.kind != PickleKind::global) fail(fmt::format("an object is made of {}", describe(of_class)));
  const std::string_view name = known(named) == KnownGlobal::other ? named.string : "a class of PyTorch";
  return add(PickleKind::object, 0, name);
}

/// ('storage', its class, key, device, number of elements), in older files with one more item: None, or
/// (key of the view, offset, number of elements).
void PickleParser::push_persistent() {
  const std::uint32_t id = pop();
  const std::vector<std::uint32_t> items =
      node(id).kind == PickleKind::tuple ? c_.items_of(node(id)) : std::vector<std::uint32_t>();
  const auto is_string = [&](std::uint32_t index) {
    return node(index).kind == PickleKind::text || node(index).kind == PickleKind::bytes;
  };
  if (items.empty() || !is_string(items[0]))
    fail("it refers to an object outside of the pickle in no known way");
  // ('module', class, file and text of its source), in older files of whole models
  if (node(items[0]).string == "module" && items.size() == 4 && node(items[1]).kind == PickleKind::global)
    return push(items[1]);
  if (node(items[0]).string != "storage")
    fail(fmt::format("it refers to '{}' outside of the pickle; {}", printable(node(items[0]).string),
                     readable()));
  const auto is_class = [&](const Node& n) {
    return n.kind == PickleKind::global && known(n) == KnownGlobal::storage_class;
  };
  if ((items.size() != 5 && items.size() != 6) || !is_class(node(items[1])) || !is_string(items[2]) ||
      node(items[4]).kind != PickleKind::integer || node(items[4]).number < 0 ||
      node(items[4]).number > kMaxElements)
    fail("a storage should be a class, a key, a device and a number of elements");
  PickleStorage storage = {node(items[1]).string, node(items[2]).string, 0, node(items[4]).number};
  if (items.size() == 6 && node(items[5]).kind != PickleKind::none) {
    const std::vector<std::uint32_t>& view = c_.items_of(node(items[5]));
    if (node(items[5]).kind != PickleKind::tuple || view.size() != 3 ||
        node(view[1]).kind != PickleKind::integer || node(view[2]).kind != PickleKind::integer)
      fail("a view of a storage should be a key, an offset and a number of elements");
    const std::int64_t offset = node(view[1]).number, count = node(view[2]).number;
    if (offset < 0 || count < 0 || offset > storage.count || count > storage.count - offset)
      fail(fmt::format("a view of {} elements from {} on is not within a storage of {}", count, offset,
                       storage.count));
    storage.offset = offset;
    storage.count = count;
  }
  const std::uint32_t made = add(PickleKind::storage);
  node(made).child = static_cast<std::uint32_t>(c_.storages.size());
  c_.storages.push_back(storage);
  push(made);
}

std::uint32_t PickleParser::reduce_torch(KnownGlobal function, const std::vector<std::uint32_t>& args) {
  switch (function) {
    case KnownGlobal::ordered_dict: return make_ordered_dict(args);
    case KnownGlobal::rebuild_tensor: return make_tensor(args);
    case KnownGlobal::rebuild_parameter: return first_tensor(args);
    case KnownGlobal::rebuild_from_type: return make_from_type(args);
    case KnownGlobal::size:
      if (args.size() == 1 && node(args[0]).kind == PickleKind::tuple) return args[0];
      fail("torch.Size is called for something other than a tuple");
    default: fail("a class of PyTorch is called; torch.save writes tensors in another way");
  }
}

/// OrderedDict(), which is filled later, or as Python 2 has it OrderedDict([[key, value], …]); Counter({…}).
std::uint32_t PickleParser::make_ordered_dict(const std::vector<std::uint32_t>& args) {
  if (args.empty()) return add(PickleKind::dict);
  if (args.size() == 1 && node(args[0]).kind == PickleKind::dict) return args[0];  // a Counter's
  if (args.size() != 1 || node(args[0]).kind != PickleKind::list)
    fail("an OrderedDict is made of something other than a list of pairs");
  const std::uint32_t list = args[0];  // the arguments move when a dict gets items
  if (const auto made = ordered_.find(list); made != ordered_.end()) return made->second;
  std::vector<std::uint32_t> entries;
  for (const std::uint32_t pair : c_.items_of(node(list))) {
    const bool is_sequence = node(pair).kind == PickleKind::list || node(pair).kind == PickleKind::tuple;
    const std::vector<std::uint32_t>& items = c_.items_of(node(pair));
    if (!is_sequence || items.size() != 2)
      fail(fmt::format("an OrderedDict is made of {} instead of a pair", describe(pair)));
    entries.insert(entries.end(), items.begin(), items.end());
  }
  const std::uint32_t made = add(PickleKind::dict);
  if (!entries.empty()) items_of(made) = std::move(entries);
  ordered_[list] = made;
  return made;
}

Dims PickleParser::dims_of(std::uint32_t tuple, const char* what) {
  if (node(tuple).kind != PickleKind::tuple && node(tuple).kind != PickleKind::list)
    fail(fmt::format("{} of a tensor should be a tuple, not {}", what, describe(tuple)));
  const std::vector<std::uint32_t>& items = c_.items_of(node(tuple));
  if (items.size() > kMaxArrayDims) fail(fmt::format("a tensor has {} dimensions", items.size()));
  Dims dims;
  for (const std::uint32_t item : items) {
    if (node(item).kind != PickleKind::integer || node(item).number < 0)
      fail(fmt::format("{} of a tensor should be whole numbers from 0, not {}", what, describe(item)));
    dims.push_back(node(item).number);
  }
  return dims;
}

/// (storage, offset, size, stride, …); what follows is of training.
std::uint32_t PickleParser::make_tensor(const std::vector<std::uint32_t>& args) {
  if (args.size() < 4 || args.size() > 7 || node(args[0]).kind != PickleKind::storage ||
      node(args[1]).kind != PickleKind::integer)
    fail("a tensor should be a storage, an offset, a size and strides");
  PickleTensor tensor;
  tensor.storage = c_.storages[node(args[0]).child];
  tensor.offset = node(args[1]).number;
  tensor.dims = dims_of(args[2], "the size");
  tensor.strides = dims_of(args[3], "the strides");
  if (tensor.strides.size() != tensor.dims.size())
    fail(
        fmt::format("a tensor has {} dimensions, but {} strides", tensor.dims.size(), tensor.strides.size()));
  // The last element must be in the storage; then all are, and extent() does not overflow.
  std::int64_t last = tensor.offset;
  bool fits = last >= 0 && last <= tensor.storage.count;
  if (std::find(tensor.dims.begin(), tensor.dims.end(), 0) == tensor.dims.end()) {
    for (std::size_t i = 0; i < tensor.dims.size() && fits; ++i) {
      std::int64_t step = 0;
      fits = !__builtin_mul_overflow(tensor.dims[i] - 1, tensor.strides[i], &step) &&
             !__builtin_add_overflow(last, step, &last);
    }
    fits = fits && last < tensor.storage.count;
  }
  if (!fits)
    fail(fmt::format("a tensor of {} from number {} on is not within its storage of {} numbers",
                     to_string(tensor.dims), tensor.offset, tensor.storage.count));
  const std::uint32_t made = add(PickleKind::tensor);
  node(made).child = static_cast<std::uint32_t>(c_.tensors.size());
  c_.tensors.push_back(std::move(tensor));
  return made;
}

/// (tensor, …): a parameter is its tensor.
std::uint32_t PickleParser::first_tensor(const std::vector<std::uint32_t>& args) {
  if (args.empty() || node(args[0]).kind != PickleKind::tensor)
    fail("a parameter is made of something other than a tensor");
  return args[0];
}

/// (function, class, its arguments, state): a tensor that has attributes.
std::uint32_t PickleParser::make_from_type(const std::vector<std::uint32_t>& args) {
  const auto is_global = [&](std::uint32_t index, KnownGlobal what) {
    return node(index).kind == PickleKind::global && known(node(index)) == what;
  };
  if (args.size() != 4 || !is_global(args[1], KnownGlobal::tensor_class) ||
      node(args[2]).kind != PickleKind::tuple)
    fail("a tensor of another class than torch.Tensor is not read");
  const std::vector<std::uint32_t>& inner = c_.items_of(node(args[2]));
  if (is_global(args[0], KnownGlobal::rebuild_tensor)) return make_tensor(inner);
  if (is_global(args[0], KnownGlobal::rebuild_parameter)) return first_tensor(inner);
  fail("a tensor is made in another way than torch.save writes");
}

}  // namespace convnet
