#include "providers/orientation.h"

#include <webp/encode.h>

#include "convnet/base/checksum.h"
#include "providers/jpeg.h"
#include "providers/resize.h"
#include "providers/webp.h"
#include "tests/catch.h"
#include "tests/providers/test_images.h"
#include "tests/providers/transposed.h"

using namespace convnet;
using namespace std::string_literals;

namespace {

/// Returns a number as `size` bytes.
std::string number(std::uint32_t value, std::size_t size, bool big_endian) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i)
    bytes += static_cast<char>(value >> 8 * (big_endian ? size - 1 - i : i) & 0xFF);
  return bytes;
}

/// EXIF data with another entry and then the orientation, in a directory at `directory`, of `entries`
/// entries.
std::string exif(std::uint32_t orientation, bool big_endian, std::uint32_t directory = 8,
                 std::uint32_t entries = 2, std::uint32_t type = 3) {
  const auto n = [&](std::uint32_t value, std::size_t size) { return number(value, size, big_endian); };
  std::string tiff = (big_endian ? "MM"s : "II"s) + n(42, 2) + n(directory, 4);
  tiff.resize(std::max<std::size_t>(tiff.size(), directory));
  tiff += n(entries, 2) + n(0x0100, 2) + n(4, 2) + n(1, 4) + n(640, 4);
  tiff += n(0x0112, 2) + n(type, 2) + n(1, 4) + n(orientation, 2) + n(0, 2) + n(0, 4);
  return "Exif\0\0"s + tiff;
}

/// A JPEG with a block of APP1.
std::string with_block(const std::string& jpeg, const std::string& block) {
  return jpeg.substr(0, 2) + "\xff\xe1"s + number(static_cast<std::uint32_t>(block.size() + 2), 2, true) +
         block + jpeg.substr(2);
}

DecodedImage mirrored(const DecodedImage& image) {
  DecodedImage out{image.height, image.width, {}};
  for (int y = 0; y < image.height; ++y)
    for (int x = image.width - 1; x >= 0; --x)
      for (int c = 0; c < 3; ++c)
        out.pixels.push_back(image.pixels[static_cast<std::size_t>((y * image.width + x) * 3 + c)]);
  return out;
}
DecodedImage flipped(const DecodedImage& image) {
  return test::transposed(mirrored(test::transposed(image)));
}

/// A PNG with a chunk eXIf.
std::string png_with_block(const std::string& png, const std::string& block) {
  constexpr std::size_t kBegin = 33;  // of the second chunk
  const std::string chunk = "eXIf" + block;
  Crc32 sum;
  sum.add(chunk.data(), chunk.size());
  return png.substr(0, kBegin) + number(static_cast<std::uint32_t>(block.size()), 4, true) + chunk +
         number(sum.value(), 4, true) + png.substr(kBegin);
}

/// A WebP of the extended format, of 40 x 24 pixels, with a chunk EXIF.
std::string webp_with_block(const std::string& webp, const std::string& block) {
  const auto chunk = [](const std::string& name, const std::string& content) {
    return name + number(static_cast<std::uint32_t>(content.size()), 4, false) + content +
           (content.size() % 2 == 1 ? "\0"s : ""s);
  };
  const std::string chunks =
      chunk("VP8X", number(8, 4, false) + number(39, 3, false) + number(23, 3, false)) + webp.substr(12) +
      chunk("XMP ", "odd") + chunk("EXIF", block);
  return chunk("RIFF", "WEBP" + chunks);
}

/// Checks what is seen of a file of 24 x 40 pixels with each orientation, which `add` puts into it.
void check_orientations(const std::string& file,
                        std::string (*add)(const std::string& file, const std::string& block)) {
  const DecodedImage stored = decode_image(file, "image");
  const DecodedImage expected[] = {stored,
                                   mirrored(stored),
                                   mirrored(flipped(stored)),
                                   flipped(stored),
                                   test::transposed(stored),
                                   mirrored(test::transposed(stored)),
                                   mirrored(flipped(test::transposed(stored))),
                                   flipped(test::transposed(stored))};
  for (std::uint32_t orientation = 1; orientation <= 8; ++orientation)
    for (const bool big_endian : {false, true}) {
      INFO(orientation);
      const DecodedImage seen = decode_image(add(file, exif(orientation, big_endian)), "image");
      CHECK(seen.height == (orientation < 5 ? 24 : 40));
      CHECK(seen.width == (orientation < 5 ? 40 : 24));
      CHECK((seen.pixels == expected[orientation - 1].pixels));
      const ImageWindow window{5, 2, 7, 13};
      const auto choose = [&](ImageSize size) {
        CHECK(size.height == seen.height);
        CHECK(size.width == seen.width);
        return window;
      };
      CHECK((decode_window(add(file, exif(orientation, big_endian)), "image", choose).pixels ==
             cut_window(seen, window).pixels));
    }
}

}  // namespace

