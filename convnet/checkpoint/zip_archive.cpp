// The format: www.pkware.com/appnote (APPNOTE.TXT). An archive ends with an index ("central directory") and a
// record that tells where the index is.
#include "convnet/checkpoint/zip_archive.h"

#include <fmt/format.h>

#include <algorithm>

#include "convnet/base/endian.h"
#include "convnet/base/error.h"
#include "convnet/base/printable.h"

namespace convnet {
namespace {

constexpr std::string_view kEndMark = "PK\5\6", kEnd64Mark = "PK\6\6", kEnd64PlaceMark = "PK\6\7",
                           kIndexMark = "PK\1\2", kHeaderMark = "PK\3\4";
constexpr std::uint64_t kEndBytes = 22, kEnd64Bytes = 56, kEnd64PlaceBytes = 20, kIndexBytes = 46,
                        kHeaderBytes = 30, kMostComment = 65535;
/// Fields that do not fit have this value and stand in a zip64 record.
constexpr std::uint64_t kNot16 = 0xffff, kNot32 = 0xffffffff;

/// Takes the 8-byte numbers of an entry's zip64 record from its extra fields; those that are there replace
/// the fields that did not fit, in this order.
void take_zip64(std::string_view extra, std::uint64_t& size, std::uint64_t& stored_size,
                std::uint64_t& header) {
  while (extra.size() >= 4) {
    const std::uint64_t kind = little_endian(extra, 0, 2);
    const auto length = static_cast<std::size_t>(little_endian(extra, 2, 2));
    extra.remove_prefix(4);
    std::string_view field = extra.substr(0, length);
    extra.remove_prefix(std::min(length, extra.size()));
    if (kind != 1) continue;
    for (std::uint64_t* value : {&size, &stored_size, &header}) {
      if (*value != kNot32 || field.size() < 8) continue;
      *value = little_endian(field, 0, 8);
      field.remove_prefix(8);
    }
  }
}

}  // namespace

void ZipArchive::fail(const std::string& what) const { throw InputError(file_.path() + ": " + what); }

ZipArchive::ZipArchive(const InputFile& file) : file_(file) {
  const std::uint64_t tail_bytes = std::min(file.size(), kEndBytes + kMostComment);
  const std::string tail = file.read(file.size() - tail_bytes, tail_bytes);
  // A comment may follow the record, so the last mark whose comment ends with the file counts.
  std::size_t end = tail.rfind(kEndMark);
  while (end != std::string::npos &&
         (tail.size() - end < kEndBytes || little_endian(tail, end + 20, 2) != tail.size() - end - kEndBytes))
    end = end == 0 ? std::string::npos : tail.rfind(kEndMark, end - 1);
  if (end == std::string::npos)
    fail("is no whole zip archive: the index at its end is missing; perhaps a download that was broken off");
  std::uint64_t count = little_endian(tail, end + 10, 2), bytes = little_endian(tail, end + 12, 4),
                begin = little_endian(tail, end + 16, 4);
  if (count == kNot16 || bytes == kNot32 || begin == kNot32) {
    const std::uint64_t end_at = file.size() - tail_bytes + end;
    const std::string place =
        end_at < kEnd64PlaceBytes ? "" : file.read(end_at - kEnd64PlaceBytes, kEnd64PlaceBytes);
    if (place.starts_with(kEnd64PlaceMark)) {
      const std::uint64_t at = little_endian(place, 8, 8);
      if (at > file.size() || file.size() - at < kEnd64Bytes) fail("is damaged: its index is not in it");
      const std::string end64 = file.read(at, kEnd64Bytes);
      if (!end64.starts_with(kEnd64Mark)) fail("is damaged: its index is not where it should be");
      count = little_endian(end64, 32, 8);
      bytes = little_endian(end64, 40, 8);
      begin = little_endian(end64, 48, 8);
    }
  }
  if (begin > file.size() || bytes > file.size() - begin) fail("is damaged: its index is not in it");
  read_index(begin, bytes, count);
}

void ZipArchive::read_index(std::uint64_t begin, std::uint64_t bytes, std::uint64_t count) {
  const std::string index = file_.read(begin, bytes);
  std::string_view rest = index;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (rest.size() < kIndexBytes || !rest.starts_with(kIndexMark))
      fail(fmt::format("is damaged: its index has {} of {} entries", i, count));
    const std::uint64_t name_bytes = little_endian(rest, 28, 2), extra_bytes = little_endian(rest, 30, 2),
                        all = kIndexBytes + name_bytes + extra_bytes + little_endian(rest, 32, 2);
    if (rest.size() < all) fail(fmt::format("is damaged: its index has {} of {} entries", i, count));
    const bool encrypted = (little_endian(rest, 8, 2) & 1) != 0;
    const std::uint64_t method = little_endian(rest, 10, 2);
    std::uint64_t stored_size = little_endian(rest, 20, 4);
    Entry entry{little_endian(rest, 42, 4), little_endian(rest, 24, 4), method == 0 && !encrypted};
    take_zip64(rest.substr(kIndexBytes + name_bytes, extra_bytes), entry.bytes, stored_size, entry.header);
    std::string name(rest.substr(kIndexBytes, name_bytes));
    if (entry.stored && stored_size != entry.bytes)
      fail(fmt::format("is damaged: '{}' in it has two sizes", printable(name)));
    if (!entries_.emplace(std::move(name), entry).second)
      fail(fmt::format("is damaged: a file is in it twice: '{}'",
                       printable(rest.substr(kIndexBytes, name_bytes))));
    rest.remove_prefix(all);
  }
}

const ZipArchive::Entry& ZipArchive::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) fail(fmt::format("has no '{}' in it", printable(name)));
  return found->second;
}

std::string ZipArchive::read(const std::string& name) const { return read(name, 0, entry(name).bytes); }

std::string ZipArchive::read(const std::string& name, std::uint64_t offset, std::uint64_t bytes) const {
  const Entry& e = entry(name);
  if (!e.stored)
    fail(fmt::format(
        "'{}' in it is compressed or encrypted; torch.save stores it plainly: unpack the archive, "
        "and pack it again with zip -0",
        printable(name)));
  const auto outside = [&] { fail(fmt::format("is damaged: '{}' is not in it", printable(name))); };
  if (e.header > file_.size() || file_.size() - e.header < kHeaderBytes) outside();
  const std::string header = file_.read(e.header, kHeaderBytes);
  if (!header.starts_with(kHeaderMark)) outside();
  const std::uint64_t begin =
      e.header + kHeaderBytes + little_endian(header, 26, 2) + little_endian(header, 28, 2);
  if (begin > file_.size() || e.bytes > file_.size() - begin) outside();
  if (offset > e.bytes || bytes > e.bytes - offset)
    fail(fmt::format("'{}' in it has {} bytes; {} from byte {} on are needed", printable(name), e.bytes,
                     bytes, offset));
  return file_.read(begin + offset, bytes);
}

}  // namespace convnet
