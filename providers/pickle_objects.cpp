// The names and calls in a pickle: bytes as Python 3 writes them, and NumPy arrays, types and scalars.
#include <algorithm>
#include <array>

#include "convnet/base/printable.h"
#include "convnet/base/utf8.h"
#include "providers/pickle_parser.h"

namespace convnet {
namespace {

using enum KnownGlobal;

struct NamedGlobal {
  std::string_view module, name;
  KnownGlobal what;
  PickleNames of = PickleNames::arrays;  ///< the pickles that may name it; those of tensors may name all
};
constexpr std::array<NamedGlobal, 22> kKnownGlobals = {{
    {"_codecs", "encode", encode},    // Python 3's bytes in protocols 0 to 2,
    {"__builtin__", "bytes", bytes},  // where b'' is bytes()
    {"builtins", "bytes", bytes},
    {"numpy.core.multiarray", "_reconstruct", reconstruct},
    {"numpy._core.multiarray", "_reconstruct", reconstruct},
    {"numpy.core.numeric", "_frombuffer", from_buffer},  // protocol 5
    {"numpy._core.numeric", "_frombuffer", from_buffer},
    {"numpy.core.multiarray", "scalar", scalar},
    {"numpy._core.multiarray", "scalar", scalar},
    {"numpy", "ndarray", ndarray},
    {"numpy", "dtype", dtype},
    {"collections", "OrderedDict", ordered_dict, PickleNames::tensors},
    {"collections", "Counter", ordered_dict, PickleNames::tensors},  // of a schedule with milestones
    {"torch._utils", "_rebuild_tensor", rebuild_tensor, PickleNames::tensors},
    {"torch._utils", "_rebuild_tensor_v2", rebuild_tensor, PickleNames::tensors},
    {"torch._utils", "_rebuild_parameter", rebuild_parameter, PickleNames::tensors},
    {"torch._utils", "_rebuild_parameter_with_state", rebuild_parameter, PickleNames::tensors},
    {"torch._tensor", "_rebuild_from_type_v2", rebuild_from_type, PickleNames::tensors},
    {"torch", "Tensor", tensor_class, PickleNames::tensors},
    {"torch.nn.parameter", "Parameter", tensor_class, PickleNames::tensors},
    {"torch.nn.parameter", "Buffer", tensor_class, PickleNames::tensors},
    {"torch", "Size", size, PickleNames::tensors},
}};

}  // namespace

const char* PickleParser::readable() const {
  return names_ == PickleNames::arrays
             ? "only data and NumPy arrays are read"
             : "only tensors and plain data are read, and nothing is run; in Python, "
               "torch.save(model.state_dict(), FILE) writes such a file";
}

bool PickleParser::object_step(unsigned char op) {
  switch (op) {
    case 'c': {
      const std::string_view module = take_line(), name = take_line();
      push_global(module, name);
      return true;
    }
    case 0x93: {
      const std::vector<std::uint32_t> names = pop_last(2);
      for (std::uint32_t name : names)
        if (node(name).kind != PickleKind::text)
          fail(fmt::format("a name should be text, not {}", describe(name)));
      push_global(node(names[0]).string, node(names[1]).string);
      return true;
    }
    case 'i': {
      const std::string_view module = take_line(), name = take_line();
      fail(fmt::format("it wants an object of {}.{} made; {}", printable(module), printable(name),
                       readable()));
    }
    case 'R': reduce(); return true;
    case 'b': build(); return true;
    case 0x81:
    case 0x92:  // a new object of a class, which gets its attributes by opcode b
      if (names_ == PickleNames::tensors) {
        const std::vector<std::uint32_t> values = pop_last(op == 0x81 ? 2 : 3);
        push(make_object(values[0]));
        return true;
      }
      [[fallthrough]];
    case 'o': fail(fmt::format("it wants an object made; {}", readable()));
    case 'Q':
      if (names_ == PickleNames::tensors) {
        push_persistent();
        return true;
      }
      [[fallthrough]];
    case 0x97:
    case 0x98:
      fail(
          "its buffers are not in the file, because it was pickled with buffer_callback=: save it by "
          "pickle.dump(data, file)");
    case 'P':  // also the first letter of a zip archive
      refuse_opcode(fmt::format("it refers to an object outside of the file; {}", readable()));
    case 0x82:
    case 0x83:
    case 0x84: fail(fmt::format("it names an object by a number of the copyreg registry; {}", readable()));
    default: return false;
  }
}

void PickleParser::push_global(std::string_view module, std::string_view name) {
  for (const NamedGlobal& known : kKnownGlobals)
    if (known.module == module && known.name == name &&
        (known.of == PickleNames::arrays || names_ == known.of))
      return push_new(PickleKind::global, static_cast<std::int64_t>(known.what));
  if (names_ == PickleNames::tensors) {
    constexpr std::size_t kLongestName = 200;  // several globals may have the same text by reference
    if (push_storage_class(module, name)) return;
    if (module.size() + name.size() <= kLongestName)
      return push_new(PickleKind::global, static_cast<std::int64_t>(other),
                      c_.decoded.emplace_back(fmt::format("{}.{}", module, name)));
  }
  fail(fmt::format("it refers to {}.{}; {}", printable(module), printable(name), readable()));
}

std::string_view PickleParser::bytes_of(std::uint32_t index, const char* what) {
  if (node(index).kind != PickleKind::bytes)
    fail(fmt::format("{} should be bytes, not {}", what, describe(index)));
  return node(index).string;
}

void PickleParser::reduce() {
  const std::uint32_t arg_tuple = pop(), function = pop();
  if (node(function).kind != PickleKind::global) fail(fmt::format("{} is called", describe(function)));
  if (node(arg_tuple).kind != PickleKind::tuple)
    fail(fmt::format("arguments should be a tuple, not {}", describe(arg_tuple)));
  const std::vector<std::uint32_t>& args = c_.items_of(node(arg_tuple));
  if (makes_plain_data(node(function))) return push(make_object(function));
  switch (known(node(function))) {
    case KnownGlobal::encode: return push(encode(args));
    case KnownGlobal::bytes:
      if (!args.empty()) fail("bytes() with arguments is not read");
      return push_new(PickleKind::bytes);
    case KnownGlobal::reconstruct: {
      const auto is_ndarray = [&](const Node& n) {
        return n.kind == PickleKind::global && known(n) == KnownGlobal::ndarray;
      };
      if (args.size() != 3 || !is_ndarray(node(args[0])))
        fail("a NumPy array starts with other arguments than NumPy writes");
      return push(make_array({}));
    }
    case KnownGlobal::from_buffer: return push(make_from_buffer(args));
    case KnownGlobal::scalar: return push(make_scalar(args));
    case KnownGlobal::dtype: return push(make_dtype(args));
    case KnownGlobal::ndarray: break;
    case KnownGlobal::other:
      fail(fmt::format("it wants {} called; {}", printable(node(function).string), readable()));
    default: return push(reduce_torch(known(node(function)), args));
  }
  fail("numpy.ndarray is called; NumPy writes arrays in another way");
}

/// The bytes that a text of Latin-1 letters stands for.
std::uint32_t PickleParser::encode(const std::vector<std::uint32_t>& args) {
  if (args.size() != 2 || node(args[0]).kind != PickleKind::text || node(args[1]).kind != PickleKind::text ||
      (node(args[1]).string != "latin1" && node(args[1]).string != "latin-1"))
    fail("_codecs.encode is read for a text in latin1 only");
  if (const auto known = encoded_.find(args[0]); known != encoded_.end()) return known->second;
  std::string_view text = node(args[0]).string;
  if (!std::all_of(text.begin(), text.end(), is_ascii)) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto lead = static_cast<unsigned char>(text[i]);
      if (lead < 0x80) {
        out += text[i];
        continue;
      }
      const bool tail = i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xc0) == 0x80;
      if ((lead != 0xc2 && lead != 0xc3) || !tail)
        fail("_codecs.encode: the text holds letters that are not in latin1");
      out += static_cast<char>((lead & 3) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3f));
    }
    text = c_.decoded.emplace_back(std::move(out));
  }
  const std::uint32_t made = add(PickleKind::bytes, 0, text);
  encoded_[args[0]] = made;
  return made;
}

