#include "providers/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/file_format.h"
#include "convnet/base/printable.h"

namespace convnet {
namespace {

constexpr std::uint64_t kBlock = 512;
/// Limit of a long name and of a pax record's block; real ones have some hundred bytes.
constexpr std::uint64_t kMaxExtension = std::uint64_t{1} << 20;

/// The place of a field in a header block, in bytes.
struct Field {
  std::size_t offset, size;
};
constexpr Field kNameField{0, 100}, kSizeField{124, 12}, kChecksumField{148, 8}, kMagicField{257, 6},
    kPrefixField{345, 155};
constexpr std::size_t kTypeOffset = 156;

std::string_view field(std::string_view header, Field f) { return header.substr(f.offset, f.size); }

/// Returns the text up to the first NUL.
std::string_view text(std::string_view bytes) { return bytes.substr(0, bytes.find('\0')); }

/// Reads a number: octal digits between blanks and NULs, or, with the first bit set, a big-endian binary
/// number. Returns nullopt for anything else, and for more than 63 bits.
std::optional<std::uint64_t> number(std::string_view bytes) {
  if (const auto first = static_cast<unsigned char>(bytes[0]); (first & 0x80) != 0) {
    std::uint64_t value = first & 0x7f;
    for (const char c : bytes.substr(1)) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  bytes.remove_prefix(std::min(bytes.find_first_not_of(' '), bytes.size()));
  const std::size_t digits = std::min(bytes.find_first_not_of("01234567"), bytes.size());
  if (bytes.find_first_not_of(std::string_view(" \0", 2), digits) != std::string_view::npos)
    return std::nullopt;
  std::uint64_t value = 0;  // an empty field is 0; eleven digits are no more than 33 bits
  std::from_chars(bytes.data(), bytes.data() + digits, value, 8);
  return value;
}

/// Returns whether a header's checksum is right: the sum of its bytes, with blanks for the sum itself. Old
/// programs added signed bytes.
bool checksum_fits(std::string_view header) {
  const std::optional<std::uint64_t> written = number(field(header, kChecksumField));
  std::int64_t unsigned_sum = 0, signed_sum = 0;
  for (std::size_t i = 0; i < header.size(); ++i) {
    const bool in_sum = i - kChecksumField.offset < kChecksumField.size;
    unsigned_sum += in_sum ? ' ' : static_cast<unsigned char>(header[i]);
    signed_sum += in_sum ? ' ' : static_cast<signed char>(header[i]);
  }
  return written && (*written == static_cast<std::uint64_t>(unsigned_sum) ||
                     *written == static_cast<std::uint64_t>(signed_sum));
}

/// Facts that extension headers state about the member that follows.
struct Extension {
  std::optional<std::string> name;
  std::optional<std::uint64_t> size;
};

class Reader {
 public:
  Reader(const InputFile& file, FileRegion region) : file_(file), region_(region) {}

  std::vector<TarMember> members() {
    if (region_.size == 0) fail("is empty");
    bool ended = false;  // the last block seen was one of zeros
    for (; at_ < region_.size;) {
      if (region_.size - at_ < kBlock) {
        if (ended) break;
        refuse_other_format();
        fail("the tar ends within a header");
      }
      const std::string header = file_.read(region_.offset + at_, kBlock);
      ended = header.find_first_not_of('\0') == std::string::npos;
      if (ended)
        at_ += kBlock;
      else
        read_member(header);
    }
    if (!ended) fail("the tar ends without the zeros that end one: it was cut off");
    if (extension_.name || extension_.size) fail("the tar ends after a header about a member to come");
    return std::move(members_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("{}: byte {}: {}", file_.path(), region_.offset + at_, what));
  }

  /// Throws InputError that says what the file is, if its beginning is that of another format.
  void refuse_other_format() const {
    if (region_.offset > 0 || at_ > 0) return;
    const std::string first = file_.read(0, std::min<std::uint64_t>(region_.size, kFormatBytes));
    if (const std::string other = other_format_text(first, "a tar", ""); !other.empty())
      throw InputError(fmt::format("{}: {}", file_.path(), other));
  }

  /// The member's data after its header; moves on behind it.
  FileRegion take_data(std::uint64_t size, const std::string& name) {
    const std::uint64_t left = region_.size - at_ - kBlock;
    if (size > left)
      fail(fmt::format("'{}' has {} bytes, but the tar ends after {}", printable(name), size, left));
    const FileRegion data{region_.offset + at_ + kBlock, size};
    // Padded to whole blocks; where the padding is cut, the end is missing too.
    at_ += kBlock + std::min(left, (size + kBlock - 1) / kBlock * kBlock);
    return data;
  }

  void read_member(const std::string& header) {
    if (!checksum_fits(header)) {
      refuse_other_format();
      fail("is no tar header: its checksum is wrong");
    }
    const std::optional<std::uint64_t> written = number(field(header, kSizeField));
    if (!written) fail(fmt::format("a size of '{}'", printable(field(header, kSizeField))));
    std::string name(text(field(header, kNameField)));
    // GNU's magic is "ustar " and uses the prefix for other things.
    if (field(header, kMagicField) == std::string_view("ustar\0", 6))
      if (const std::string_view prefix = text(field(header, kPrefixField)); !prefix.empty())
        name = std::string(prefix) + "/" + name;

    switch (const char type = header[kTypeOffset]) {
      case 'x':
      case 'g':
      case 'L':
      case 'K': return read_extension(type, *written);
      case '\0':
      case '0':
      case '7': {
        const Extension said = std::exchange(extension_, {});
        if (said.name) name = *said.name;
        if (name.empty()) fail("a file without a name");
        const FileRegion data = take_data(said.size.value_or(*written), name);
        // Old programs write directories like this.
        if (!name.ends_with('/')) members_.push_back({std::move(name), data});
        return;
      }
      case '3':
      case '4':
      case '5':
      case '6':
      case 'V':  // the label of GNU tar -V
        // The size of a directory is only room to reserve; no data follows.
        extension_ = {};
        at_ += kBlock;
        return;
      case '1':
      case '2':
        fail(fmt::format("'{}' is a link; tar --dereference --hard-dereference writes the files themselves",
                         printable(extension_.name.value_or(name))));
      default:
        fail(fmt::format("'{}' is of type '{}'; only files and directories can be read",
                         printable(extension_.name.value_or(name)), printable(std::string_view(&type, 1))));
    }
  }

  void read_extension(char type, std::uint64_t size) {
    if (size > kMaxExtension)
      fail(fmt::format("a header of {} bytes about a member; {} are allowed", size, kMaxExtension));
    const std::uint64_t start = at_;
    const FileRegion region = take_data(size, "(a header about a member)");
    const std::string data = file_.read(region.offset, region.size);
    const std::uint64_t after = std::exchange(at_, start);  // errors name the header
    if (type == 'L')
      set_name(std::string(text(data)));
    else if (type != 'K')  // the name of a link's target
      read_pax(data, type == 'g');
    at_ = after;
  }

  void set_name(std::string name) {
    if (name.empty()) fail("a long name that is empty");
    extension_.name = std::move(name);
  }

  /// Records "LENGTH KEY=VALUE\n", the length being that of the whole record.
  void read_pax(std::string_view data, bool global) {
    while (!data.empty()) {
      std::size_t length = 0;
      const auto [end, error] = std::from_chars(data.data(), data.data() + data.size(), length);
      const auto digits = static_cast<std::size_t>(end - data.data());
      if (error != std::errc() || digits == data.size() || *end != ' ' || length < digits + 3 ||
          length > data.size() || data[length - 1] != '\n')
        fail(fmt::format("a damaged pax record: '{}'", printable(data)));
      const std::string_view record = data.substr(digits + 1, length - digits - 2);
      data.remove_prefix(length);
      const std::size_t equals = record.find('=');
      if (equals == std::string_view::npos)
        fail(fmt::format("a pax record without '=': '{}'", printable(record)));
      const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
      const bool about_file = key == "path" || key == "size";
      if (key.starts_with("GNU.sparse.")) fail("a sparse file; tar without --sparse writes it whole");
      if (about_file && global) fail(fmt::format("a pax record that gives all members the same {}", key));
      if (key == "path") {
        if (value.find('\0') != std::string_view::npos)
          fail(fmt::format("a name with a NUL: '{}'", printable(value)));
        set_name(std::string(value));
      } else if (key == "size") {
        std::uint64_t size = 0;
        const auto parsed = std::from_chars(value.data(), value.data() + value.size(), size);
        if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size() || size >> 62 != 0)
          fail(fmt::format("a pax record with a size of '{}'", printable(value)));
        extension_.size = size;
      }
    }
  }

  const InputFile& file_;
  const FileRegion region_;
  std::uint64_t at_ = 0;  ///< offset in the region of the header that is read
  Extension extension_;
  std::vector<TarMember> members_;
};

}  // namespace

std::vector<TarMember> index_tar(const InputFile& file, FileRegion region) {
  if (region.offset > file.size() || region.size > file.size() - region.offset)
    throw InputError(fmt::format("{}: bytes {} and on, {} of them, are beyond its end at {}", file.path(),
                                 region.offset, region.size, file.size()));
  return Reader(file, region).members();
}

std::vector<TarMember> index_tar(const InputFile& file) { return index_tar(file, {0, file.size()}); }

}  // namespace convnet
