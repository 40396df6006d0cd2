// Images of every form, made here; damaged ones; scaling.
#include "providers/decode.h"

#include <webp/encode.h>
#include <zlib.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "convnet/base/error.h"
#include "providers/jpeg.h"
#include "providers/png.h"
#include "providers/resize.h"
#include "tests/catch.h"
#include "tests/providers/test_images.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

using namespace std::string_literals;

double largest_difference(const DecodedImage& a, const DecodedImage& b) {
  REQUIRE(a.height == b.height);
  REQUIRE(a.width == b.width);
  REQUIRE(a.pixels.size() == b.pixels.size());
  double most = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i)
    most = std::max(most, std::abs(double{1} * a.pixels[i] - b.pixels[i]));
  return most;
}

/// Draws numbers, the same in each run.
class Lots {
 public:
  int below(int end) { return static_cast<int>(engine_() % static_cast<std::uint32_t>(end)); }

 private:
  std::mt19937 engine_;
};

std::vector<std::uint8_t> first_channel(const DecodedImage& image) {
  std::vector<std::uint8_t> values;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) values.push_back(image.pixels[i]);
  return values;
}

std::string error_of(const std::string& bytes) {
  return message_of<InputError>([&] { decode_image(bytes, "cat"); });
}

/// `value` as four bytes, the lowest first.
std::string little_endian(std::int64_t value) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

/// A BMP of Windows' first form; `rows` as they lie in the file.
std::string small_bmp(std::int64_t width, std::int64_t height, int bits, const std::string& palette,
                      const std::string& rows, int compression = 0) {
  const auto start = static_cast<std::int64_t>(54 + palette.size());
  return "BM" + little_endian(start + static_cast<std::int64_t>(rows.size())) + little_endian(0) +
         little_endian(start) + little_endian(40) + little_endian(width) + little_endian(height) +
         little_endian(1 | bits << 16) + little_endian(compression) + std::string(20, '\0') + palette + rows;
}

/// The mean of a window, computed in double: scaling by whole factors.
DecodedImage means(const DecodedImage& image, int factor) {
  DecodedImage out{image.height / factor, image.width / factor, {}};
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x)
      for (int c = 0; c < 3; ++c) {
        double sum = 0;
        for (int dy = 0; dy < factor; ++dy)
          for (int dx = 0; dx < factor; ++dx)
            sum += image.pixels[static_cast<std::size_t>(
                ((y * factor + dy) * image.width + x * factor + dx) * 3 + c)];
        out.pixels.push_back(static_cast<std::uint8_t>(std::lround(sum / (factor * factor))));
      }
  return out;
}

/// A WebP file of an image with opacity; `quality` is 0 to 100, or lossless if it is negative.
std::string webp(const std::vector<std::uint8_t>& rgba, int width, float quality) {
  const int height = static_cast<int>(rgba.size()) / width / 4;
  std::uint8_t* bytes = nullptr;
  const std::size_t size = quality < 0
                               ? WebPEncodeLosslessRGBA(rgba.data(), width, height, 4 * width, &bytes)
                               : WebPEncodeRGBA(rgba.data(), width, height, 4 * width, quality, &bytes);
  REQUIRE(size > 0);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  WebPFree(bytes);
  return file;
}
std::string webp(const DecodedImage& image, float quality) {
  std::vector<std::uint8_t> rgba;
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    rgba.push_back(image.pixels[i]);
    if (i % 3 == 2) rgba.push_back(255);
  }
  return webp(rgba, image.width, quality);
}

}  // namespace

TEST_CASE("images of every form decode to their pixels", "[decode]") {
  const DecodedImage image = test_images::waves(48, 65, 3);
  CHECK(largest_difference(decode_image(test_images::png(image), "png"), image) == 0);
  CHECK(largest_difference(decode_image(test_images::bmp(image), "bmp"), image) == 0);
  CHECK(largest_difference(decode_image(webp(image, -1), "webp"), image) == 0);
  CHECK(largest_difference(decode_image(webp(image, 95), "webp"), image) < 30);
  const std::string jpeg = encode_jpeg(image);
  CHECK(jpeg.starts_with("\xff\xd8"));
  CHECK(largest_difference(decode_image(jpeg, "jpeg"), image) < 20);
  CHECK(encode_jpeg(image) == jpeg);
  CHECK(encode_jpeg(image, 30).size() < jpeg.size());
}

