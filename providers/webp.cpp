#include "providers/webp.h"

#include <fmt/format.h>
#include <webp/decode.h>

#include <algorithm>

#include "convnet/base/endian.h"
#include "convnet/base/error.h"
#include "providers/orientation.h"

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

}  // namespace

bool is_webp(std::string_view bytes) {
  return bytes.starts_with("RIFF"sv) && bytes.size() >= 12 && bytes.substr(8, 4) == "WEBP"sv;
}

WebpSize read_webp_size(std::string_view bytes, const std::string& name) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(data_of(bytes), bytes.size(), &features);
  if (status != VP8_STATUS_OK) fail(status, name);
  if (features.has_animation != 0)
    throw InputError(name + ": an animated WebP, which cannot be read; save one of its pictures as PNG");
  return {features.width, features.height};
}

std::vector<std::uint8_t> decode_webp(std::string_view bytes, const WebpSize& size, const std::string& name) {
  constexpr std::int64_t kChannels = 4;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size.width * size.height * kChannels));
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) throw RunError("libwebp is of another version than its headers");
  config.output.colorspace = MODE_RGBA;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {pixels.data(), static_cast<int>(size.width * kChannels), pixels.size()};
  const VP8StatusCode status = WebPDecode(data_of(bytes), bytes.size(), &config);
  if (status != VP8_STATUS_OK) fail(status, name);
  return pixels;
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

}  // namespace convnet