std::uint32_t PickleParser::make_array(const PickleArray& array, PickleKind kind) {
  const std::uint32_t made = add(kind);
  node(made).child = static_cast<std::uint32_t>(c_.arrays.size());
  c_.arrays.push_back(array);
  return made;
}

std::uint32_t PickleParser::make_dtype(const std::vector<std::uint32_t>& args) {
  if (args.empty() || (node(args[0]).kind != PickleKind::text && node(args[0]).kind != PickleKind::bytes))
    fail("a NumPy type should be given by its name");
  const std::string_view name = node(args[0]).string;
  const auto type = parse_item_type(name);
  if (!type)
    fail(
        fmt::format("NumPy type '{}' is not read; bool, integers, float32 and float64 are", printable(name)));
  PickleArray prototype;
  prototype.type = type->first;
  prototype.item_bytes = type->second;
  return make_array(prototype, PickleKind::dtype);
}

std::uint32_t PickleParser::make_scalar(const std::vector<std::uint32_t>& args) {
  if (args.size() != 2 || node(args[0]).kind != PickleKind::dtype)
    fail("a NumPy scalar should have a type and bytes");
  PickleArray one = c_.arrays[node(args[0]).child];
  one.data = bytes_of(args[1], "a NumPy scalar's value");
  if (one.data.size() != static_cast<std::size_t>(one.item_bytes))
    fail(fmt::format("a NumPy scalar of {} bytes has {}", one.item_bytes, one.data.size()));
  if (one.type == 'f') return add(PickleKind::real, std::bit_cast<std::int64_t>(one.number(0)));
  const auto value = one.integer(0);
  if (!value) fail("an integer is beyond 64 bits");
  return add(one.type == 'b' ? PickleKind::boolean : PickleKind::integer, *value);
}

