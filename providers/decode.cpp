#include "providers/decode.h"

#include "convnet/base/error.h"
#include "convnet/base/file_format.h"
#include "providers/bmp.h"
#include "providers/jpeg.h"
#include "providers/png.h"
#include "providers/resize.h"
#include "providers/webp.h"

namespace convnet {

using namespace std::string_view_literals;

void make_grey(DecodedImage& image) {
  for (std::size_t i = 0; i + 2 < image.pixels.size(); i += 3) {
    std::uint8_t* const rgb = image.pixels.data() + i;
    rgb[0] = rgb[1] = rgb[2] = luma(rgb[0], rgb[1], rgb[2]);
  }
}

DecodedImage decode_image(std::string_view bytes, const std::string& name, int wanted_side) {
  return decode_window(bytes, name, {}, wanted_side);
}

DecodedImage decode_window(std::string_view bytes, const std::string& name, const ChooseWindow& choose,
                           int wanted_side) {
  if (bytes.empty()) throw InputError(name + ": the file is empty");
  if (bytes.starts_with("\xff\xd8"sv)) return decode_jpeg(bytes, name, choose, wanted_side);
  if (is_webp(bytes)) return decode_webp(bytes, name, choose, wanted_side);
  if (bytes.starts_with(kPngMagic)) return decode_png(bytes, name, choose);
  if (!is_bmp(bytes))
    throw InputError(
        name + ": " +
        other_format_text(bytes, "a JPEG, PNG, BMP or WebP image", "is not a JPEG, PNG, BMP or WebP image"));
  DecodedImage image = decode_bmp(bytes, name);
  return choose ? cut_window(image, choose({image.height, image.width})) : image;
}

}  // namespace convnet
