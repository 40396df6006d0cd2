#include "providers/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <deque>
#include <limits>
#include <unordered_map>

#include "kernels/error.h"
#include "providers/file.h"

namespace convnet {
namespace {

/// Of one file: bounds the memory of files that are nothing but tiny values.
constexpr std::size_t max_values = std::size_t{1} << 24;
constexpr std::size_t max_array_dims = 32;

/// What a pickle may name. They are understood, not called.
enum class Known : std::int64_t { encode, bytes, reconstruct, scalar, ndarray, dtype };

struct KnownGlobal {
  std::string_view module, name;
  Known what;
};
constexpr std::array<KnownGlobal, 9> known_globals = {{
    {"_codecs", "encode", Known::encode},    // Python 3's bytes in protocols 0 to 2,
    {"__builtin__", "bytes", Known::bytes},  // where b'' is bytes()
    {"builtins", "bytes", Known::bytes},
    {"numpy.core.multiarray", "_reconstruct", Known::reconstruct},
    {"numpy._core.multiarray", "_reconstruct", Known::reconstruct},
    {"numpy.core.multiarray", "scalar", Known::scalar},
    {"numpy._core.multiarray", "scalar", Known::scalar},
    {"numpy", "ndarray", Known::ndarray},
    {"numpy", "dtype", Known::dtype},
}};

void append_utf8(std::string& out, std::uint32_t code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

/// The number that `count` hexadecimal digits at `at` make.
std::optional<std::uint32_t> hex_digits(std::string_view text, std::size_t at, std::size_t count) {
  if (at + count > text.size()) return std::nullopt;
  std::uint32_t value = 0;
  const char* const end = text.data() + at + count;
  const auto [stop, error] = std::from_chars(text.data() + at, end, value, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

template <class T>
T load_item(const char* from, bool swapped) {
  std::array<char, sizeof(T)> bytes;
  std::memcpy(bytes.data(), from, sizeof(T));
  if (swapped) std::reverse(bytes.begin(), bytes.end());
  return std::bit_cast<T>(bytes);
}

/// Calls `use` with the item as the C++ type it has.
template <class Use>
auto with_item(const PickleArray& a, std::size_t item, const Use& use) {
  const char* const from = a.data.data() + item * static_cast<std::size_t>(a.item_bytes);
  if (a.type == 'f')
    return a.item_bytes == 4 ? use(load_item<float>(from, a.swapped))
                             : use(load_item<double>(from, a.swapped));
  const bool is_signed = a.type == 'i';
  switch (a.item_bytes) {
    case 1:
      return is_signed ? use(load_item<std::int8_t>(from, false)) : use(load_item<std::uint8_t>(from, false));
    case 2:
      return is_signed ? use(load_item<std::int16_t>(from, a.swapped))
                       : use(load_item<std::uint16_t>(from, a.swapped));
    case 4:
      return is_signed ? use(load_item<std::int32_t>(from, a.swapped))
                       : use(load_item<std::uint32_t>(from, a.swapped));
    default:
      return is_signed ? use(load_item<std::int64_t>(from, a.swapped))
                       : use(load_item<std::uint64_t>(from, a.swapped));
  }
}

/// "u1", "i8", "f4", …: type and bytes of an item, if it is a type that is read.
std::optional<std::pair<char, int>> parse_type(std::string_view name) {
  if (name.size() != 2) return std::nullopt;
  const char type = name[0];
  const int bytes = name[1] - '0';
  const bool right = type == 'b'                  ? bytes == 1
                     : type == 'i' || type == 'u' ? bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8
                                                  : type == 'f' && (bytes == 4 || bytes == 8);
  if (!right) return std::nullopt;
  return std::pair(type, bytes);
}

std::size_t item_count(const Dims& dims) { return static_cast<std::size_t>(element_count(dims)); }

/// Calls `visit` with the place in memory of each item of an array, in C order.
template <class Visit>
void each_in_c_order(const PickleArray& a, const Visit& visit) {
  const std::size_t count = item_count(a.dims);
  if (!a.fortran || a.dims.size() < 2) {
    for (std::size_t i = 0; i < count; ++i) visit(i);
    return;
  }
  std::vector<std::size_t> strides, index(a.dims.size(), 0);
  std::size_t stride = 1;
  for (std::int64_t dim : a.dims) {
    strides.push_back(stride);
    stride *= static_cast<std::size_t>(dim);
  }
  for (std::size_t i = 0, at = 0; i < count; ++i) {
    visit(at);
    for (std::size_t d = index.size(); d-- > 0;) {
      at += strides[d];
      if (++index[d] < static_cast<std::size_t>(a.dims[d])) break;
      at -= index[d] * strides[d];
      index[d] = 0;
    }
  }
}

}  // namespace

double PickleArray::number(std::size_t item) const {
  return with_item(*this, item, [](auto value) { return static_cast<double>(value); });
}

std::optional<std::int64_t> PickleArray::integer(std::size_t item) const {
  if (type == 'f') return std::nullopt;
  return with_item(*this, item, [](auto value) -> std::optional<std::int64_t> {
    if constexpr (std::is_same_v<decltype(value), std::uint64_t>)
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(value);
  });
}

/// All values of a file, by index: nothing owns another, so that neither depth nor cycles matter.
struct PickleValue::Contents {
  enum class Type : std::uint8_t {
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
    global,
    dtype
  };
  static constexpr std::uint32_t no_items = std::numeric_limits<std::uint32_t>::max();

  struct Node {
    Type type = Type::none;
    std::uint32_t child =
        no_items;             ///< list, tuple, dict: in `items`, if there are any; array, dtype: in `arrays`
    std::size_t offset = 0;   ///< of the opcode
    std::int64_t number = 0;  ///< boolean, integer; real: its bits; global: a Known
    std::string_view string = {};  ///< text, bytes
  };

  std::string name;  ///< of the file
  std::string file;
  std::deque<std::string> decoded;  ///< strings that are written in another way
  std::vector<Node> nodes;
  std::vector<std::vector<std::uint32_t>> items;
  std::vector<PickleArray> arrays;
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

namespace {

using Contents = PickleValue::Contents;
using Node = Contents::Node;
using Type = Contents::Type;

class Parser {
 public:
  explicit Parser(Contents& contents) : c_(contents), in_(contents.file) {}

  void parse() {
    if (in_.empty()) throw InputError(c_.name + ": the file is empty");
    while (step()) {
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { c_.fail(op_at_, what); }

  // The file.
  std::string_view take(std::uint64_t count) {
    if (count > in_.size() - at_)
      fail(fmt::format("the file is truncated: {} bytes should follow byte {}, there are {}", count, at_,
                       in_.size() - at_));
    const std::string_view taken = in_.substr(at_, static_cast<std::size_t>(count));
    at_ += taken.size();
    return taken;
  }
  /// A little-endian number.
  std::uint64_t take_number(std::size_t bytes) {
    std::uint64_t value = 0;
    const std::string_view taken = take(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      value |= std::uint64_t{static_cast<unsigned char>(taken[i])} << (8 * i);
    return value;
  }
  std::string_view take_line() {
    const std::size_t end = in_.find('\n', at_);
    if (end == std::string_view::npos) fail("the file is truncated: a line does not end");
    const std::string_view line = in_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  // Values.
  std::uint32_t add(Type type, std::int64_t number = 0, std::string_view string = {}) {
    if (c_.nodes.size() >= max_values) fail(fmt::format("there are more than {} values", max_values));
    c_.nodes.push_back({type, Contents::no_items, op_at_, number, string});
    return static_cast<std::uint32_t>(c_.nodes.size() - 1);
  }
  void push(std::uint32_t node) { stack_.push_back(node); }
  void push_new(Type type, std::int64_t number = 0, std::string_view string = {}) {
    push(add(type, number, string));
  }
  Node& node(std::uint32_t index) { return c_.nodes[index]; }
  std::vector<std::uint32_t>& items_of(std::uint32_t index) {
    Node& n = node(index);
    if (n.child == Contents::no_items) {
      n.child = static_cast<std::uint32_t>(c_.items.size());
      c_.items.emplace_back();
    }
    return c_.items[n.child];
  }
  std::string describe(std::uint32_t index) { return c_.describe(node(index)); }

  // The stack; what lies below the last mark is out of reach.
  void need(std::size_t count) const {
    if (stack_.size() - (marks_.empty() ? 0 : marks_.back()) < count)
      fail(fmt::format("opcode 0x{:02x} needs {} value(s) on the stack",
                       static_cast<unsigned char>(in_[op_at_]), count));
  }
  std::uint32_t pop() {
    need(1);
    const std::uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<std::uint32_t> pop_to_mark() {
    if (marks_.empty())
      fail(fmt::format("opcode 0x{:02x} needs a mark on the stack", static_cast<unsigned char>(in_[op_at_])));
    const auto from = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<std::uint32_t> popped(from, stack_.end());
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return popped;
  }
  std::vector<std::uint32_t> pop_last(std::size_t count) {
    need(count);
    std::vector<std::uint32_t> popped(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return popped;
  }
  void extend(Type type, const std::vector<std::uint32_t>& values) {
    need(1);
    const std::uint32_t container = stack_.back();
    if (node(container).type != type) fail(fmt::format("items are added to {}", describe(container)));
    if (type == Type::dict && values.size() % 2 != 0) fail("a key of a dict has no value");
    if (values.empty()) return;
    std::vector<std::uint32_t>& items = items_of(container);
    items.insert(items.end(), values.begin(), values.end());
  }
  void push_container(Type type, const std::vector<std::uint32_t>& values) {
    push_new(type);
    if (type == Type::tuple) {
      if (!values.empty()) items_of(stack_.back()) = values;
    } else {
      extend(type, values);
    }
  }

  void memoize(std::uint64_t slot) {
    need(1);
    if (memo_.size() >= max_values)
      fail(fmt::format("there are more than {} values in the memo", max_values));
    memo_[slot] = stack_.back();
  }
  void recall(std::uint64_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) fail(fmt::format("memo entry {} is used before it is set", slot));
    push(found->second);
  }
  std::uint64_t slot_line() {
    const std::string_view line = take_line();
    std::uint64_t slot = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), slot);
    if (error != std::errc() || end != line.data() + line.size())
      fail(fmt::format("'{}' is no number of a memo entry", printable(line)));
    return slot;
  }

  bool step();
  bool push_scalar(unsigned char op);
  bool push_string(unsigned char op);
  bool stack_step(unsigned char op);
  bool container_step(unsigned char op);
  bool object_step(unsigned char op);

  void push_integer_line(std::string_view line);
  void push_long(std::string_view bytes);
  std::string_view unquote(std::string_view line);
  std::string_view unescape(std::string_view line);

  void push_global(std::string_view module, std::string_view name);
  void reduce();
  void build();
  std::uint32_t encode(const std::vector<std::uint32_t>& args);
  std::uint32_t make_dtype(const std::vector<std::uint32_t>& args);
  std::uint32_t make_array(const PickleArray& array, Type type = Type::array);
  std::uint32_t make_scalar(const std::vector<std::uint32_t>& args);
  void build_dtype(Node& dtype, const std::vector<std::uint32_t>& state);
  void build_array(Node& array, const std::vector<std::uint32_t>& state);
  std::string_view bytes_of(std::uint32_t index, const char* what);

  Contents& c_;
  std::string_view in_;
  std::size_t at_ = 0, op_at_ = 0;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  std::unordered_map<std::uint64_t, std::uint32_t> memo_;
  std::unordered_map<std::uint32_t, std::uint32_t>
      encoded_;  // bytes by their text: once, however often it is asked for
};

bool Parser::step() {
  op_at_ = at_;
  const auto op = static_cast<unsigned char>(take(1)[0]);
  if (op == '.') {
    if (!marks_.empty() || stack_.size() != 1)
      fail(fmt::format("the pickle ends with {} values instead of one", stack_.size()));
    c_.root = stack_.back();
    return false;
  }
  if (push_scalar(op) || push_string(op) || stack_step(op) || container_step(op) || object_step(op))
    return true;
  fail(fmt::format("{}0x{:02x} is no opcode of protocols 0 to 4 that stands for data",
                   op_at_ == 0 ? "this is no pickle: " : "", op));
}

bool Parser::push_scalar(unsigned char op) {
  switch (op) {
    case 'N': push_new(Type::none); return true;
    case 0x88: push_new(Type::boolean, 1); return true;
    case 0x89: push_new(Type::boolean, 0); return true;
    case 'K': push_new(Type::integer, static_cast<std::int64_t>(take_number(1))); return true;
    case 'M': push_new(Type::integer, static_cast<std::int64_t>(take_number(2))); return true;
    case 'J': push_new(Type::integer, static_cast<std::int32_t>(take_number(4))); return true;
    case 'I':
    case 'L': push_integer_line(take_line()); return true;
    case 0x8a: push_long(take(take_number(1))); return true;
    case 0x8b: push_long(take(take_number(4))); return true;
    case 'F': {
      const std::string_view line = take_line();
      double value = 0;
      const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
      if (error != std::errc() || end != line.data() + line.size())
        fail(fmt::format("'{}' is no number", printable(line)));
      push_new(Type::real, std::bit_cast<std::int64_t>(value));
      return true;
    }
    case 'G':
      push_new(Type::real,
               load_item<std::int64_t>(take(8).data(), std::endian::native == std::endian::little));
      return true;
    default: return false;
  }
}

void Parser::push_integer_line(std::string_view line) {
  if (in_[op_at_] == 'I' && (line == "00" || line == "01")) return push_new(Type::boolean, line[1] - '0');
  std::string_view digits = line;
  if (in_[op_at_] == 'L' && digits.ends_with('L')) digits.remove_suffix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range) fail("an integer is beyond 64 bits");
  if (error != std::errc() || end != digits.data() + digits.size())
    fail(fmt::format("'{}' is no integer", printable(line)));
  push_new(Type::integer, value);
}

/// Two's complement, little-endian, of any length.
void Parser::push_long(std::string_view bytes) {
  const bool negative = !bytes.empty() && static_cast<signed char>(bytes.back()) < 0;
  std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (i >= 8) {
      if (byte != (negative ? 0xff : 0)) fail("an integer is beyond 64 bits");
    } else {
      value = (value & ~(std::uint64_t{0xff} << (8 * i))) | std::uint64_t{byte} << (8 * i);
    }
  }
  const auto number = static_cast<std::int64_t>(value);
  if ((number < 0) != negative) fail("an integer is beyond 64 bits");
  push_new(Type::integer, number);
}

bool Parser::push_string(unsigned char op) {
  // A declared length is checked against what is there before anything else is done.
  const auto text = [&](std::size_t width) {
    push_new(Type::text, 0, take(take_number(width)));
    return true;
  };
  const auto bytes = [&](std::size_t width) {
    push_new(Type::bytes, 0, take(take_number(width)));
    return true;
  };
  switch (op) {
    case 'X': return text(4);
    case 0x8c: return text(1);
    case 0x8d: return text(8);
    case 'T':
    case 'B': return bytes(4);
    case 'U':
    case 'C': return bytes(1);
    case 0x8e: return bytes(8);
    case 'S': push_new(Type::bytes, 0, unquote(take_line())); return true;
    case 'V': push_new(Type::text, 0, unescape(take_line())); return true;
    default: return false;
  }
}

/// A quoted string as Python prints it.
std::string_view Parser::unquote(std::string_view line) {
  if (line.size() < 2 || line.front() != line.back() || (line.front() != '\'' && line.front() != '"'))
    fail(fmt::format("a string is not quoted: {}", printable(line)));
  line = line.substr(1, line.size() - 2);
  if (line.find('\\') == std::string_view::npos) return line;
  constexpr std::string_view letters = "\\'\"abfnrtv", meanings = "\\'\"\a\b\f\n\r\t\v";
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      out += line[i];
      continue;
    }
    if (++i == line.size()) fail("a string ends within an escape");
    if (const std::size_t letter = letters.find(line[i]); letter != std::string_view::npos) {
      out += meanings[letter];
    } else if (const auto code = hex_digits(line, i + 1, 2); line[i] == 'x' && code) {
      out += static_cast<char>(*code);
      i += 2;
    } else {
      fail(fmt::format("a string holds an escape that Python does not write: {}",
                       printable(line.substr(i - 1, 4))));
    }
  }
  return c_.decoded.emplace_back(std::move(out));
}

/// Latin-1 with \uXXXX and \UXXXXXXXX.
std::string_view Parser::unescape(std::string_view line) {
  if (std::all_of(line.begin(), line.end(), [](char c) { return c > 0 && c != '\\'; })) return line;
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const std::size_t digits = line.substr(i, 2) == "\\u" ? 4 : line.substr(i, 2) == "\\U" ? 8 : 0;
    if (digits == 0) {
      append_utf8(out, static_cast<unsigned char>(line[i]));
      continue;
    }
    const auto code = hex_digits(line, i + 2, digits);
    if (!code || *code > 0x10ffff)
      fail("a text holds a damaged escape: " + printable(line.substr(i, 2 + digits)));
    append_utf8(out, *code);
    i += 1 + digits;
  }
  return c_.decoded.emplace_back(std::move(out));
}

bool Parser::stack_step(unsigned char op) {
  switch (op) {
    case 0x80: {
      const std::uint64_t protocol = take_number(1);
      if (protocol > 4) fail(fmt::format("this is a pickle of protocol {}; 0 to 4 are read", protocol));
      return true;
    }
    case 0x95: {  // a frame
      const std::uint64_t bytes = take_number(8);
      if (bytes > in_.size() - at_)
        fail(fmt::format("the file is truncated: a frame of {} bytes should follow byte {}, there are {}",
                         bytes, at_, in_.size() - at_));
      return true;
    }
    case '(': marks_.push_back(stack_.size()); return true;
    case '0':
      if (!marks_.empty() && stack_.size() == marks_.back())
        marks_.pop_back();
      else
        pop();
      return true;
    case '1': pop_to_mark(); return true;
    case '2':
      need(1);
      push(stack_.back());
      return true;
    case 'p': memoize(slot_line()); return true;
    case 'q': memoize(take_number(1)); return true;
    case 'r': memoize(take_number(4)); return true;
    case 0x94: memoize(memo_.size()); return true;
    case 'g': recall(slot_line()); return true;
    case 'h': recall(take_number(1)); return true;
    case 'j': recall(take_number(4)); return true;
    default: return false;
  }
}

bool Parser::container_step(unsigned char op) {
  switch (op) {
    case ']': push_new(Type::list); return true;
    case '}': push_new(Type::dict); return true;
    case ')': push_new(Type::tuple); return true;
    case 'l': push_container(Type::list, pop_to_mark()); return true;
    case 'd': push_container(Type::dict, pop_to_mark()); return true;
    case 't': push_container(Type::tuple, pop_to_mark()); return true;
    case 0x85:
    case 0x86:
    case 0x87: push_container(Type::tuple, pop_last(op - 0x84U)); return true;
    case 'a': extend(Type::list, pop_last(1)); return true;
    case 'e': extend(Type::list, pop_to_mark()); return true;
    case 's': extend(Type::dict, pop_last(2)); return true;
    case 'u': extend(Type::dict, pop_to_mark()); return true;
    case 0x8f:
    case 0x90:
    case 0x91: fail("sets are not read");
    default: return false;
  }
}

bool Parser::object_step(unsigned char op) {
  switch (op) {
    case 'c': {
      const std::string_view module = take_line(), name = take_line();
      push_global(module, name);
      return true;
    }
    case 0x93: {
      const std::vector<std::uint32_t> names = pop_last(2);
      for (std::uint32_t name : names)
        if (node(name).type != Type::text) fail(fmt::format("a name should be text, not {}", describe(name)));
      push_global(node(names[0]).string, node(names[1]).string);
      return true;
    }
    case 'i': {
      const std::string_view module = take_line(), name = take_line();
      fail(fmt::format("it wants an object of {}.{} made; only data and NumPy arrays are read",
                       printable(module), printable(name)));
    }
    case 'R': reduce(); return true;
    case 'b': build(); return true;
    case 'o':
    case 0x81:
    case 0x92: fail("it wants an object made; only data and NumPy arrays are read");
    case 'P':
    case 'Q': fail("it refers to an object outside of the file; only data and NumPy arrays are read");
    case 0x82:
    case 0x83:
    case 0x84:
      fail("it names an object by a number of the copyreg registry; only data and NumPy arrays are read");
    default: return false;
  }
}

void Parser::push_global(std::string_view module, std::string_view name) {
  for (const KnownGlobal& known : known_globals)
    if (known.module == module && known.name == name)
      return push_new(Type::global, static_cast<std::int64_t>(known.what));
  fail(fmt::format("it refers to {}.{}; only data and NumPy arrays are read", printable(module),
                   printable(name)));
}

std::string_view Parser::bytes_of(std::uint32_t index, const char* what) {
  if (node(index).type != Type::bytes) fail(fmt::format("{} should be bytes, not {}", what, describe(index)));
  return node(index).string;
}

void Parser::reduce() {
  const std::uint32_t arg_tuple = pop(), function = pop();
  if (node(function).type != Type::global) fail(fmt::format("{} is called", describe(function)));
  if (node(arg_tuple).type != Type::tuple)
    fail(fmt::format("arguments should be a tuple, not {}", describe(arg_tuple)));
  const std::vector<std::uint32_t>& args = c_.items_of(node(arg_tuple));
  switch (static_cast<Known>(node(function).number)) {
    case Known::encode: return push(encode(args));
    case Known::bytes:
      if (!args.empty()) fail("bytes() with arguments is not read");
      return push_new(Type::bytes);
    case Known::reconstruct: {
      const auto is_ndarray = [&](const Node& n) {
        return n.type == Type::global && static_cast<Known>(n.number) == Known::ndarray;
      };
      if (args.size() != 3 || !is_ndarray(node(args[0])))
        fail("a NumPy array starts with other arguments than NumPy writes");
      return push(make_array({}));
    }
    case Known::scalar: return push(make_scalar(args));
    case Known::dtype: return push(make_dtype(args));
    case Known::ndarray: break;
  }
  fail("numpy.ndarray is called; NumPy writes arrays in another way");
}

/// The bytes that a text of Latin-1 letters stands for.
std::uint32_t Parser::encode(const std::vector<std::uint32_t>& args) {
  if (args.size() != 2 || node(args[0]).type != Type::text || node(args[1]).type != Type::text ||
      (node(args[1]).string != "latin1" && node(args[1]).string != "latin-1"))
    fail("_codecs.encode is read for a text in latin1 only");
  if (const auto known = encoded_.find(args[0]); known != encoded_.end()) return known->second;
  std::string_view text = node(args[0]).string;
  if (!std::all_of(text.begin(), text.end(), [](char c) { return c >= 0; })) {
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
  const std::uint32_t made = add(Type::bytes, 0, text);
  encoded_[args[0]] = made;
  return made;
}

std::uint32_t Parser::make_array(const PickleArray& array, Type type) {
  const std::uint32_t made = add(type);
  node(made).child = static_cast<std::uint32_t>(c_.arrays.size());
  c_.arrays.push_back(array);
  return made;
}

std::uint32_t Parser::make_dtype(const std::vector<std::uint32_t>& args) {
  if (args.empty() || (node(args[0]).type != Type::text && node(args[0]).type != Type::bytes))
    fail("a NumPy type should be given by its name");
  const std::string_view name = node(args[0]).string;
  const auto type = parse_type(name);
  if (!type)
    fail(
        fmt::format("NumPy type '{}' is not read; bool, integers, float32 and float64 are", printable(name)));
  PickleArray prototype;
  prototype.type = type->first;
  prototype.item_bytes = type->second;
  return make_array(prototype, Type::dtype);
}

std::uint32_t Parser::make_scalar(const std::vector<std::uint32_t>& args) {
  if (args.size() != 2 || node(args[0]).type != Type::dtype)
    fail("a NumPy scalar should have a type and bytes");
  PickleArray one = c_.arrays[node(args[0]).child];
  one.data = bytes_of(args[1], "a NumPy scalar's value");
  if (one.data.size() != static_cast<std::size_t>(one.item_bytes))
    fail(fmt::format("a NumPy scalar of {} bytes has {}", one.item_bytes, one.data.size()));
  if (one.type == 'f') return add(Type::real, std::bit_cast<std::int64_t>(one.number(0)));
  const auto value = one.integer(0);
  if (!value) fail("an integer is beyond 64 bits");
  return add(one.type == 'b' ? Type::boolean : Type::integer, *value);
}

void Parser::build() {
  const std::uint32_t state_tuple = pop();
  need(1);
  const std::uint32_t object = stack_.back();
  const Type type = node(object).type;
  if (type != Type::dtype && type != Type::array)
    fail(fmt::format("{} gets a state; only NumPy arrays and types have one", describe(object)));
  if (node(state_tuple).type != Type::tuple)
    fail(fmt::format("a state should be a tuple, not {}", describe(state_tuple)));
  const std::vector<std::uint32_t>& state = c_.items_of(node(state_tuple));
  if (type == Type::dtype)
    build_dtype(node(object), state);
  else
    build_array(node(object), state);
}

/// (version, byte order, …)
void Parser::build_dtype(Node& dtype, const std::vector<std::uint32_t>& state) {
  if (state.size() < 2 || (node(state[1]).type != Type::text && node(state[1]).type != Type::bytes))
    fail("a NumPy type's state should hold its byte order");
  const std::string_view order = node(state[1]).string;
  if (order.size() != 1 || std::string_view("<>=|").find(order[0]) == std::string_view::npos)
    fail(fmt::format("'{}' is no byte order of a NumPy type", printable(order)));
  const char other = std::endian::native == std::endian::little ? '>' : '<';
  c_.arrays[dtype.child].swapped = order[0] == other;
}

/// (version, shape, type, whether the first index runs fastest, bytes)
void Parser::build_array(Node& array, const std::vector<std::uint32_t>& state) {
  if (state.size() != 5 || node(state[1]).type != Type::tuple || node(state[2]).type != Type::dtype ||
      (node(state[3]).type != Type::boolean && node(state[3]).type != Type::integer))
    fail("a NumPy array's state is not (version, shape, type, order, bytes)");
  PickleArray built = c_.arrays[node(state[2]).child];
  built.fortran = node(state[3]).number != 0;
  built.dims.clear();
  const std::vector<std::uint32_t>& shape = c_.items_of(node(state[1]));
  if (shape.size() > max_array_dims) fail(fmt::format("a NumPy array has {} dimensions", shape.size()));
  for (std::uint32_t side : shape) {
    if (node(side).type != Type::integer || node(side).number < 0)
      fail(fmt::format("a side of a NumPy array is {}", describe(side)));
    built.dims.push_back(node(side).number);
  }
  built.data = bytes_of(state[4], "a NumPy array's data");
  const std::size_t item = static_cast<std::size_t>(built.item_bytes);
  if (built.data.size() % item != 0 || built.data.size() / item != item_count(built.dims))
    fail(fmt::format("a NumPy array of {} numbers of {} byte(s) has {} bytes", to_string(built.dims), item,
                     built.data.size()));
  c_.arrays[array.child] = built;
}

}  // namespace

std::string PickleValue::Contents::describe(const Node& node) const {
  switch (node.type) {
    case Type::none: return "None";
    case Type::boolean: return node.number != 0 ? "True" : "False";
    case Type::integer: return fmt::format("the integer {}", node.number);
    case Type::real: return fmt::format("the number {}", std::bit_cast<double>(node.number));
    case Type::text: return fmt::format("the text '{}'", printable(node.string));
    case Type::bytes: return fmt::format("a string of {} bytes", node.string.size());
    case Type::list: return fmt::format("a list of {} values", items_of(node).size());
    case Type::tuple: return fmt::format("a tuple of {} values", items_of(node).size());
    case Type::dict: return fmt::format("a dict of {} entries", items_of(node).size() / 2);
    case Type::array: {
      const PickleArray& a = arrays[node.child];
      return fmt::format("an array of {} numbers of type {}{}", to_string(a.dims), a.type, a.item_bytes);
    }
    case Type::global: return "the name of a function or class";
    case Type::dtype: return "a NumPy type";
  }
  return "";
}

PickleKind PickleValue::kind() const {
  const Type type = contents_->nodes[index_].type;
  return type > Type::array ? PickleKind::other : static_cast<PickleKind>(type);
}

std::string PickleValue::describe() const { return contents_->describe(contents_->nodes[index_]); }

void PickleValue::fail(const std::string& what) const {
  contents_->fail(contents_->nodes[index_].offset, what);
}

std::size_t PickleValue::size() const {
  const Node& node = contents_->nodes[index_];
  if (node.type != Type::array)
    return node.type == Type::global || node.type == Type::dtype ? 0 : contents_->items_of(node).size();
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
    if ((node.type == Type::text || node.type == Type::bytes) && node.string == key)
      return PickleValue(contents_, items[i - 1]);
  }
  return std::nullopt;
}

PickleValue PickleValue::at(std::string_view key) const {
  if (kind() != PickleKind::dict) fail(fmt::format("a dict should be here, not {}", describe()));
  if (const auto found = find(key)) return *found;
  std::vector<std::string> known = keys();
  known.resize(std::min<std::size_t>(known.size(), 20));
  fail(fmt::format("there is no '{}'; the keys are {}", key, fmt::join(known, ", ")));
}

std::vector<std::string> PickleValue::keys() const {
  std::vector<std::string> keys;
  if (kind() != PickleKind::dict) return keys;
  const std::vector<std::uint32_t>& items = contents_->items_of(contents_->nodes[index_]);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    const Node& node = contents_->nodes[items[i]];
    if (node.type == Type::text || node.type == Type::bytes) keys.push_back(printable(node.string));
  }
  return keys;
}

std::int64_t PickleValue::integer(const std::string& what) const {
  const Node& node = contents_->nodes[index_];
  if (node.type != Type::integer && node.type != Type::boolean)
    fail(fmt::format("{} should be an integer, not {}", what, describe()));
  return node.number;
}

double PickleValue::number(const std::string& what) const {
  const Node& node = contents_->nodes[index_];
  if (node.type == Type::real) return std::bit_cast<double>(node.number);
  if (node.type != Type::integer && node.type != Type::boolean)
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

std::vector<std::int64_t> PickleValue::integers(const std::string& what) const {
  std::vector<std::int64_t> values;
  if (kind() == PickleKind::array) {
    const PickleArray& a = array(what);
    values.reserve(item_count(a.dims));
    each_in_c_order(a, [&](std::size_t item) {
      const auto value = a.integer(item);
      if (!value) fail(fmt::format("{} should be integers of at most 64 bits, not {}", what, describe()));
      values.push_back(*value);
    });
    return values;
  }
  if (kind() != PickleKind::list && kind() != PickleKind::tuple)
    fail(fmt::format("{} should be a list of integers, not {}", what, describe()));
  for (std::size_t i = 0; i < size(); ++i)
    values.push_back((*this)[i].integer(fmt::format("item {} of {}", i, what)));
  return values;
}

std::vector<double> PickleValue::numbers(const std::string& what) const {
  std::vector<double> values;
  if (kind() == PickleKind::array) {
    const PickleArray& a = array(what);
    values.reserve(item_count(a.dims));
    each_in_c_order(a, [&](std::size_t item) { values.push_back(a.number(item)); });
    return values;
  }
  if (kind() != PickleKind::list && kind() != PickleKind::tuple)
    fail(fmt::format("{} should be a list of numbers, not {}", what, describe()));
  for (std::size_t i = 0; i < size(); ++i)
    values.push_back((*this)[i].number(fmt::format("item {} of {}", i, what)));
  return values;
}

PickleValue parse_pickle(std::string bytes, std::string name) {
  auto contents = std::make_shared<Contents>();
  contents->name = std::move(name);
  contents->file = std::move(bytes);
  Parser(*contents).parse();
  const std::uint32_t root = contents->root;
  return {std::move(contents), root};
}

PickleValue read_pickle(const std::string& path) { return parse_pickle(read_whole_file(path), path); }

}  // namespace convnet