TEST_CASE("grey, transparent and CMYK images become RGB", "[decode]") {
  const DecodedImage image = test_images::waves(32, 40, 1);
  DecodedImage grey = image, on_white = image;
  std::vector<std::uint8_t> values, with_alpha, inks;
  for (std::size_t i = 0; i < grey.pixels.size(); i += 3) {
    values.push_back(grey.pixels[i]);
    grey.pixels[i + 1] = grey.pixels[i + 2] = grey.pixels[i];
    const auto alpha = static_cast<std::uint8_t>(i % 256);
    with_alpha.insert(with_alpha.end(), {image.pixels[i], image.pixels[i + 1], image.pixels[i + 2], alpha});
    for (std::size_t c = i; c < i + 3; ++c)
      on_white.pixels[c] =
          static_cast<std::uint8_t>(std::lround((image.pixels[c] * alpha + 255.0 * (255 - alpha)) / 255));
    // No black: cyan, magenta and yellow are what is missing of white. Adobe's files invert all four.
    inks.insert(inks.end(), {image.pixels[i], image.pixels[i + 1], image.pixels[i + 2], 255});
  }
  CHECK(largest_difference(decode_image(test_images::png(32, 40, 1, values), "grey"), grey) == 0);
  CHECK(largest_difference(decode_image(test_images::png(32, 40, 4, with_alpha), "alpha"), on_white) == 0);
  CHECK(largest_difference(decode_image(test_images::jpeg(32, 40, 1, values), "grey jpeg"), grey) < 8);
  CHECK(largest_difference(decode_image(test_images::jpeg(32, 40, 4, inks), "cmyk"), image) < 20);
}

TEST_CASE("pieces of a PNG without pixels are passed over", "[decode]") {
  const DecodedImage image = test_images::waves(16, 20, 3);
  std::string png = test_images::png(image);
  const std::string empty = "\0\0\0\0IDAT\x35\xaf\x06\x1e"s;  // with its checksum
  png.insert(png.find("IDAT") - 4, empty);
  png.insert(png.find("IEND") - 4, empty);
  CHECK(decode_image(png, "cat").pixels == image.pixels);
}

TEST_CASE("a JPEG is decoded no larger than needed", "[decode]") {
  const DecodedImage image = test_images::waves(160, 240, 2);
  const std::string jpeg = encode_jpeg(image);
  const auto side = [&](int wanted) {
    const DecodedImage decoded = decode_image(jpeg, "jpeg", wanted);
    return std::min(decoded.height, decoded.width);
  };
  CHECK(side(0) == 160);
  CHECK(side(81) == 160);
  CHECK(side(80) == 80);
  CHECK(side(41) == 80);
  CHECK(side(40) == 40);
  CHECK(side(20) == 20);
  CHECK(side(1) == 20);
  CHECK(side(500) == 160);
  const DecodedImage half = decode_image(jpeg, "jpeg", 80);
  CHECK(half.width == 120);
  CHECK(largest_difference(half, means(image, 2)) < 24);
}

TEST_CASE("a window of an image has the pixels of the whole", "[decode]") {
  const DecodedImage image = test_images::waves(83, 131, 2);
  std::vector<std::uint8_t> transparent;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3)
    transparent.insert(transparent.end(), {image.pixels[i], image.pixels[i + 1], image.pixels[i + 2],
                                           static_cast<std::uint8_t>(i % 256)});
  std::vector<std::string> files = {test_images::png(image),
                                    test_images::png(83, 131, 4, transparent),
                                    test_images::bmp(image),
                                    test_images::jpeg(83, 131, 1, first_channel(image)),
                                    webp(image, -1),
                                    webp(image, 60),
                                    webp(transparent, 131, -1),
                                    webp(transparent, 131, 60)};
  for (const bool progressive : {false, true})
    for (const auto& [x, y] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}})
      files.push_back(test_images::jpeg_of_colors(image, x, y, progressive));
  Lots lots;
  for (std::size_t file = 0; file < files.size(); ++file)
    for (int round = 0; round < 60; ++round) {
      ImageWindow window{lots.below(83), lots.below(131), 0, 0};
      window.height = 1 + lots.below(83 - window.y);
      window.width = 1 + lots.below(131 - window.x);
      if (round == 0) window = {0, 0, 83, 131};
      CAPTURE(file, window.y, window.x, window.height, window.width);
      const auto choose = [&](ImageSize size) {
        CHECK(size.height == 83);
        CHECK(size.width == 131);
        return window;
      };
      CHECK(decode_window(files[file], "image", choose).pixels ==
            cut_window(decode_image(files[file], "image"), window).pixels);
    }
}

