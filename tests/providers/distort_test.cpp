#include "providers/distort.h"

#include <array>
#include <map>
#include <set>

#include "tests/catch.h"
#include "tests/providers/transposed.h"

using namespace convnet;

namespace {

/// An image whose red is 10*y + x, green 100 + red, and blue 200.
DecodedImage numbered(int height, int width) {
  DecodedImage image{height, width, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (const int v : {10 * y + x, 100 + 10 * y + x, 200})
        image.pixels.push_back(static_cast<std::uint8_t>(v));
  return image;
}

/// A row of grey pixels.
DecodedImage greys(const std::vector<int>& values) {
  DecodedImage image{1, static_cast<int>(values.size()), {}};
  for (const int v : values) image.pixels.insert(image.pixels.end(), 3, static_cast<std::uint8_t>(v));
  return image;
}

DecodedImage after(DecodedImage image, Distortion kind, double magnitude = 0) {
  distort(image, kind, magnitude);
  CHECK(image.pixels.size() == 3 * static_cast<std::size_t>(image.height * image.width));
  return image;
}

/// The first channel.
std::vector<int> reds(const DecodedImage& image) {
  std::vector<int> values;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) values.push_back(image.pixels[i]);
  return values;
}
using Ints = std::vector<int>;

}  // namespace

TEST_CASE("distortions of shape take the nearest pixel, and black from outside", "[distort]") {
  const DecodedImage image = numbered(3, 4);
  CHECK(reds(after(image, Distortion::translate_x, 1)) == Ints{1, 2, 3, 0, 11, 12, 13, 0, 21, 22, 23, 0});
  CHECK(reds(after(image, Distortion::translate_x, -2)) == Ints{0, 0, 0, 1, 0, 0, 10, 11, 0, 0, 20, 21});
  CHECK(reds(after(image, Distortion::translate_y, 1)) == Ints{10, 11, 12, 13, 20, 21, 22, 23, 0, 0, 0, 0});
  CHECK(reds(after(image, Distortion::translate_y, -40)) == Ints(12, 0));
  CHECK(reds(after(image, Distortion::shear_x, 1)) == Ints{1, 2, 3, 0, 12, 13, 0, 0, 23, 0, 0, 0});
  CHECK(reds(after(image, Distortion::shear_y, 0.5)) == Ints{0, 11, 12, 23, 10, 21, 22, 0, 20, 0, 0, 0});
  // Counter-clockwise: the right column becomes the upper row.
  CHECK(reds(after(numbered(3, 3), Distortion::rotate, 90)) == Ints{2, 12, 22, 1, 11, 21, 0, 10, 20});
  CHECK(reds(after(numbered(3, 3), Distortion::rotate, -180)) == Ints{22, 21, 20, 12, 11, 10, 2, 1, 0});
  CHECK(after(image, Distortion::rotate, 0).pixels == image.pixels);
  // All channels move together.
  const DecodedImage moved = after(image, Distortion::translate_x, 1);
  for (std::size_t i = 0; i < 9; i += 3) CHECK(moved.pixels[i + 1] == moved.pixels[i] + 100);
}

