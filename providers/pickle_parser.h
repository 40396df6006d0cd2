// The parser of pickles: a machine with a stack and a memo, whose program makes values.
#pragma once

#include <bit>
#include <charconv>
#include <map>
#include <unordered_map>

#include "convnet/base/endian.h"
#include "convnet/base/file_format.h"
#include "convnet/base/printable.h"
#include "providers/pickle_contents.h"

namespace convnet {

/// The most values of a file. It limits the memory for files that hold nothing but tiny values.
constexpr std::size_t kMaxPickleValues = std::size_t{1} << 24;

/// The functions and types that a pickle may name. They are understood, not called.
enum class KnownGlobal : std::int64_t {
  encode,
  bytes,
  reconstruct,
  from_buffer,
  scalar,
  ndarray,
  dtype,
  ordered_dict,
  rebuild_tensor,
  rebuild_parameter,
  rebuild_from_type,
  tensor_class,
  size,
  storage_class,
  other  ///< anything else; its node's string is the name
};

/// The newest protocol of pickles that is read.
constexpr std::uint64_t kNewestPickleProtocol = 5;

/// Parses Contents::file from byte `at` on into the other members of a Contents. Throws InputError.
class PickleParser {
 public:
  using Contents = PickleValue::Contents;

  PickleParser(Contents& contents, std::size_t at, PickleNames names)
      : c_(contents), in_(*contents.file), start_(at), at_(at), names_(names) {}

  /// Returns the byte after the pickle.
  std::size_t parse() {
    if (in_.empty()) throw InputError(c_.name + ": the file is empty");
    while (step()) {
    }
    return at_;
  }

 private:
  using Node = Contents::Node;

  [[noreturn]] void fail(const std::string& what) const { c_.fail(op_at_, what); }
  /// Fails because of an opcode that data does not have. If it is the first of the file, the message names
  /// the format that the file has instead, if that is known.
  [[noreturn]] void refuse_opcode(const std::string& what) const {
    fail(op_at_ == start_ ? other_format_text(in_, "a pickle", what) : what);
  }

  // The file.
  std::string_view take(std::uint64_t count) {
    if (count > in_.size() - at_)
      fail(fmt::format("the file is truncated: {} bytes should follow byte {}, there are {}", count, at_,
                       in_.size() - at_));
    const std::string_view taken = in_.substr(at_, static_cast<std::size_t>(count));
    at_ += taken.size();
    return taken;
  }
  std::uint64_t take_number(std::size_t bytes, std::endian order = std::endian::little) {
    return integer_of(take(bytes), 0, bytes, order);
  }
  std::string_view take_line() {
    const std::size_t end = in_.find('\n', at_);
    if (end == std::string_view::npos) fail("the file is truncated: a line does not end");
    const std::string_view line = in_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  // Values.
  std::uint32_t add(PickleKind kind, std::int64_t number = 0, std::string_view string = {}) {
    if (c_.nodes.size() >= kMaxPickleValues)
      fail(fmt::format("there are more than {} values", kMaxPickleValues));
    c_.nodes.push_back({kind, Contents::no_items, op_at_, number, string});
    return static_cast<std::uint32_t>(c_.nodes.size() - 1);
  }
  void push(std::uint32_t node) { stack_.push_back(node); }
  void push_new(PickleKind kind, std::int64_t number = 0, std::string_view string = {}) {
    push(add(kind, number, string));
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

  // The stack. Values below the last mark cannot be used.
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
  void extend(PickleKind kind, const std::vector<std::uint32_t>& values) {
    need(1);
    const std::uint32_t container = stack_.back();
    if (node(container).kind == PickleKind::object) return;  // of a class derived from list or dict
    if (node(container).kind != kind) fail(fmt::format("items are added to {}", describe(container)));
    if (kind == PickleKind::dict && values.size() % 2 != 0) fail("a key of a dict has no value");
    if (values.empty()) return;
    std::vector<std::uint32_t>& items = items_of(container);
    items.insert(items.end(), values.begin(), values.end());
  }
  void push_container(PickleKind kind, const std::vector<std::uint32_t>& values) {
    push_new(kind);
    if (kind == PickleKind::tuple) {
      if (!values.empty()) items_of(stack_.back()) = values;
    } else {
      extend(kind, values);
    }
  }

  void memoize(std::uint64_t slot) {
    need(1);
    if (memo_.size() >= kMaxPickleValues)
      fail(fmt::format("there are more than {} values in the memo", kMaxPickleValues));
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
  /// Pushes an object for a value that nothing needs. Where all values are needed, fails with `refusal`.
  void push_unread(const char* what, const char* refusal);
  std::string_view unquote(std::string_view line);
  std::string_view unescape(std::string_view line);

  const char* readable() const;
  void push_global(std::string_view module, std::string_view name);
  KnownGlobal known(const Node& global) const { return static_cast<KnownGlobal>(global.number); }
  void reduce();
  void build();
  std::uint32_t encode(const std::vector<std::uint32_t>& args);
  std::uint32_t make_dtype(const std::vector<std::uint32_t>& args);
  std::uint32_t make_array(const PickleArray& array, PickleKind kind = PickleKind::array);
  std::uint32_t make_scalar(const std::vector<std::uint32_t>& args);
  void build_dtype(Node& dtype, const std::vector<std::uint32_t>& state);
  void build_array(Node& array, const std::vector<std::uint32_t>& state);
  std::uint32_t make_from_buffer(const std::vector<std::uint32_t>& args);
  PickleArray array_of(std::uint32_t dtype, std::uint32_t shape, bool fortran, std::uint32_t data);
  std::string_view bytes_of(std::uint32_t index, const char* what);

  // PyTorch (pickle_tensors.cpp).
  bool push_storage_class(std::string_view module, std::string_view name);
  void push_persistent();
  std::uint32_t make_object(std::uint32_t of_class);
  bool makes_plain_data(const Node& function) const;
  std::uint32_t reduce_torch(KnownGlobal function, const std::vector<std::uint32_t>& args);
  std::uint32_t make_ordered_dict(const std::vector<std::uint32_t>& args);
  std::uint32_t make_tensor(const std::vector<std::uint32_t>& args);
  std::uint32_t first_tensor(const std::vector<std::uint32_t>& args);
  std::uint32_t make_from_type(const std::vector<std::uint32_t>& args);
  Dims dims_of(std::uint32_t tuple, const char* what);

  Contents& c_;
  std::string_view in_;
  std::size_t start_, at_, op_at_ = 0;
  PickleNames names_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;               // sizes of the stack at the marks
  std::map<std::uint64_t, std::uint32_t> memo_;  // no hashes: the file chooses the keys
  // The bytes of texts that were encoded, so that a text is encoded only once.
  std::unordered_map<std::uint32_t, std::uint32_t> encoded_;
  // The dicts that were made of lists of pairs, by the list, so that a list is copied only once.
  std::unordered_map<std::uint32_t, std::uint32_t> ordered_;
};

}  // namespace convnet