TEST_CASE("a WebP is decoded no larger than needed", "[decode]") {
  const DecodedImage image = test_images::waves(96, 160, 2);
  for (const float quality : {-1.0F, 95.0F}) {
    const std::string file = webp(image, quality);
    CHECK(decode_image(file, "webp", 97).height == 96);
    CHECK(decode_image(file, "webp", 49).height == 96);
    for (const int factor : {2, 4, 8}) {
      const DecodedImage scaled = decode_image(file, "webp", 96 / factor);
      CHECK(scaled.height == 96 / factor);
      CHECK(scaled.width == 160 / factor);
      CHECK(largest_difference(scaled, means(image, factor)) < (quality < 0 ? 8 : 30));
    }
    const ImageWindow window{31, 65, 48, 64};
    const auto part = [&](int wanted) {
      return decode_window(
          file, "webp", [&](ImageSize) { return window; }, wanted);
    };
    CHECK(part(25).pixels == cut_window(decode_image(file, "webp"), window).pixels);
    CHECK(largest_difference(part(24), means(cut_window(image, {30, 64, 48, 64}), 2)) <
          (quality < 0 ? 8 : 30));
  }
}

TEST_CASE("a window of a JPEG is decoded no larger than needed", "[decode]") {
  const DecodedImage image = test_images::waves(160, 240, 2);
  for (const auto& [x, y] : {std::pair{1, 1}, {2, 1}, {2, 2}}) {
    const std::string jpeg = test_images::jpeg_of_colors(image, x, y, false);
    const auto part = [&](const ImageWindow& window, int wanted) {
      return decode_window(
          jpeg, "jpeg", [&](ImageSize) { return window; }, wanted);
    };
    const ImageWindow window{32, 64, 64, 96};
    CHECK(part(window, 33).pixels == cut_window(decode_image(jpeg, "jpeg"), window).pixels);
    CHECK(part(window, 32).pixels == cut_window(decode_image(jpeg, "jpeg", 80), {16, 32, 32, 48}).pixels);
    CHECK(part(window, 16).pixels == cut_window(decode_image(jpeg, "jpeg", 40), {8, 16, 16, 24}).pixels);
    CHECK(part(window, 8).pixels == cut_window(decode_image(jpeg, "jpeg", 20), {4, 8, 8, 12}).pixels);
    // Pixels that show a part of the window belong to it.
    CHECK(part({33, 63, 65, 98}, 32).pixels ==
          cut_window(decode_image(jpeg, "jpeg", 80), {16, 31, 33, 50}).pixels);
  }
}

TEST_CASE("a JPEG that is cut off below a window is damaged", "[decode]") {
  const DecodedImage image = test_images::waves(160, 240, 2);
  const auto top = [](ImageSize) { return ImageWindow{4, 10, 20, 30}; };
  for (const bool progressive : {false, true}) {
    const std::string jpeg = test_images::jpeg_of_colors(image, 2, 2, progressive);
    CHECK_NOTHROW(decode_window(jpeg, "cat", top));
    CHECK_NOTHROW(decode_window(jpeg + "more", "cat", top));
    for (const std::size_t left : {jpeg.size() / 2, jpeg.size() - 2})
      CHECK(message_of<InputError>([&] {
              decode_window(jpeg.substr(0, left), "cat", top);
            }).starts_with("cat: a damaged JPEG: "));
  }
}

TEST_CASE("damaged images are errors with their name", "[decode]") {
  const DecodedImage image = test_images::waves(48, 48, 3);
  CHECK(error_of("") == "cat: the file is empty");
  CHECK(error_of("GIF89a") ==
        "cat: is a GIF picture, not a JPEG, PNG, BMP or WebP image; convert it to JPEG or PNG");
  CHECK(error_of("\0\0\0\x18"
                 "ftypheic"s +
                 std::string(16, '\0'))
            .starts_with("cat: is a HEIC picture, not a JPEG, PNG, BMP or WebP image; convert"));
  CHECK(error_of("<!DOCTYPE html>\n<html>") ==
        "cat: is a web page, not a JPEG, PNG, BMP or WebP image; perhaps a download that failed");
  const std::string jpeg = encode_jpeg(image);
  for (const std::size_t left :
       {std::size_t{2}, std::size_t{20}, std::size_t{300}, jpeg.size() / 2, jpeg.size() - 8}) {
    CAPTURE(left);
    CHECK(error_of(jpeg.substr(0, left)).starts_with("cat: a damaged JPEG: "));
  }
  // Bits that do not decode; and bytes between markers, which do not matter.
  std::string noise = jpeg;
  for (std::size_t i = jpeg.size() / 2; i < jpeg.size() - 2; ++i) noise[i] = '\x55';
  CHECK(error_of(noise).starts_with("cat: a damaged JPEG: "));
  CHECK(largest_difference(decode_image(jpeg.substr(0, 20) + "xx" + jpeg.substr(20), "cat"), image) < 20);

  const std::string png = test_images::png(image);
  for (std::size_t left = 8; left < png.size(); left += 100)
    CHECK(error_of(png.substr(0, left)) == "cat: a PNG that is cut off");
  for (std::size_t at = 12; at < png.size(); at += 37) {
    std::string changed = png;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    CAPTURE(at);
    CHECK(error_of(changed).starts_with("cat: a "));
  }

  const std::string bmp = test_images::bmp(image);
  CHECK(error_of(bmp.substr(0, 40)) == "cat: a BMP that is cut off");
  CHECK(error_of("BM" + std::string(60, 'x')).starts_with("cat: a damaged image: "));
  CHECK(error_of(bmp.substr(0, bmp.size() - 1)) == "cat: a BMP that is cut off");
}

