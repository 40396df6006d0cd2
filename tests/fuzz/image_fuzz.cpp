// The image decoders (JPEG, PNG, BMP, WebP) on any bytes, with the scaling and cutting that providers do
// next. The first byte says how large the scaled image is to be; the rest is the file.
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "convnet/base/error.h"
#include "providers/decode.h"
#include "providers/resize.h"

namespace {

/// Gives the pieces of a PNG the right checksums, which inputs made by chance never have.
void mend_checksums(std::string& bytes) {
  constexpr std::size_t magic = 8, frame = 12;
  if (!bytes.starts_with("\x89PNG")) return;
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(bytes[at]); };
  for (std::size_t at = magic; at + frame <= bytes.size();) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | byte(at + i);
    if (length > bytes.size() - at - frame) return;
    const auto* const piece = reinterpret_cast<const Bytef*>(bytes.data()) + at + 4;
    const uLong sum = crc32(0, piece, static_cast<uInt>(length + 4));
    for (std::size_t i = 0; i < 4; ++i)
      bytes[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i) & 0xFF);
    at += length + frame;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convnet;
  if (size == 0) return 0;
  const int side = 1 + data[0] % 64;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  mend_checksums(bytes);
  try {
    const DecodedImage image = decode_image(bytes, "image", side);
    if (image.pixels.size() !=
        std::size_t{3} * static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height))
      std::abort();
    const ImageSize scaled = scaled_to_shorter_side({image.height, image.width}, side);
    for (const bool far : {false, true}) {
      const ImageWindow window = {far ? scaled.height - side : 0, far ? scaled.width - side : 0, side, side};
      const DecodedImage square = resize_image(image, scaled, window);
      if (centre_square(square, side).pixels != square.pixels) std::abort();
    }
    const auto corner = [&](ImageSize size) {
      return ImageWindow{size.height / 2, size.width / 2, size.height - size.height / 2,
                         size.width - size.width / 2};
    };
    if (decode_window(bytes, "image", corner, side).pixels.empty()) std::abort();
  } catch (const InputError&) {
    // Refusing bad input is right.
  }
  return 0;
}
