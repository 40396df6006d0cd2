#include "providers/picture_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <string_view>
#include <utility>

#include "convnet/base/checksum.h"
#include "convnet/base/endian.h"
#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/file_lock.h"
#include "convnet/base/output_file.h"
#include "convnet/base/philox.h"
#include "providers/resize.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// Both files begin with a header of as many bytes as an entry of the index has: the magic text (16 bytes),
/// the version (4), the side (4), the id (8), zeros, and the CRC-32 of all that (4).
constexpr std::size_t kRecord = 64;
constexpr std::string_view kIndexMagic = "convnet-pictures", kDataMagic = "convnet-pixels--";
/// Raise it when decoding or scaling gives other pixels, or when the files change.
constexpr std::uint32_t kVersion = 2;

void put(std::string& record, std::size_t at, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) record[at + i] = static_cast<char>(value >> (8 * i) & 0xff);
}

std::uint32_t checksum_of(const void* bytes, std::size_t count) {
  Crc32 sum;
  sum.add(bytes, count);
  return sum.value();
}

/// Fills in the checksum at the end of a record.
std::string sealed(std::string record) {
  put(record, kRecord - 4, checksum_of(record.data(), kRecord - 4), 4);
  return record;
}
bool is_sealed(std::string_view record) {
  return little_endian(record, kRecord - 4, 4) == checksum_of(record.data(), kRecord - 4);
}

std::string header(std::string_view magic, int side, std::uint64_t id) {
  std::string record(kRecord, '\0');
  magic.copy(record.data(), magic.size());
  put(record, 16, kVersion, 4);
  put(record, 20, static_cast<std::uint64_t>(side), 4);
  put(record, 24, id, 8);
  return sealed(std::move(record));
}

/// Reads up to `count` bytes; fewer at the end of the file.
std::string read_some(int file, const std::string& path, std::uint64_t offset, std::uint64_t count) {
  std::string out(static_cast<std::size_t>(count), '\0');
  out.resize(read_at(file, path, offset, out.data(), out.size()));
  return out;
}

std::uint64_t size_of(int file) {
  struct stat status = {};
  return fstat(file, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

std::string file_in(const std::string& folder, int side, const char* ending) {
  return (fs::path(folder) / fmt::format("pictures-{}.{}", side, ending)).string();
}

InputError not_ours(const std::string& path) {
  return InputError(path + ": is no cache of pictures; choose another folder for --cache-images");
}

}  // namespace

std::optional<PictureOrigin> picture_origin(const std::string& path, const std::string& place) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  return PictureOrigin{fs::absolute(path).lexically_normal().string() + place,
                       static_cast<std::uint64_t>(status.st_size),
                       std::int64_t{status.st_mtim.tv_sec} * kNanoseconds + status.st_mtim.tv_nsec};
}

std::uint64_t PictureCache::Entry::bytes() const {
  return std::uint64_t{3} * static_cast<std::uint64_t>(picture.height) *
         static_cast<std::uint64_t>(picture.width);
}

PictureCache::PictureCache(const std::string& folder, int side)
    : folder_(folder),
      index_path_(file_in(folder, side, "index")),
      data_path_(file_in(folder, side, "data")),
      side_(side) {
  make_folders(folder);
  try {
    while (!open_files()) {
    }
  } catch (...) {
    for (const int file : {index_, data_})
      if (file >= 0) close(file);
    throw;
  }
}

PictureCache::~PictureCache() {
  for (const int file : {index_, data_})
    if (file >= 0) close(file);
}