TEST_CASE("a JPEG has as many scans as images need, and no more", "[decode]") {
  constexpr int kSide = 16;
  const std::vector<std::uint8_t> grey(kSide * kSide, 77);
  CHECK(decode_image(test_images::progressive_jpeg(kSide, kSide, grey, 63), "cat").pixels ==
        std::vector<std::uint8_t>(3 * grey.size(), 77));
  CHECK(error_of(test_images::progressive_jpeg(kSide, kSide, grey, 150)) ==
        "cat: a damaged JPEG: it has more than 100 scans, the most for an image of its size");
  // What a scan costs depends on the pixels.
  CHECK(most_scans(1) == 100);
  CHECK(most_scans(12'000'000) == 100);
  CHECK(most_scans(50'000'000) == 30);
  CHECK(most_scans(kMaxImagePixels) == 15);
}

TEST_CASE("a JPEG that repeats a scan is damaged", "[decode]") {
  const std::string jpeg = test_images::progressive_jpeg(16, 16, std::vector<std::uint8_t>(256, 77), 3);
  const std::size_t last = jpeg.rfind("\xFF\xDA"), end = jpeg.rfind("\xFF\xD9");
  const std::string scan = jpeg.substr(last, end - last);
  CHECK(decode_image(jpeg, "cat").height == 16);
  CHECK(error_of(jpeg.substr(0, end) + scan + jpeg.substr(end)).starts_with("cat: a damaged JPEG: "));
}

/// Returns a PNG chunk.
std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto* const bytes = reinterpret_cast<const Bytef*>(body.data());
  const auto big_endian = [](std::uint64_t number) {
    std::string text;
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(number >> shift & 0xFF);
    return text;
  };
  return big_endian(data.size()) + body + big_endian(crc32(0, bytes, static_cast<uInt>(body.size())));
}

/// Returns a PNG with these rows, compressed, in two chunks, and with chunks before them. `interlaced` is 0
/// or 1, and `color` is the type of the pixels.
std::string png_of(char width, char height, char bits, char color, char interlaced, const std::string& rows,
                   const std::string& before = "") {
  std::string packed(compressBound(rows.size()), '\0');
  uLongf size = packed.size();
  compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()),
            rows.size(), 9);
  packed.resize(size);
  const std::string header = "\0\0\0"s + width + "\0\0\0"s + height + bits + color + "\0\0"s + interlaced;
  return std::string(kPngMagic) + png_chunk("IHDR", header) + before +
         png_chunk("IDAT", packed.substr(0, size / 2)) + png_chunk("IDAT", packed.substr(size / 2)) +
         png_chunk("IEND", "");
}
std::string grey_png(char width, char height, char interlaced, const std::string& rows) {
  return png_of(width, height, 8, 0, interlaced, rows);
}

