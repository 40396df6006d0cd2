// Opcodes that push values, move them, and fill lists, tuples and dicts.
#include "providers/pickle_parser.h"

#include <algorithm>
#include <charconv>

#include "convnet/base/printable.h"
#include "convnet/base/utf8.h"

namespace convnet {
namespace {

/// The number that `count` hexadecimal digits at `at` make.
std::optional<std::uint32_t> hex_digits(std::string_view text, std::size_t at, std::size_t count) {
  if (at + count > text.size()) return std::nullopt;
  std::uint32_t value = 0;
  const char* const end = text.data() + at + count;
  const auto [stop, error] = std::from_chars(text.data() + at, end, value, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

bool PickleParser::step() {
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
  refuse_opcode(fmt::format("{}0x{:02x} is no opcode of protocols 0 to {} that stands for data",
                            op_at_ == start_ ? "this is no pickle: " : "", op, kNewestPickleProtocol));
}

bool PickleParser::push_scalar(unsigned char op) {
  switch (op) {
    case 'N': push_new(PickleKind::none); return true;
    case 0x88: push_new(PickleKind::boolean, 1); return true;
    case 0x89: push_new(PickleKind::boolean, 0); return true;
    case 'K': push_new(PickleKind::integer, static_cast<std::int64_t>(take_number(1))); return true;
    case 'M': push_new(PickleKind::integer, static_cast<std::int64_t>(take_number(2))); return true;
    case 'J': push_new(PickleKind::integer, static_cast<std::int32_t>(take_number(4))); return true;
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
      push_new(PickleKind::real, std::bit_cast<std::int64_t>(value));
      return true;
    }
    case 'G':
      push_new(PickleKind::real, static_cast<std::int64_t>(take_number(8, std::endian::big)));
      return true;
    default: return false;
  }
}

void PickleParser::push_integer_line(std::string_view line) {
  if (in_[op_at_] == 'I' && (line == "00" || line == "01"))
    return push_new(PickleKind::boolean, line[1] - '0');
  std::string_view digits = line;
  if (in_[op_at_] == 'L' && digits.ends_with('L')) digits.remove_suffix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range)
    return push_unread("int beyond 64 bits", "an integer is beyond 64 bits");
  if (error != std::errc() || end != digits.data() + digits.size())
    fail(fmt::format("'{}' is no integer", printable(line)));
  push_new(PickleKind::integer, value);
}

/// Two's complement, little-endian, of any length.
void PickleParser::push_long(std::string_view bytes) {
  const bool negative = !bytes.empty() && static_cast<signed char>(bytes.back()) < 0;
  std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
  bool fits = true;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (i >= 8) {
      fits = fits && byte == (negative ? 0xff : 0);
    } else {
      value = (value & ~(std::uint64_t{0xff} << (8 * i))) | std::uint64_t{byte} << (8 * i);
    }
  }
  const auto number = static_cast<std::int64_t>(value);
  if (!fits || (number < 0) != negative)
    return push_unread("int beyond 64 bits", "an integer is beyond 64 bits");
  push_new(PickleKind::integer, number);
}

bool PickleParser::push_string(unsigned char op) {
  // A declared length is checked against what is there before anything else is done.
  const auto text = [&](std::size_t width) {
    push_new(PickleKind::text, 0, take(take_number(width)));
    return true;
  };
  const auto bytes = [&](std::size_t width) {
    push_new(PickleKind::bytes, 0, take(take_number(width)));
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
    case 0x8e:
    case 0x96: return bytes(8);  // 0x96: a bytearray
    case 'S': push_new(PickleKind::bytes, 0, unquote(take_line())); return true;
    case 'V': push_new(PickleKind::text, 0, unescape(take_line())); return true;
    default: return false;
  }
}

/// A quoted string as Python prints it.
std::string_view PickleParser::unquote(std::string_view line) {
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
std::string_view PickleParser::unescape(std::string_view line) {
  if (std::all_of(line.begin(), line.end(), [](char c) { return is_ascii(c) && c != '\\'; })) return line;
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

bool PickleParser::stack_step(unsigned char op) {
  switch (op) {
    case 0x80: {
      const std::uint64_t protocol = take_number(1);
      if (protocol > kNewestPickleProtocol)
        fail(fmt::format(
            "this is a pickle of protocol {0}; 0 to {1} are read: save it by pickle.dump(data, file, "
            "protocol={1})",
            protocol, kNewestPickleProtocol));
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

void PickleParser::push_unread(const char* what, const char* refusal) {
  if (names_ != PickleNames::tensors) fail(refusal);
  push_new(PickleKind::object, 0, what);
}

bool PickleParser::container_step(unsigned char op) {
  switch (op) {
    case ']': push_new(PickleKind::list); return true;
    case '}': push_new(PickleKind::dict); return true;
    case ')': push_new(PickleKind::tuple); return true;
    case 'l': push_container(PickleKind::list, pop_to_mark()); return true;
    case 'd': push_container(PickleKind::dict, pop_to_mark()); return true;
    case 't': push_container(PickleKind::tuple, pop_to_mark()); return true;
    case 0x85:
    case 0x86:
    case 0x87: push_container(PickleKind::tuple, pop_last(op - 0x84U)); return true;
    case 'a': extend(PickleKind::list, pop_last(1)); return true;
    case 'e': extend(PickleKind::list, pop_to_mark()); return true;
    case 's': extend(PickleKind::dict, pop_last(2)); return true;
    case 'u': extend(PickleKind::dict, pop_to_mark()); return true;
    case 0x8f: push_unread("set", "sets are not read"); return true;
    case 0x90:
      pop_to_mark();
      need(1);
      if (node(stack_.back()).kind != PickleKind::object)
        fail(fmt::format("items of a set are added to {}", describe(stack_.back())));
      return true;
    case 0x91:
      pop_to_mark();
      push_unread("set", "sets are not read");
      return true;
    default: return false;
  }
}

}  // namespace convnet