bool PictureCache::open_files() {
  const FileLock lock(index_path_, FileLock::Kind::file, FileLock::Wait::yes);
  if (lock.state() == FileLock::State::not_open)
    throw RunError(fmt::format("{}: cannot be opened: {}", index_path_, error_text(lock.error())));
  if (!lock.held())
    throw InputError(
        fmt::format("{}: its file system has no locks ({}); choose a folder on another one for "
                    "--cache-images",
                    index_path_, error_text(lock.error())));
  std::string head = read_some(lock.descriptor(), index_path_, 0, kRecord);
  // A process may have been killed before the whole header was written.
  if (head.size() < kRecord && header(kIndexMagic, side_, 0).starts_with(head.substr(0, 16))) {
    write_headers(lock.descriptor());
    head = read_some(lock.descriptor(), index_path_, 0, kRecord);
  }
  if (!head.starts_with(kIndexMagic)) throw not_ours(index_path_);
  if (head.size() < kRecord || !is_sealed(head) ||
      little_endian(head, 20, 4) != static_cast<std::uint64_t>(side_))
    throw InputError(fmt::format("{}: is damaged; remove it and {}, and the next run makes them anew",
                                 index_path_, data_path_));
  id_ = little_endian(head, 24, 8);
  if (little_endian(head, 16, 4) != kVersion || !open_data()) {
    begin_anew();
    return false;
  }
  index_ = open(index_path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (index_ < 0) throw RunError(fmt::format("{}: cannot be opened: {}", index_path_, error_text(errno)));
  index_end_ = data_end_ = kRecord;
  read_entries();
  constexpr std::uint64_t kMuch = 64 << 20;
  if (superseded_ < kMuch || superseded_ < data_end_ / 2) return true;
  begin_anew();
  return false;
}

void PictureCache::write_headers(int index) {
  std::random_device random;
  id_ = std::uint64_t{random()} << 32 | random();
  const int data = open(data_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (data < 0) throw RunError(fmt::format("{}: cannot be opened: {}", data_path_, error_text(errno)));
  data_ = data;
  if (size_of(data) > 0 && !read_some(data, data_path_, 0, kRecord).starts_with(kDataMagic))
    throw not_ours(data_path_);
  if (ftruncate(data, 0) != 0)
    throw RunError(fmt::format("{}: cannot be written: {}", data_path_, error_text(errno)));
  write_at(data, data_path_, header(kDataMagic, side_, id_).data(), kRecord, 0);
  write_at(index, index_path_, header(kIndexMagic, side_, id_).data(), kRecord, 0);
  close(std::exchange(data_, -1));
}

bool PictureCache::open_data() {
  data_ = open(data_path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (data_ < 0 && errno == ENOENT) return false;
  if (data_ < 0) throw RunError(fmt::format("{}: cannot be opened: {}", data_path_, error_text(errno)));
  const std::string head = read_some(data_, data_path_, 0, kRecord);
  if (head.empty()) return false;
  if (!head.starts_with(kDataMagic)) throw not_ours(data_path_);
  return head == header(kDataMagic, side_, id_);
}

/// Removes the files, which other processes may go on reading.
void PictureCache::begin_anew() {
  for (int* const file : {&index_, &data_})
    if (*file >= 0) close(std::exchange(*file, -1));
  entries_.clear();
  superseded_ = 0;
  for (const std::string& path : {data_path_, index_path_})
    if (unlink(path.c_str()) != 0 && errno != ENOENT)
      throw RunError(fmt::format("{}: cannot be removed: {}", path, error_text(errno)));
}

void PictureCache::read_entries() {
  const std::uint64_t size = size_of(index_), data_size = size_of(data_);
  constexpr std::uint64_t kAtOnce = kRecord << 14;
  while (index_end_ + kRecord <= size) {
    const std::uint64_t count = std::min(kAtOnce, (size - index_end_) / kRecord * kRecord);
    const std::string records = read_some(index_, index_path_, index_end_, count);
    for (std::size_t at = 0; at + kRecord <= records.size(); at += kRecord) {
      const std::string_view record = std::string_view(records).substr(at, kRecord);
      if (!is_sealed(record)) continue;
      const Key key = {little_endian(record, 0, 8), little_endian(record, 8, 8)};
      Entry entry;
      entry.size = little_endian(record, 16, 8);
      entry.modified = static_cast<std::int64_t>(little_endian(record, 24, 8));
      entry.offset = little_endian(record, 32, 8);
      const std::uint64_t height = little_endian(record, 40, 4), width = little_endian(record, 44, 4);
      constexpr std::uint64_t kMost = kMaxImagePixels;
      if (height == 0 || width == 0 || height > kMost || width > kMost || height * width > kMost) continue;
      entry.picture = {static_cast<int>(height), static_cast<int>(width)};
      entry.checksum = static_cast<std::uint32_t>(little_endian(record, 48, 4));
      if (entry.offset < kRecord || entry.offset > data_size || entry.bytes() > data_size - entry.offset)
        continue;
      data_end_ = std::max(data_end_, entry.offset + entry.bytes());
      const auto [place, is_new] = entries_.try_emplace(key, entry);
      if (is_new) continue;
      superseded_ += place->second.bytes();
      place->second = entry;
    }
    index_end_ += records.size() / kRecord * kRecord;
    if (records.size() < count) break;
  }
}

PictureCache::Key PictureCache::key_of(const PictureOrigin& origin) {
  return {philox_key(0, origin.name), philox_key(1, std::string_view(origin.name).substr(1))};
}

std::optional<DecodedImage> PictureCache::read(const PictureOrigin& origin, const ChooseWindow& choose) {
  const Key key = key_of(origin);
  const auto find = [&]() -> std::optional<Entry> {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.size != origin.size ||
        found->second.modified != origin.modified)
      return std::nullopt;
    return found->second;
  };
  std::optional<Entry> entry;
  bool has_grown = false;
  {
    const std::shared_lock lock(mutex_);
    entry = find();
    has_grown = !entry && size_of(index_) >= index_end_ + kRecord;
  }
  if (has_grown) {
    const std::lock_guard lock(mutex_);
    read_entries();
    entry = find();
  }
  if (!entry) return std::nullopt;
  const ImageWindow window = choose(entry->picture);
  const std::uint64_t row = std::uint64_t{3} * static_cast<std::uint64_t>(entry->picture.width);
  // Before the checksum was compared, all pixels are read.
  const ImageWindow rows = entry->verified ? ImageWindow{window.y, 0, window.height, entry->picture.width}
                                           : ImageWindow{0, 0, entry->picture.height, entry->picture.width};
  DecodedImage part{rows.height, rows.width, {}};
  part.pixels.resize(static_cast<std::size_t>(row) * static_cast<std::size_t>(rows.height));
  const std::uint64_t from = entry->offset + row * static_cast<std::uint64_t>(rows.y);
  const std::size_t done = read_at(data_, data_path_, from, part.pixels.data(), part.pixels.size());
  const bool sound = done == part.pixels.size() &&
                     (entry->verified || checksum_of(part.pixels.data(), done) == entry->checksum);
  if (!sound || !entry->verified) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found != entries_.end() && found->second.offset == entry->offset) {
      if (sound)
        found->second.verified = true;
      else
        entries_.erase(found);
    }
  }
  if (!sound) return std::nullopt;
  const ImageWindow within = {window.y - rows.y, window.x, window.height, window.width};
  return within.height == part.height && within.width == part.width ? std::move(part)
                                                                    : cut_window(part, within);
}

