#include "providers/picture_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "convnet/base/error.h"
#include "convnet/base/philox.h"
#include "providers/resize.h"

namespace convnet {
namespace {

/// Ratios of width to height of --random-resized-crop.
constexpr double kLeastRatio = 3.0 / 4, kMostRatio = 4.0 / 3;

/// The largest window of one of these ratios, in the middle of an image.
ImageWindow middle_window(int height, int width) {
  const int high = std::min(height, std::max(1, static_cast<int>(std::lround(width / kLeastRatio))));
  const int wide = std::min(width, std::max(1, static_cast<int>(std::lround(height * kMostRatio))));
  return {(height - high) / 2, (width - wide) / 2, high, wide};
}

}  // namespace

PictureReader::PictureReader(const ImageSource& source, std::string path, const ImageOptions& options,
                             int image_size, int side, std::uint64_t seed)
    : source_(source),
      path_(std::move(path)),
      options_(options),
      image_size_(image_size),
      side_(side),
      crop_key_(philox_key(seed, "image.crop")) {}

std::vector<std::string> PictureReader::skipped() const {
  const std::lock_guard lock(mutex_);
  return {skipped_.begin(), skipped_.end()};
}

std::int64_t PictureReader::stand_in(int batch, std::int64_t image) const {
  const std::lock_guard lock(mutex_);
  const auto other = stand_ins_.find({batch, image});
  return other == stand_ins_.end() ? image : other->second;
}

DecodedImage PictureReader::decode_whole(const EncodedImage& encoded) const {
  DecodedImage image = decode_image(encoded.bytes, encoded.name, image_size_);
  check_aspect({image.height, image.width}, encoded.name);
  return image;
}

/// Returns the random window of a training image that will be scaled to what is seen.
ImageWindow PictureReader::crop_window(ImageSize size, const ImagePlace& place) const {
  const auto window = random_window(crop_key_, place, size.height, size.width,
                                    {options_.random_resized_crop, 1, kLeastRatio, kMostRatio});
  return window ? *window : middle_window(size.height, size.width);
}

/// Returns a picture as the cache keeps it: its shorter side is at most the image size.
DecodedImage PictureReader::shortened(DecodedImage image) const {
  if (std::min(image.height, image.width) <= image_size_) return image;
  return resize_image(image, scaled_to_shorter_side({image.height, image.width}, image_size_));
}

PictureCache& PictureReader::cache() const {
  std::call_once(cache_opened_,
                 [&] { cache_ = std::make_unique<PictureCache>(options_.cache, image_size_); });
  return *cache_;
}

/// Reads the window for `crop` of an image, or all of it. With a cache it is a window of the shortened
/// picture, even while the cache is being filled, so that all epochs have the same pixels.
PictureReader::Picture PictureReader::read_picture(int batch, std::int64_t image,
                                                   const std::optional<ImagePlace>& crop,
                                                   std::string& name) const {
  const auto choose = [&](ImageSize size) {
    return crop ? crop_window(size, *crop) : ImageWindow{0, 0, size.height, size.width};
  };
  std::optional<PictureOrigin> origin;
  if (!options_.cache.empty()) origin = source_.origin(batch, image);
  if (origin) {
    if (std::optional<DecodedImage> kept = cache().read(*origin, choose))
      return {std::move(*kept), source_.labels(batch, image)};
  }
  EncodedImage encoded = source_.read(batch, image);
  name = encoded.name;
  if (origin) {
    DecodedImage whole = shortened(decode_whole(encoded));
    cache().add(*origin, whole);
    if (crop) whole = cut_window(whole, choose({whole.height, whole.width}));
    return {std::move(whole), std::move(encoded.labels)};
  }
  if (!crop) return {decode_whole(encoded), std::move(encoded.labels)};
  const auto choose_checked = [&](ImageSize size) {
    check_aspect(size, name);
    return choose(size);
  };
  return {decode_window(encoded.bytes, name, choose_checked, side_), std::move(encoded.labels)};
}

/// Returns what read_picture() does for the image, or for the next readable one of the batch if bad ones
/// are skipped.
PictureReader::Picture PictureReader::read(int batch, std::int64_t image,
                                           const std::optional<ImagePlace>& crop) const {
  for (std::int64_t at = image;;) {
    std::string name;
    try {
      Picture found = read_picture(batch, at, crop, name);
      if (at != image) {
        const std::lock_guard lock(mutex_);
        stand_ins_[{batch, image}] = at;
      }
      return found;
    } catch (const InputError& bad) {
      // Without a name, not the image is bad, but the file it is in, or the cache.
      if (!options_.can_skip || name.empty()) throw;
      if (!options_.skip_bad_images)
        throw InputError(
            fmt::format("{}; --skip-bad-images 1 goes on past images that cannot be read", bad.what()));
      const std::lock_guard lock(mutex_);
      skipped_.insert(name);
    }
    ++at;
    if (source_.extent(batch, at, 1).images == 0) at = 0;
    if (at == image)
      throw InputError(fmt::format("{}: none of the images of batch {} can be read", path_, batch));
  }
}

}  // namespace convnet