TEST_CASE("distortions of colours", "[distort]") {
  const DecodedImage line = greys({0, 10, 100, 200, 255});
  CHECK(reds(after(line, Distortion::brightness, 0.5)) == Ints{0, 15, 150, 255, 255});
  CHECK(reds(after(line, Distortion::brightness, -0.99)) == Ints{0, 0, 1, 2, 3});
  CHECK(reds(after(line, Distortion::contrast, -1)) == Ints(5, 113));
  CHECK(reds(after(greys({50, 150}), Distortion::contrast, 1)) == Ints{0, 200});
  CHECK(after(line, Distortion::saturation, 0.9).pixels == line.pixels);
  CHECK(reds(after(line, Distortion::posterize, 2)) == Ints{0, 0, 64, 192, 192});
  CHECK(after(line, Distortion::posterize, 8).pixels == line.pixels);
  CHECK(reds(after(line, Distortion::solarize, 100)) == Ints{0, 10, 155, 55, 0});
  CHECK(reds(after(line, Distortion::solarize, 0)) == Ints{255, 245, 155, 55, 0});
  CHECK(reds(after(greys({50, 100, 150}), Distortion::autocontrast)) == Ints{0, 128, 255});
  CHECK(reds(after(greys({7, 7}), Distortion::autocontrast)) == Ints{7, 7});
  CHECK(after(line, Distortion::none).pixels == line.pixels);
  // Without saturation each pixel has its luma.
  const DecodedImage colours{1, 2, {200, 100, 50, 0, 0, 255}};
  const std::uint8_t first = luma(200, 100, 50), second = luma(0, 0, 255);
  CHECK(after(colours, Distortion::saturation, -1).pixels ==
        std::vector<std::uint8_t>{first, first, first, second, second, second});
  CHECK(after(colours, Distortion::saturation, 1).pixels[2] == 0);
}

TEST_CASE("sharpening leaves the border", "[distort]") {
  DecodedImage image = greys(Ints(9, 40));
  image.height = image.width = 3;
  for (std::size_t c = 0; c < 3; ++c) image.pixels[12 + c] = 170;
  // The smooth value of the middle is (8 * 40 + 5 * 170) / 13 = 90.
  for (const auto& [magnitude, middle] : std::map<double, int>{{-1, 90}, {0, 170}, {-0.5, 130}, {0.5, 210}}) {
    Ints expected(9, 40);
    expected[4] = middle;
    CHECK(reds(after(image, Distortion::sharpness, magnitude)) == expected);
  }
  CHECK(reds(after(greys({1, 2}), Distortion::sharpness, 1)) == Ints{1, 2});
}

TEST_CASE("equalizing makes values uniform", "[distort]") {
  // 64 values of 16 pixels each make steps of (1024 - 16) / 255 = 3 pixels.
  Ints values, expected;
  for (int i = 0; i < 64; ++i) {
    values.insert(values.end(), 16, i);
    expected.insert(expected.end(), 16, std::min(255, (1 + 16 * i) / 3));
  }
  CHECK(reds(after(greys(values), Distortion::equalize)) == expected);
  CHECK(reds(after(greys({3, 9, 20}), Distortion::equalize)) == Ints{3, 9, 20});  // too few pixels
  CHECK(reds(after(greys(Ints(1000, 5)), Distortion::equalize)) == Ints(1000, 5));
}

TEST_CASE("images of a single pixel, row or column are distorted as well", "[distort]") {
  const std::map<Distortion, Distortion> other_axis = {{Distortion::shear_x, Distortion::shear_y},
                                                       {Distortion::shear_y, Distortion::shear_x},
                                                       {Distortion::translate_x, Distortion::translate_y},
                                                       {Distortion::translate_y, Distortion::translate_x}};
  for (const int length : {1, 7}) {
    const DecodedImage row = numbered(1, length);
    for (int k = 0; k < kDistortions; ++k) {
      const auto kind = static_cast<Distortion>(k);
      const auto found = other_axis.find(kind);
      for (const double m : {-0.99, 0.0, 4.0}) {
        CAPTURE(length, k, m);
        const double turned = kind == Distortion::rotate ? -m : m;  // transposition reverses the direction
        const Distortion across = found == other_axis.end() ? kind : found->second;
        CHECK(after(test::transposed(row), across, turned).pixels ==
              test::transposed(after(row, kind, m)).pixels);
      }
    }
  }
  // Without a neighbour or a second value there is nothing to shift in, to sharpen or to stretch.
  const DecodedImage pixel = numbered(1, 1);
  CHECK(reds(after(pixel, Distortion::translate_x, 1)) == Ints{0});
  CHECK(after(pixel, Distortion::translate_y, 1).pixels == std::vector<std::uint8_t>(3));
  for (const Distortion kind : {Distortion::sharpness, Distortion::autocontrast, Distortion::equalize})
    CHECK(after(pixel, kind, 1).pixels == pixel.pixels);
  CHECK(after(pixel, Distortion::rotate, 45).pixels == pixel.pixels);
}