TEST_CASE("PNGs of every depth, with palettes and opacities, decode to their pixels", "[decode]") {
  using Pixels = std::vector<std::uint8_t>;
  const auto pixels = [](const std::string& png) { return decode_image(png, "cat").pixels; };
  constexpr char grey = 0, color = 2, palette = 3, grey_alpha = 4, color_alpha = 6;
  CHECK(pixels(png_of(3, 1, 1, grey, 0, "\0\xa0"s)) == Pixels{255, 255, 255, 0, 0, 0, 255, 255, 255});
  CHECK(pixels(png_of(2, 1, 2, grey, 0, "\0\x60"s)) == Pixels{85, 85, 85, 170, 170, 170});
  CHECK(pixels(png_of(2, 1, 4, grey, 0, "\0\x1f"s)) == Pixels{17, 17, 17, 255, 255, 255});
  CHECK(pixels(png_of(1, 1, 16, grey, 0, "\0\x12\xff"s)) == Pixels{0x12, 0x12, 0x12});
  CHECK(pixels(png_of(1, 1, 16, color, 0, "\0\1\xff\2\xff\3\xff"s)) == Pixels{1, 2, 3});
  CHECK(pixels(png_of(1, 2, 8, color, 0, "\0\1\2\3\2\1\1\1"s)) == Pixels{1, 2, 3, 2, 3, 4});  // filter: up
  // Opacity 0 is white paper, half of it mixes.
  CHECK(pixels(png_of(1, 1, 8, grey_alpha, 0, "\0\x64\x80"s)) == Pixels{177, 177, 177});
  CHECK(pixels(png_of(1, 1, 8, color_alpha, 0, "\0\x64\x0a\x14\x80"s)) == Pixels{177, 132, 137});
  CHECK(pixels(png_of(1, 1, 16, color_alpha, 0, "\0\x64\0\x0a\0\x14\0\x80\0"s)) == Pixels{177, 132, 137});
  for (const char interlaced : {'\0', '\1'}) {
    const std::string colors = png_chunk("PLTE", "\1\2\3\4\5\6"s);
    CHECK(pixels(png_of(1, 1, 1, palette, interlaced, "\0\x80"s, colors)) == Pixels{4, 5, 6});
    CHECK(pixels(png_of(1, 1, 8, palette, interlaced, "\0\0"s, colors + png_chunk("tRNS", "\0"s))) ==
          Pixels{255, 255, 255});
    // A colour, or a grey, that is transparent.
    const std::string clear = png_chunk("tRNS", "\0\1\0\2\0\3"s);
    CHECK(pixels(png_of(1, 1, 8, color, interlaced, "\0\1\2\3"s, clear)) == Pixels{255, 255, 255});
    CHECK(pixels(png_of(1, 1, 8, color, interlaced, "\0\1\2\4"s, clear)) == Pixels{1, 2, 4});
    CHECK(pixels(png_of(1, 1, 8, grey, interlaced, "\0\7"s, png_chunk("tRNS", "\0\7"s))) ==
          Pixels{255, 255, 255});
    CHECK(error_of(png_of(1, 1, 8, palette, interlaced, "\0\0"s)).starts_with("cat: a damaged image: "));
  }
  // Pieces that pixels do not need are passed over, whatever is in them; others must be known.
  const std::string row = "\0\5"s, unknown = png_chunk("iCCP", "x") + png_chunk("zTXt", "y\0\0z"s);
  CHECK(pixels(png_of(1, 1, 8, grey, 0, row, unknown)) == Pixels{5, 5, 5});
  CHECK(
      error_of(png_of(1, 1, 8, grey, 0, row, png_chunk("ABCD", "x"))).starts_with("cat: a damaged image: "));
  CHECK(error_of(png_of(1, 1, 8, grey, 0, row, png_chunk("CgBI", "x"))) ==
        "cat: a PNG of Apple's own form (CgBI), which cannot be read; save it as PNG");
  CHECK(error_of(png_of(1, 1, 3, grey, 0, row)).starts_with("cat: a damaged image: "));
  CHECK(error_of(png_of(1, 1, 8, 5, 0, row)).starts_with("cat: a damaged image: "));
  CHECK(
      error_of(png_of(1, 1, 8, grey, 0, "\x09\5"s)).starts_with("cat: a damaged image: "));  // no such filter
  // Damage far below a window is not noticed.
  const std::string broken = grey_png(1, 4, 0, "\0\1\0\2\0\3\x09\4"s);
  CHECK(error_of(broken).starts_with("cat: a damaged image: "));
  CHECK(decode_window(broken, "cat", [](ImageSize) {
          return ImageWindow{1, 0, 1, 1};
        }).pixels == Pixels{2, 2, 2});
}