void PictureCache::write_at(int file, const std::string& path, const void* from, std::uint64_t count,
                            std::uint64_t offset) {
  for (std::uint64_t done = 0; done < count;) {
    const ssize_t put = pwrite(file, static_cast<const char*>(from) + done,
                               static_cast<std::size_t>(count - done), static_cast<off_t>(offset + done));
    if (put >= 0) {
      done += static_cast<std::uint64_t>(put);
      continue;
    }
    if (errno == EINTR) continue;
    const int error = errno;
    const std::string message = fmt::format("{}: cannot be written: {}", path, error_text(error));
    if (error != ENOSPC && error != EDQUOT && error != EFBIG) throw RunError(message);
    throw DiskFullError(fmt::format(
        "{}; it keeps {} decoded pictures in {:.1f} MB: make room, choose another folder for --cache-images, "
        "or leave the option out",
        message, entries_.size(), static_cast<double>(data_end_) / 1e6));
  }
}

void PictureCache::add(const PictureOrigin& origin, const DecodedImage& picture) {
  const std::lock_guard adding(adding_);
  if (lost_) return;
  const FileLock lock(index_path_, FileLock::Kind::file, FileLock::Wait::yes);
  if (!lock.held() ||
      read_some(lock.descriptor(), index_path_, 0, kRecord) != header(kIndexMagic, side_, id_)) {
    lost_ = true;
    return;
  }
  const Key key = key_of(origin);
  const std::lock_guard writing(mutex_);
  read_entries();
  const auto there = entries_.find(key);
  if (there != entries_.end() && there->second.size == origin.size &&
      there->second.modified == origin.modified)
    return;
  Entry entry{origin.size, origin.modified, data_end_, {picture.height, picture.width}, 0, true};
  entry.checksum = checksum_of(picture.pixels.data(), picture.pixels.size());
  std::string record(kRecord, '\0');
  put(record, 0, key.first, 8);
  put(record, 8, key.second, 8);
  put(record, 16, entry.size, 8);
  put(record, 24, static_cast<std::uint64_t>(entry.modified), 8);
  put(record, 32, entry.offset, 8);
  put(record, 40, static_cast<std::uint64_t>(picture.height), 4);
  put(record, 44, static_cast<std::uint64_t>(picture.width), 4);
  put(record, 48, entry.checksum, 4);
  record = sealed(std::move(record));
  try {
    write_at(data_, data_path_, picture.pixels.data(), entry.bytes(), data_end_);
    write_at(lock.descriptor(), index_path_, record.data(), kRecord, index_end_);
  } catch (const RunError&) {
    // Nobody reads what has no entry; the room is given back.
    if (ftruncate(data_, static_cast<off_t>(data_end_)) != 0 ||
        ftruncate(lock.descriptor(), static_cast<off_t>(index_end_)) != 0)
      lost_ = true;
    throw;
  }
  index_end_ += kRecord;
  data_end_ += entry.bytes();
  if (there != entries_.end()) superseded_ += there->second.bytes();
  entries_[key] = entry;
}

}  // namespace convnet
