// The image decoders (JPEG, PNG, BMP) on any bytes, with the scaling and cutting that providers do next. The
// first byte says how large the scaled image is to be; the rest is the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "kernels/error.h"
#include "providers/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convnet;
  if (size == 0) return 0;
  const int side = 1 + data[0] % 64;
  try {
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
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
  } catch (const InputError&) {
    // Refusing bad input is right.
  }
  return 0;
}