TEST_CASE("a PNG is decompressed as far as it has pixels", "[decode]") {
  const std::string rows = "\0\1\2\0\3\4"s;
  const std::vector<std::uint8_t> pixels = {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4};
  CHECK(decode_image(grey_png(2, 2, 0, rows), "cat").pixels == pixels);
  // Adam7: the first pixel, the one to its right, then the second row.
  const std::string passes = "\0\1\0\2\0\3\4"s;
  CHECK(decode_image(grey_png(2, 2, 1, passes), "cat").pixels == pixels);
  CHECK(error_of(grey_png(2, 2, 0, rows.substr(0, 5))).starts_with("cat: a damaged image: "));
  CHECK(error_of(grey_png(2, 2, 1, rows)).starts_with("cat: a damaged image: "));
  // 100 MB of zeros behind the pixels, in 100 KB.
  const std::string bomb = grey_png(2, 2, 0, rows + std::string(100'000'000, '\0'));
  CHECK(bomb.size() < 200'000);
  CHECK(decode_image(bomb, "cat").pixels == pixels);
}

TEST_CASE("a WebP may have opacities, and is refused if it is damaged or animated", "[decode]") {
  const std::vector<std::uint8_t> half = {100, 10, 20, 128, 100, 10, 20, 0};
  CHECK(decode_image(webp(half, 2, -1), "cat").pixels ==
        std::vector<std::uint8_t>{177, 132, 137, 255, 255, 255});
  for (const float quality : {-1.0F, 90.0F}) {
    const std::string whole = webp(test_images::waves(16, 16, 1), quality);
    CHECK(error_of(whole.substr(0, 20)) == "cat: a WebP that is cut off");
    CHECK(error_of(whole.substr(0, whole.size() - 8)) == "cat: a WebP that is cut off");
    std::string damaged = whole;
    damaged.replace(20, 10, 10, '\xFF');
    CHECK(error_of(damaged) == "cat: a damaged image: a WebP that cannot be decoded");
  }
  CHECK(error_of("RIFF\x04\0\0\0WEBP"s) == "cat: a damaged image: a WebP that cannot be decoded");
  CHECK(error_of("RIFF\x04\0\0\0WAVE"s) == "cat: is not a JPEG, PNG, BMP or WebP image");
  // A header with the flag of animations, and sides of 10,001 pixels.
  std::string header = "RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\x10\x27\0\x10\x27\0"s;
  CHECK(error_of(header) == "cat: an animated WebP, which cannot be read; save one of its pictures as PNG");
  header[4] = 0x24;  // with the piece that follows
  header[20] = 0;
  header += "VP8L\x05\0\0\0\x2f\x10\x27\xc4\x09\0"s;
  CHECK(error_of(header) == "cat: 10001 x 10001 pixels; 100000000 are allowed");
}

TEST_CASE("a BMP may have opacities, lie top-down and use a palette", "[decode]") {
  // A pixel of half opacity is blended onto white; where all opacities are 0 they are not meant.
  const auto pixel = [](const std::string& bytes) { return decode_image(bytes, "cat").pixels; };
  CHECK(pixel(small_bmp(1, 1, 32, "", "\x14\x0a\x64\x80"s)) == std::vector<std::uint8_t>{177, 132, 137});
  CHECK(pixel(small_bmp(1, 1, 32, "", "\x14\x0a\x64\0"s)) == std::vector<std::uint8_t>{100, 10, 20});
  const std::string rows = "\1\2\3\0\4\5\6\0"s;  // padded to four bytes
  CHECK(pixel(small_bmp(1, 2, 24, "", rows)) == std::vector<std::uint8_t>{6, 5, 4, 3, 2, 1});
  CHECK(pixel(small_bmp(1, -2, 24, "", rows)) == std::vector<std::uint8_t>{3, 2, 1, 6, 5, 4});
  const std::string palette = "\1\2\3\0\4\5\6\0"s;
  const std::vector<std::uint8_t> both = {6, 5, 4, 3, 2, 1};
  CHECK(pixel(small_bmp(2, 1, 1, palette, "\x80\0\0\0"s)) == both);
  CHECK(pixel(small_bmp(2, 1, 4, palette, "\x10\0\0\0"s)) == both);
  CHECK(pixel(small_bmp(2, 1, 8, palette, "\1\0\0\0"s)) == both);
  // Colours for screens that show few, before pixels that need none, and more colours than pixels can have.
  CHECK(pixel(small_bmp(1, 2, 24, palette, rows)) == std::vector<std::uint8_t>{6, 5, 4, 3, 2, 1});
  CHECK(pixel(small_bmp(1, 1, 32, palette, "\x14\x0a\x64\0"s)) == std::vector<std::uint8_t>{100, 10, 20});
  const std::string masks = "\0\xf8\0\0\xe0\x07\0\0\x1f\0\0\0"s;
  for (const std::string& more : {""s, palette})
    CHECK(pixel(small_bmp(1, 1, 16, masks + more, "\0\xf8\0\0"s, 3)) == std::vector<std::uint8_t>{255, 0, 0});
  CHECK(pixel(small_bmp(1, 1, 16, palette, "\0\x7c\0\0"s)) == std::vector<std::uint8_t>{255, 0, 0});
  CHECK(pixel(small_bmp(2, 1, 1, palette + palette + palette, "\x80\0\0\0"s)) == both);
  CHECK(pixel(small_bmp(2, 1, 8, palette + std::string(1024, '\0'), "\1\0\0\0"s)) == both);
}

TEST_CASE("images without pixels and BMPs that make no sense are errors", "[decode]") {
  // BMPs of 54 bytes, which once ended the program; the name of the file does not matter.
  for (const auto& [width, height] : {std::pair{0, 0}, {0, 5}, {5, 0}, {-1, 5}}) {
    CAPTURE(width, height);
    CHECK(error_of(small_bmp(width, height, 24, "", "")) == "cat: a damaged image: " + std::to_string(width) +
                                                                " x " + std::to_string(height) +
                                                                " pixels; a side has at least one");
  }
  const int lowest = std::numeric_limits<int>::min();
  CHECK(error_of(small_bmp(1, lowest, 24, "", "")) == "cat: 1 x 2147483648 pixels; 100000000 are allowed");
  CHECK(error_of(small_bmp(1, 1, 7, "", "\0\0\0\0"s)) ==
        "cat: a damaged image: a BMP of 7 bits a pixel; there are 1, 4, 8, 16, 24, 32");
  const std::string palette = "\1\2\3\0\4\5\6\0"s;
  const std::string colour = "a BMP with a pixel whose colour is not among the 2 of its palette";
  CHECK(error_of(small_bmp(2, 1, 8, palette, "\1\2\0\0"s)) == "cat: a damaged image: " + colour);
  CHECK(error_of(small_bmp(2, 1, 4, palette, "\x12\0\0\0"s)) == "cat: a damaged image: " + colour);
  CHECK(error_of(small_bmp(2, 1, 8, "", "\1\0\0\0"s)) ==
        "cat: a damaged image: a BMP whose palette is not before its pixels");
  for (const int rle : {1, 2})
    CHECK(error_of(small_bmp(100, 100, rle == 1 ? 8 : 4, palette, "\1\0\0\0"s, rle)) ==
          "cat: a BMP that is compressed (RLE), which cannot be read; save it as PNG");
  CHECK(error_of(small_bmp(100, 100, 24, "", "x", 5)) ==
        "cat: a BMP that holds a JPEG or PNG, which cannot be read; save it as PNG");
  CHECK(error_of(small_bmp(1, 1, 16, "", "\0\xf8\0\0"s, 3)) ==
        "cat: a damaged image: a BMP whose pixels begin within its header");
  const std::string os2 =
      "BM\0\0\0\0\0\0\0\0\x20\0\0\0\x0c\0\0\0\1\0\1\0\1\0\1\0\0\0\0\xff\xff\xff\x80\0\0\0"s;
  CHECK(error_of(os2).starts_with("cat: a BMP of OS/2 with a palette"));

  std::string png = test_images::png(test_images::waves(16, 16, 1));
  png.replace(16, 4, "\0\0\0\0"s);
  const auto sum = static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(png.data()) + 12, 17));
  for (int i = 0; i < 4; ++i) png[static_cast<std::size_t>(29 + i)] = static_cast<char>(sum >> (24 - 8 * i));
  CHECK(error_of(png).starts_with("cat: a damaged image: "));
  std::string jpeg = encode_jpeg(test_images::waves(16, 16, 1));
  for (const std::size_t side : {std::size_t{5}, std::size_t{7}}) {
    std::string flat = jpeg;
    flat.replace(flat.find("\xff\xc0") + side, 2, "\0\0"s);
    CHECK(error_of(flat).starts_with("cat: a damaged JPEG: "));
  }
}

