// Reads pictures for provider "image": decodes them, or takes them from the cache.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "providers/augment.h"
#include "providers/decode.h"
#include "providers/image_source.h"
#include "providers/picture_cache.h"
#include "providers/provider.h"

namespace convnet {

/// Reads the pictures of a source, whole or a random window of each (--random-resized-crop), and replaces bad
/// ones if --skip-bad-images says so. All functions may be called from several threads at once.
class PictureReader {
 public:
  /// `image_size` is the shorter side of scaled pictures, `side` that of what the net sees. `source` must
  /// outlive the reader; messages call it `path`.
  PictureReader(const ImageSource& source, std::string path, const ImageOptions& options, int image_size,
                int side, std::uint64_t seed);

  struct Picture {
    DecodedImage image;
    ImageLabels labels;
  };
  /// Reads an image, or if `crop` is given, the random window of that training image. If bad images are
  /// skipped, a bad one is replaced by the next readable one of the batch. Throws InputError or RunError.
  Picture read(int batch, std::int64_t image, const std::optional<ImagePlace>& crop = {}) const;

  /// Returns the names of unreadable images so far.
  std::vector<std::string> skipped() const;
  /// Returns the image that was read instead of `image`, which may be the same.
  std::int64_t stand_in(int batch, std::int64_t image) const;

 private:
  DecodedImage decode_whole(const EncodedImage& encoded) const;
  ImageWindow crop_window(ImageSize size, const ImagePlace& place) const;
  DecodedImage shortened(DecodedImage image) const;
  PictureCache& cache() const;
  Picture read_picture(int batch, std::int64_t image, const std::optional<ImagePlace>& crop,
                       std::string& name) const;

  const ImageSource& source_;
  const std::string path_;
  const ImageOptions options_;
  const int image_size_, side_;
  const std::uint64_t crop_key_;
  mutable std::once_flag cache_opened_;
  mutable std::unique_ptr<PictureCache> cache_;  // made by cache()
  mutable std::mutex mutex_;
  mutable std::set<std::string> skipped_;                                   // under the mutex
  mutable std::map<std::pair<int, std::int64_t>, std::int64_t> stand_ins_;  // by batch and image; the same
};

}  // namespace convnet
