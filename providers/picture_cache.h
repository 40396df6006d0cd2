// A cache of decoded pictures on disk, which processes share.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "providers/decode.h"

namespace convnet {

/// The file that a picture is decoded from, as it was when this was made, and the place of the picture in it.
struct PictureOrigin {
  std::string name;           ///< absolute path of the file, and the place in it
  std::uint64_t size = 0;     ///< bytes of the file
  std::int64_t modified = 0;  ///< time of the file's last change, in nanoseconds
};
/// Returns the origin of the picture in the file at `path`, or in the part of it that `place` names; nullopt
/// if the file cannot be found.
std::optional<PictureOrigin> picture_origin(const std::string& path, const std::string& place = "");

/// A folder with the pixels of pictures whose shorter sides have one length. It has two files:
/// pictures-SIDE.data with the pixels, and pictures-SIDE.index with an entry of fixed size for each picture.
/// Both only grow. Pixels are written before their entry, under a lock; entries and pixels have checksums, so
/// whatever a killed process or a power cut has left half-written counts as not there. All functions may be
/// called from several threads at once.
class PictureCache {
 public:
  /// Opens the cache for pictures of side `side` in `folder`, or makes it. A cache of another version of the
  /// program, and one whose pixels are missing or mostly out of date, is begun anew. Throws InputError if a
  /// file of that name is no cache or is damaged, or if its file system has no locks, and RunError for I/O
  /// errors.
  PictureCache(const std::string& folder, int side);
  PictureCache(const PictureCache&) = delete;
  PictureCache& operator=(const PictureCache&) = delete;
  ~PictureCache();

  /// Returns the window that `choose` selects of a picture; nullopt if the picture is not there, if its file
  /// has changed since, or if its pixels are damaged. Throws RunError for I/O errors, and what `choose`
  /// throws.
  std::optional<DecodedImage> read(const PictureOrigin& origin, const ChooseWindow& choose);
  /// Adds a picture, unless another process has done so. Does nothing if somebody has removed the cache while
  /// it was in use. Throws DiskFullError, or RunError for other I/O errors.
  void add(const PictureOrigin& origin, const DecodedImage& picture);

 private:
  struct Key {
    std::uint64_t first = 0, second = 0;
    bool operator==(const Key&) const = default;
  };
  struct HashOfKey {
    std::size_t operator()(const Key& key) const { return static_cast<std::size_t>(key.first); }
  };
  struct Entry {
    std::uint64_t size = 0;
    std::int64_t modified = 0;
    std::uint64_t offset = 0;
    ImageSize picture;
    std::uint32_t checksum = 0;  ///< CRC-32 of the pixels
    bool verified = false;       ///< the checksum was compared

    std::uint64_t bytes() const;
  };

  static Key key_of(const PictureOrigin& origin);
  /// Opens both files, if they are a cache; else makes them. Returns false if that must be tried again.
  bool open_files();
  void write_headers(int index);
  bool open_data();
  void begin_anew();
  /// Reads the entries that were added since the last call. The caller holds mutex_.
  void read_entries();
  void write_at(int file, const std::string& path, const void* from, std::uint64_t count,
                std::uint64_t offset);

  const std::string folder_, index_path_, data_path_;
  const int side_;
  std::uint64_t id_ = 0;  ///< the same in both files
  int index_ = -1, data_ = -1;
  std::mutex adding_;                ///< held by add()
  mutable std::shared_mutex mutex_;  ///< guards the members below
  std::unordered_map<Key, Entry, HashOfKey> entries_;
  std::uint64_t index_end_ = 0;   ///< bytes of the index that were read
  std::uint64_t data_end_ = 0;    ///< end of the pixels that have entries
  std::uint64_t superseded_ = 0;  ///< bytes of pixels whose entries were replaced by later ones
  bool lost_ = false;             ///< the files were removed or replaced
};

}  // namespace convnet