TEST_CASE("TrivialAugment draws every distortion and magnitude", "[distort]") {
  std::map<Distortion, std::set<double>> magnitudes;
  std::map<Distortion, int> counts;
  constexpr int kDraws = 20000;
  for (std::uint32_t i = 0; i < kDraws; ++i) {
    const DrawnDistortion drawn = draw_distortion(philox(7, i, 0, 0, 0));
    magnitudes[drawn.kind].insert(drawn.magnitude);
    ++counts[drawn.kind];
  }
  REQUIRE(counts.size() == kDistortions);
  for (const auto& [kind, count] : counts) CHECK(std::abs(count - kDraws / kDistortions) < 180);
  const auto range = [&](Distortion kind) {
    return std::tuple(magnitudes[kind].size(), *magnitudes[kind].begin(), *magnitudes[kind].rbegin());
  };
  // Both signs share the zero.
  CHECK(range(Distortion::shear_x) == std::tuple(61, -0.99, 0.99));
  CHECK(range(Distortion::brightness) == std::tuple(61, -0.99, 0.99));
  CHECK(range(Distortion::translate_y) == std::tuple(61, -32, 32));
  CHECK(range(Distortion::rotate) == std::tuple(61, -135, 135));
  CHECK(range(Distortion::solarize) == std::tuple(31, 0, 255));
  CHECK(range(Distortion::posterize) == std::tuple(7, 2, 8));
  CHECK(range(Distortion::equalize) == std::tuple(1, 0, 0));
}

TEST_CASE("colour jitter changes brightness, contrast and saturation in any order", "[distort]") {
  const DecodedImage image{1, 2, {200, 100, 50, 20, 30, 255}};
  std::set<std::vector<std::uint8_t>> seen;
  for (std::uint32_t i = 0; i < 50; ++i) {
    DecodedImage changed = image, again = image;
    jitter_colors(changed, 0.4, philox(7, i, 0, 0, 0));
    jitter_colors(again, 0.4, philox(7, i, 0, 0, 0));
    CHECK(changed.pixels == again.pixels);
    seen.insert(changed.pixels);
  }
  CHECK(seen.size() > 45);
  using enum Distortion;
  const std::array<std::array<Distortion, 3>, 6> orders = {{{brightness, contrast, saturation},
                                                            {contrast, brightness, saturation},
                                                            {saturation, contrast, brightness},
                                                            {brightness, saturation, contrast},
                                                            {contrast, saturation, brightness},
                                                            {saturation, brightness, contrast}}};
  const std::array<std::uint32_t, 3> words = {0xf0000000, 0x10000000, 0xe0000000};
  for (std::uint32_t lot = 0; lot < 6; ++lot) {
    DecodedImage changed = image, expected = image;
    jitter_colors(changed, 0.4, {{words[0], words[1], words[2], lot * 0x2aaaaaabU + 1}});
    for (std::size_t i = 0; i < 3; ++i)
      distort(expected, orders[lot][i], -0.4 + 0.8 * double{uniform01(words[i])});
    CHECK(changed.pixels == expected.pixels);
  }
  // No factor is negative: a darker pixel stays the darker one.
  for (std::uint32_t i = 0; i < 50; ++i) {
    DecodedImage grey = greys({50, 150});
    jitter_colors(grey, 5, philox(9, i, 0, 0, 0));
    CHECK(reds(grey)[0] <= reds(grey)[1]);
  }
  DecodedImage same = image;
  jitter_colors(same, 0, philox(1, 2, 3, 4, 5));
  CHECK(same.pixels == image.pixels);
}
