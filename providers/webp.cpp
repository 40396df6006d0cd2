#include "providers/webp.h"

#include <webp/decode.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "convnet/base/endian.h"
#include "convnet/base/error.h"
#include "providers/channels.h"
#include "providers/orientation.h"
#include "providers/resize.h"

namespace convnet {
namespace {

using namespace std::string_view_literals;

const std::uint8_t* data_of(std::string_view bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

[[noreturn]] void fail(VP8StatusCode status, const std::string& name) {
  switch (status) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED: throw InputError(name + ": a WebP that is cut off");
    case VP8_STATUS_OUT_OF_MEMORY: throw InputError(name + ": a WebP for which there is not enough memory");
    default: throw InputError(name + ": a damaged image: a WebP that cannot be decoded");
  }
}

/// Reads what is said of an image. Throws InputError if it is animated.
WebPBitstreamFeatures read_features(std::string_view bytes, const std::string& name) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(data_of(bytes), bytes.size(), &features);
  if (status != VP8_STATUS_OK) fail(status, name);
  if (features.has_animation != 0)
    throw InputError(name + ": an animated WebP, which cannot be read; save one of its pictures as PNG");
  return features;
}

/// Returns a window with more pixels around it, because colours of a lower resolution are made of the
/// neighbouring pixels, too. It begins at even numbers, as the library demands.
ImageWindow widened(const ImageWindow& window, ImageSize image) {
  constexpr int kNeighbours = 4;
  const int y = std::max(0, window.y - kNeighbours) & ~1, x = std::max(0, window.x - kNeighbours) & ~1;
  return {y, x, std::min(image.height, window.y + window.height + kNeighbours) - y,
          std::min(image.width, window.x + window.width + kNeighbours) - x};
}

}  // namespace

bool is_webp(std::string_view bytes) {
  return bytes.starts_with("RIFF"sv) && bytes.size() >= 12 && bytes.substr(8, 4) == "WEBP"sv;
}

int webp_orientation(std::string_view bytes) {
  // A chunk is a name of four bytes, the length of its content, and the content, padded to an even length.
  constexpr std::size_t kHead = 8;
  bytes.remove_prefix(std::min<std::size_t>(bytes.size(), 12));
  while (bytes.size() > kHead) {
    const std::size_t count = little_endian(bytes, 4, 4);
    const std::string_view content = bytes.substr(kHead, count);
    if (bytes.starts_with("EXIF"sv)) return exif_orientation(content);
    bytes.remove_prefix(std::min(bytes.size(), kHead + count + count % 2));
  }
  return 1;
}

DecodedImage decode_webp(std::string_view bytes, const std::string& name, const ChooseWindow& choose,
                         int wanted_side) {
  const WebPBitstreamFeatures features = read_features(bytes, name);
  check_size(features.width, features.height, name);
  const int orientation = webp_orientation(bytes);
  const ImageSize stored{features.height, features.width};
  ImageWindow window{0, 0, stored.height, stored.width};
  if (choose) window = stored_window(choose(upright_size(stored, orientation)), stored, orientation);
  const int eighths = eighths_for(window, wanted_side);
  // The library scales what it has cut, so a window that is scaled is cut exactly, but for an odd corner.
  const ImageWindow cut = eighths < 8 ? ImageWindow{window.y & ~1, window.x & ~1, window.height, window.width}
                                      : widened(window, stored);
  const auto scaled = [&](int side) { return (side * eighths + 7) / 8; };
  DecodedImage image{scaled(cut.height), scaled(cut.width), {}};

  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) throw RunError("libwebp is of another version than its headers");
  config.options.use_cropping = 1;
  config.options.crop_top = cut.y;
  config.options.crop_left = cut.x;
  config.options.crop_height = cut.height;
  config.options.crop_width = cut.width;
  config.options.use_scaling = eighths < 8 ? 1 : 0;
  config.options.scaled_height = image.height;
  config.options.scaled_width = image.width;
  const bool opaque = features.has_alpha == 0;
  const std::size_t channels = opaque ? 3 : 4;
  const std::size_t count = static_cast<std::size_t>(image.height) * static_cast<std::size_t>(image.width);
  std::vector<std::uint8_t> pixels(count * channels);
  config.output.colorspace = opaque ? MODE_RGB : MODE_RGBA;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {pixels.data(), image.width * static_cast<int>(channels), pixels.size()};
  const VP8StatusCode status = WebPDecode(data_of(bytes), bytes.size(), &config);
  if (status != VP8_STATUS_OK) fail(status, name);

  if (opaque) {
    image.pixels = std::move(pixels);
  } else {
    image.pixels.resize(3 * count);
    blend_onto_white(pixels.data(), count, image.pixels.data());
  }
  if (eighths == 8 && (cut.height != window.height || cut.width != window.width))
    image = cut_window(image, {window.y - cut.y, window.x - cut.x, window.height, window.width});
  return upright(std::move(image), orientation);
}

}  // namespace convnet