TEST_CASE("JPEGs are turned as their EXIF orientation says", "[orientation]") {
  const std::string jpeg = encode_jpeg(test_images::waves(24, 40, 1));
  check_orientations(jpeg, with_block);
  // A block of another kind may stand before; the smaller image is turned, too.
  const std::string both =
      with_block(with_block(jpeg, exif(6, false)), "http://ns.adobe.com/xap/1.0/\0<x/>"s);
  CHECK(decode_image(both, "jpeg").height == 40);
  CHECK(decode_image(both, "jpeg", 12).height == 20);
}

TEST_CASE("PNGs are turned as their EXIF orientation says", "[orientation]") {
  const std::string png = test_images::png(test_images::waves(24, 40, 1));
  check_orientations(png, png_with_block);
  // The chunk may also come after the pixels.
  constexpr std::size_t kEnd = 12;  // bytes of the chunk IEND
  const std::string with_chunk = png_with_block(png, exif(6, true));
  const std::string chunk = with_chunk.substr(33, with_chunk.size() - png.size());
  CHECK(
      decode_image(png.substr(0, png.size() - kEnd) + chunk + png.substr(png.size() - kEnd), "png").height ==
      40);
  // The chunk has no name of its own in front.
  CHECK(decode_image(png_with_block(png, exif(6, true).substr(6)), "png").height == 40);
  CHECK(decode_image(png_with_block(png, ""), "png").height == 24);
  CHECK(decode_image(png_with_block(png, "MM"), "png").height == 24);
}

TEST_CASE("WebPs are turned as their EXIF orientation says", "[orientation]") {
  const DecodedImage image = test_images::waves(24, 40, 1);
  std::uint8_t* bytes = nullptr;
  const std::size_t size = WebPEncodeLosslessRGB(image.pixels.data(), 40, 24, 3 * 40, &bytes);
  const std::string webp(reinterpret_cast<const char*>(bytes), size);
  WebPFree(bytes);
  check_orientations(webp, webp_with_block);
  CHECK(decode_image(webp_with_block(webp, exif(6, true).substr(6)), "webp").height == 40);
  const std::string turned = webp_with_block(webp, exif(6, true));
  CHECK(webp_orientation(turned) == 6);
  for (std::size_t cut = 0; cut < turned.size(); ++cut) {
    const int orientation = webp_orientation(std::string_view(turned).substr(0, cut));
    CHECK((orientation == 1 || cut > turned.size() - 8));
  }
  // A chunk that claims more bytes than there are is the last one.
  std::string long_chunk = turned;
  long_chunk.replace(16, 4, "\xff\xff\xff\xff");
  CHECK(webp_orientation(long_chunk) == 1);
}

TEST_CASE("EXIF data that is damaged or says nothing leaves an image as it is", "[orientation]") {
  CHECK(exif_orientation(exif(6, true)) == 6);
  CHECK(exif_orientation(exif(6, false, 100)) == 6);
  CHECK(exif_orientation("") == 1);
  CHECK(exif_orientation("Exif\0\0"s) == 1);
  CHECK(exif_orientation("Exif\0\0II*\0"s) == 1);
  CHECK(exif_orientation("Exif\0\0MM*\0\0\0\0\x08"s) == 1);
  for (const std::uint32_t orientation : {0U, 9U, 65535U})
    CHECK(exif_orientation(exif(orientation, true)) == 1);
  CHECK(exif_orientation(exif(6, true, 8, 1)) == 1);      // the entry lies behind the directory
  CHECK(exif_orientation(exif(6, true, 8, 65535)) == 6);  // fewer entries than promised
  CHECK(exif_orientation(exif(6, true, 8, 2, 4)) == 1);   // not a short
  const std::string whole = exif(6, false);
  std::string far = whole;
  far.replace(10, 4, "\xff\xff\xff\xff");
  CHECK(exif_orientation(far) == 1);
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK((exif_orientation(whole.substr(0, size)) == 1 || size + 6 >= whole.size()));
}
