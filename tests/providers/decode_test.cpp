// JPEGs made here and PNGs of stb_image_write; damaged ones; scaling.
#include "providers/decode.h"

#include <zlib.h>

#include <cmath>

#include "kernels/error.h"
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

std::string error_of(const std::string& bytes) {
  return message_of<InputError>([&] { decode_image(bytes, "cat"); });
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

}  // namespace

TEST_CASE("images of every form decode to their pixels", "[decode]") {
  const DecodedImage image = test_images::waves(48, 65, 3);
  CHECK(largest_difference(decode_image(test_images::png(image), "png"), image) == 0);
  CHECK(largest_difference(decode_image(test_images::bmp(image), "bmp"), image) == 0);
  const std::string jpeg = encode_jpeg(image);
  CHECK(jpeg.starts_with("\xff\xd8"));
  CHECK(largest_difference(decode_image(jpeg, "jpeg"), image) < 20);
  CHECK(encode_jpeg(image) == jpeg);
  CHECK(encode_jpeg(image, 30).size() < jpeg.size());
}

TEST_CASE("grey, transparent and CMYK images become RGB", "[decode]") {
  const DecodedImage image = test_images::waves(32, 40, 1);
  DecodedImage grey = image;
  std::vector<std::uint8_t> values, with_alpha, inks;
  for (std::size_t i = 0; i < grey.pixels.size(); i += 3) {
    values.push_back(grey.pixels[i]);
    grey.pixels[i + 1] = grey.pixels[i + 2] = grey.pixels[i];
    with_alpha.insert(with_alpha.end(), {image.pixels[i], image.pixels[i + 1], image.pixels[i + 2],
                                         static_cast<std::uint8_t>(i % 251)});
    // No black: cyan, magenta and yellow are what is missing of white. Adobe's files invert all four.
    inks.insert(inks.end(), {image.pixels[i], image.pixels[i + 1], image.pixels[i + 2], 255});
  }
  CHECK(largest_difference(decode_image(test_images::png(32, 40, 1, values), "grey"), grey) == 0);
  CHECK(largest_difference(decode_image(test_images::png(32, 40, 4, with_alpha), "alpha"), image) == 0);
  CHECK(largest_difference(decode_image(test_images::jpeg(32, 40, 1, values), "grey jpeg"), grey) < 8);
  CHECK(largest_difference(decode_image(test_images::jpeg(32, 40, 4, inks), "cmyk"), image) < 20);
}

TEST_CASE("a JPEG is decoded no larger than needed", "[decode]") {
  const DecodedImage image = test_images::waves(160, 240, 2);
  const std::string jpeg = encode_jpeg(image);
  const auto side = [&](int wanted) { return decode_image(jpeg, "jpeg", wanted).shorter_side(); };
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

TEST_CASE("damaged images are errors with their name", "[decode]") {
  const DecodedImage image = test_images::waves(48, 48, 3);
  CHECK(error_of("") == "cat: is not a JPEG, PNG or BMP image");
  CHECK(error_of("GIF89a") == "cat: is not a JPEG, PNG or BMP image");
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