void PickleParser::build() {
  const std::uint32_t state_tuple = pop();
  need(1);
  const std::uint32_t object = stack_.back();
  const PickleKind kind = node(object).kind;
  if (kind == PickleKind::object) {
    items_of(object) = {state_tuple};
    return;
  }
  // The state of an OrderedDict is its attributes; that of a state_dict are the versions of modules.
  if (names_ == PickleNames::tensors && kind == PickleKind::dict &&
      node(state_tuple).kind == PickleKind::dict)
    return;
  if (kind != PickleKind::dtype && kind != PickleKind::array)
    fail(fmt::format("{} gets a state; only NumPy arrays and types have one", describe(object)));
  if (node(state_tuple).kind != PickleKind::tuple)
    fail(fmt::format("a state should be a tuple, not {}", describe(state_tuple)));
  const std::vector<std::uint32_t>& state = c_.items_of(node(state_tuple));
  if (kind == PickleKind::dtype)
    build_dtype(node(object), state);
  else
    build_array(node(object), state);
}

/// (version, byte order, …)
void PickleParser::build_dtype(Node& dtype, const std::vector<std::uint32_t>& state) {
  if (state.size() < 2 ||
      (node(state[1]).kind != PickleKind::text && node(state[1]).kind != PickleKind::bytes))
    fail("a NumPy type's state should hold its byte order");
  const std::string_view order = node(state[1]).string;
  if (order.size() != 1 || std::string_view("<>=|").find(order[0]) == std::string_view::npos)
    fail(fmt::format("'{}' is no byte order of a NumPy type", printable(order)));
  const char other = std::endian::native == std::endian::little ? '>' : '<';
  c_.arrays[dtype.child].swapped = order[0] == other;
}

/// (version, shape, type, whether the first index runs fastest, bytes)
void PickleParser::build_array(Node& array, const std::vector<std::uint32_t>& state) {
  if (state.size() != 5 || node(state[1]).kind != PickleKind::tuple ||
      node(state[2]).kind != PickleKind::dtype ||
      (node(state[3]).kind != PickleKind::boolean && node(state[3]).kind != PickleKind::integer))
    fail("a NumPy array's state is not (version, shape, type, order, bytes)");
  c_.arrays[array.child] = array_of(state[2], state[1], node(state[3]).number != 0, state[4]);
}

/// (bytes, type, shape, "C" or "F"), as protocol 5 has it for arrays whose numbers lie one after the other.
std::uint32_t PickleParser::make_from_buffer(const std::vector<std::uint32_t>& args) {
  const auto is_order = [&](const Node& n) {
    return n.kind == PickleKind::text && (n.string == "C" || n.string == "F");
  };
  if (args.size() != 4 || node(args[1]).kind != PickleKind::dtype ||
      node(args[2]).kind != PickleKind::tuple || !is_order(node(args[3])))
    fail("a NumPy array is not made of (bytes, type, shape, order)");
  return make_array(array_of(args[1], args[2], node(args[3]).string == "F", args[0]));
}

/// Returns the array of this type and shape, a tuple, whose numbers are the bytes `data`.
PickleArray PickleParser::array_of(std::uint32_t dtype, std::uint32_t shape, bool fortran,
                                   std::uint32_t data) {
  PickleArray built = c_.arrays[node(dtype).child];
  built.fortran = fortran;
  built.dims.clear();
  const std::vector<std::uint32_t>& sides = c_.items_of(node(shape));
  if (sides.size() > kMaxArrayDims) fail(fmt::format("a NumPy array has {} dimensions", sides.size()));
  for (std::uint32_t side : sides) {
    if (node(side).kind != PickleKind::integer || node(side).number < 0)
      fail(fmt::format("a side of a NumPy array is {}", describe(side)));
    built.dims.push_back(node(side).number);
  }
  built.data = bytes_of(data, "a NumPy array's data");
  const std::size_t item = static_cast<std::size_t>(built.item_bytes);
  if (built.data.size() % item != 0 || built.data.size() / item != item_count(built.dims))
    fail(fmt::format("a NumPy array of {} numbers of {} byte(s) has {} bytes", to_string(built.dims), item,
                     built.data.size()));
  return built;
}

}  // namespace convnet