TEST_CASE("the longer side of a scaled image never passes what an int can be", "[decode]") {
  const ImageSize size = scaled_to_shorter_side({1, 100'000'000}, 256);
  CHECK(size.height == 256);
  CHECK(size.width == std::numeric_limits<int>::max());
}

TEST_CASE("absurdly large images are refused before they are decoded", "[decode]") {
  std::string bmp = test_images::bmp(test_images::waves(16, 16, 1));
  bmp.replace(18, 8, "\x20\x4e\0\0\x20\x4e\0\0"s);
  CHECK(error_of(bmp) == "cat: 20000 x 20000 pixels; 100000000 are allowed");
  std::string jpeg = encode_jpeg(test_images::waves(16, 16, 1));
  const std::size_t frame = jpeg.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  jpeg.replace(frame + 5, 4, "\x60\0\x60\0"s);
  CHECK(error_of(jpeg) == "cat: 24576 x 24576 pixels; 100000000 are allowed");
}

TEST_CASE("scaling keeps a plain area, averages windows and leaves equal sizes alone", "[decode]") {
  const DecodedImage plain{37, 53, std::vector<std::uint8_t>(37 * 53 * 3, 201)};
  for (const ImageSize size : {ImageSize{11, 80}, ImageSize{37, 53}, ImageSize{1, 1}, ImageSize{100, 7}}) {
    const DecodedImage scaled = resize_image(plain, size);
    CHECK(scaled.height == size.height);
    CHECK(scaled.width == size.width);
    CHECK(scaled.pixels ==
          std::vector<std::uint8_t>(
              static_cast<std::size_t>(size.height) * static_cast<std::size_t>(size.width) * 3, 201));
  }
  const DecodedImage image = test_images::waves(40, 60, 4);
  CHECK(resize_image(image, {40, 60}).pixels == image.pixels);
  CHECK(largest_difference(resize_image(image, {20, 30}), means(image, 2)) < 20);
  // Twice as large, a pixel is three quarters the nearer one.
  const DecodedImage two{1, 2, {0, 0, 0, 100, 100, 100}};
  const DecodedImage four = resize_image(two, {1, 4});
  CHECK(four.pixels == std::vector<std::uint8_t>{0, 0, 0, 25, 25, 25, 75, 75, 75, 100, 100, 100});
}

TEST_CASE("scaled pixels are weighted means of the pixels that they cover", "[decode]") {
  DecodedImage image{29, 43, {}};
  Lots lots;
  for (int i = 0; i < 29 * 43 * 3; ++i) image.pixels.push_back(static_cast<std::uint8_t>(lots.below(256)));
  /// The triangle filter for pixel `i` of `to`, which is made of `from`.
  const auto weights = [](int from, int to, int i) {
    const double scale = static_cast<double>(from) / to, radius = std::max(1.0, scale);
    std::vector<double> all;
    double sum = 0;
    for (int x = 0; x < from; ++x) {
      all.push_back(std::max(0.0, 1 - std::abs(x + 0.5 - (i + 0.5) * scale) / radius));
      sum += all.back();
    }
    for (double& weight : all) weight /= sum;
    return all;
  };
  for (const ImageSize size : {ImageSize{7, 11}, ImageSize{20, 25}, ImageSize{28, 42}, ImageSize{29, 10},
                               ImageSize{10, 43}, ImageSize{70, 90}, ImageSize{1, 1}}) {
    const DecodedImage scaled = resize_image(image, size);
    double worst = 0;
    for (int y = 0; y < size.height; ++y)
      for (int x = 0; x < size.width; ++x)
        for (int c = 0; c < 3; ++c) {
          const std::vector<double> down = weights(29, size.height, y), right = weights(43, size.width, x);
          double exact = 0;
          for (int v = 0; v < 29; ++v)
            for (int u = 0; u < 43; ++u)
              exact += down[static_cast<std::size_t>(v)] * right[static_cast<std::size_t>(u)] *
                       image.pixels[static_cast<std::size_t>((v * 43 + u) * 3 + c)];
          const auto at = static_cast<std::size_t>((y * size.width + x) * 3 + c);
          worst = std::max(worst, std::abs(scaled.pixels[at] - exact));
        }
    CAPTURE(size.height, size.width);
    CHECK(worst < 1.1);  // rows are rounded, then their sums
  }
}

TEST_CASE("a window of a scaled image is that of the whole", "[decode]") {
  const DecodedImage image = test_images::waves(61, 90, 5);
  const ImageSize size = scaled_to_shorter_side({61, 90}, 32);
  CHECK(size.height == 32);
  CHECK(size.width == 47);
  CHECK(scaled_to_shorter_side({90, 61}, 32).height == 47);
  CHECK(scaled_to_shorter_side({64, 64}, 32).width == 32);
  const DecodedImage whole = resize_image(image, size);
  const ImageWindow window{3, 7, 20, 31};
  const DecodedImage part = resize_image(image, size, window);
  REQUIRE(part.pixels.size() == 20 * 31 * 3);
  bool same = true;
  for (int y = 0; y < 20; ++y)
    for (int i = 0; i < 31 * 3; ++i)
      same = same && part.pixels[static_cast<std::size_t>(y * 31 * 3 + i)] ==
                         whole.pixels[static_cast<std::size_t>(((y + 3) * 47 + 7) * 3 + i)];
  CHECK(same);
  const DecodedImage centre = centre_square(whole, 32);
  CHECK(centre.pixels == resize_image(image, size, {0, 7, 32, 32}).pixels);
}
