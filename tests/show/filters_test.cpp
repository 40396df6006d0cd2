#include "convnet/show/filters.h"

#include <cmath>
#include <limits>

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/show/decode.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

constexpr Color kBlack = {0, 0, 0};

NamedTensor counted(Dims dims) {
  NamedTensor t{std::move(dims), {}};
  for (std::int64_t i = 0; i < element_count(t.dims); ++i) t.values.push_back(static_cast<float>(i));
  return t;
}

/// The pixel in the middle of weight (x, y) of the grid, gaps counted too.
Color weight(const Picture& p, int weights_across, int x, int y) {
  const int factor = p.width() / weights_across;
  REQUIRE(factor * weights_across == p.width());
  return p.at(x * factor + factor / 2, y * factor + factor / 2);
}

}  // namespace

TEST_CASE("one channel is grey: the smallest weight black, the largest white") {
  const FilterPicture f = draw_filters({{1, 1, 2, 2}, {-1, 0, 1, 3}});
  const Picture p = decode_png(f.picture.png());
  CHECK(p.width() == 4 * 16);
  CHECK(p.height() == 4 * 16);
  CHECK(weight(p, 4, 1, 1) == kBlack);
  CHECK(weight(p, 4, 2, 1) == Color{64, 64, 64});
  CHECK(weight(p, 4, 1, 2) == Color{128, 128, 128});
  CHECK(weight(p, 4, 2, 2) == kWhite);
  CHECK(weight(p, 4, 0, 0) == kWhite);  // the border
  CHECK(f.caption == "1 filter of 1x2x2");
}

TEST_CASE("gaps between filters may have a colour of their own, which no filter has") {
  constexpr Color kGaps = {255, 0, 254};
  const FilterStyle style{.gaps = kGaps};
  const Picture grey = decode_png(draw_filters({{1, 1, 2, 2}, {-1, 0, 1, 3}}, style).picture.png());
  CHECK(weight(grey, 4, 0, 0) == kGaps);
  CHECK(weight(grey, 4, 2, 2) == kWhite);
  const Picture color = decode_png(draw_filters({{1, 3, 1, 1}, {255, 0, 254}}, style).picture.png());
  CHECK(weight(color, 3, 0, 0) == kGaps);
  CHECK(weight(color, 3, 1, 1) == Color{255, 1, 254});
}

TEST_CASE("three channels make a colour, or three tiles") {
  const NamedTensor w{{1, 3, 1, 1}, {0, 255, 51}};
  const Picture color = decode_png(draw_filters(w).picture.png());
  CHECK(weight(color, 3, 1, 1) == Color{0, 255, 51});
  const FilterPicture grey = draw_filters(w, {.rgb = false});
  CHECK(weight(grey.picture, 7, 1, 1) == kBlack);
  CHECK(weight(grey.picture, 7, 3, 1) == kWhite);
  CHECK(weight(grey.picture, 7, 5, 1) == Color{51, 51, 51});
  CHECK(weight(grey.picture, 7, 2, 1) == kWhite);  // between channels
}

TEST_CASE("filters stand in a near-square grid, row by row") {
  const FilterPicture f = draw_filters(counted({9, 1, 1, 1}));
  CHECK(f.picture.width() == f.picture.height());
  CHECK(weight(f.picture, 7, 1, 1) == kBlack);
  CHECK(weight(f.picture, 7, 5, 5) == kWhite);
  CHECK(weight(f.picture, 7, 3, 1) == Color{32, 32, 32});  // filter 1 of 0 to 8
  CHECK(weight(f.picture, 7, 1, 3) == Color{96, 96, 96});  // filter 3
}

TEST_CASE("norm-filters brings each filter to the same mean and variance") {
  const NamedTensor w{{2, 1, 1, 2}, {1, 2, 100, 300}};
  const Picture p = draw_filters(w, {.normalize = true}).picture;
  const int across = 4;  // two filters one above the other
  CHECK(weight(p, across, 1, 1) == kBlack);
  CHECK(weight(p, across, 2, 1) == kWhite);
  CHECK(weight(p, across, 1, 3) == kBlack);
  CHECK(weight(p, across, 2, 3) == kWhite);
}

TEST_CASE("yuv-to-rgb shows YUV filters in the colours they mean") {
  // Y=1 alone is white, Y=0 black; V raises red and lowers green.
  const NamedTensor w{{3, 3, 1, 1}, {0, 0, 0, 1, 0, 0, 0.5F, 0, 0.3F}};
  const FilterPicture f = draw_filters(w, {.from_yuv = true});
  const double low = 0;
  const double high = 1;
  const auto level = [&](double v) {
    return static_cast<std::uint8_t>(std::lround(255 * (v - low) / (high - low)));
  };
  const int across = f.picture.width() > f.picture.height() ? 7 : 5;
  CHECK(weight(f.picture, across, 1, 1) == kBlack);
  CHECK(weight(f.picture, across, 3, 1) == kWhite);
  const Color third = across == 7 ? weight(f.picture, across, 5, 1) : weight(f.picture, across, 1, 3);
  CHECK(third == Color{level(0.5 + 1.28033 * 0.3), level(0.5 - 0.38059 * 0.3), level(0.5)});
  CHECK_THROWS_AS(draw_filters(counted({1, 2, 1, 1}), {.from_yuv = true}), InputError);
}

TEST_CASE("fully-connected filters are read as maps, local ones as a plane") {
  CHECK(draw_filters(counted({4, 12})).caption == "4 filters of 3x2x2, channels as RGB");
  CHECK(draw_filters(counted({4, 16})).caption == "4 filters of 1x4x4");
  CHECK(draw_filters(counted({4, 16}), {.channels = 4}).caption ==
        "4 filters of 4x2x2, a channel beside the other");
  CHECK(draw_filters(counted({2, 2, 16})).caption == "4 filters of 1x4x4");
  CHECK(message_of<InputError>([] {
          draw_filters(counted({4, 8}));
        }) == "has filters of 8 weights, which are no square maps of 3 or 1 channels; --channels may be 2");

  // (Y,X,O,I,H,W): two positions of two output maps.
  const NamedTensor local{{1, 2, 2, 1, 1, 1}, {0, 10, 20, 30}};
  const Picture first = draw_filters(local, {.local_plane = 0}).picture;
  CHECK(weight(first, 3, 1, 1) == kBlack);
  CHECK(weight(first, 3, 1, 3) == kWhite);
  CHECK(draw_filters(local).caption == "2 filters of 1x1x1");
  CHECK(message_of<InputError>([&] { draw_filters(local, {.local_plane = 2}); }) ==
        "has 2 output maps; --local-plane 2 is not among 0 to 1");
}

TEST_CASE("what is no filter, or no number, is an error") {
  CHECK(message_of<InputError>([] { draw_filters(counted({7})); }) == "is 7, which are no filters");
  CHECK(message_of<InputError>([] {
          draw_filters(counted({4, 0, 3, 3}));
        }) == "is 4x0x3x3: there is nothing to draw");
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    CHECK(message_of<InputError>([&] {
            draw_filters({{1, 1, 1, 2}, {0, bad}});
          }).starts_with("holds numbers that are not finite"));
  for (const Dims& dims : {Dims{1, 1, 2047, 1}, Dims{1, 2, 1, 2047}}) {
    INFO(to_string(dims));
    CHECK_THROWS_AS(draw_filters(counted(dims)), InputError);
  }
  CHECK(draw_filters(counted({1, 1, 2046, 1})).picture.height() == 2048);
  CHECK(draw_filters(counted({1, 2, 1, 2046})).picture.width() == 2048);
}

TEST_CASE("filters that are all alike are grey, and too many are cut off with a word") {
  CHECK(weight(draw_filters({{1, 1, 1, 1}, {5}}).picture, 3, 1, 1) == Color{128, 128, 128});
  const FilterPicture many = draw_filters(counted({600, 1, 99, 99}));
  CHECK(many.caption == "600 filters of 1x99x99; the first 400 filters");
  CHECK(many.picture.width() <= 2048);
  CHECK(many.picture.height() <= 2048);
}

TEST_CASE("of deep layers some channels of some filters are drawn, each filter from black to white") {
  NamedTensor w = counted({4, 9, 2, 2});
  for (std::size_t i = 0; i < 36; ++i) w.values[i] /= 1000;  // a filter of small weights
  FilterStyle style;
  style.most_channels = 2;
  style.most_filters = 3;
  style.own_range = true;
  const FilterPicture f = draw_filters(w, style);
  CHECK(
      f.caption ==
      "4 filters of 9x2x2, a channel beside the other; the first 2 channels; each from its smallest weight, "
      "black, to its largest; the first 3 filters");
  const Picture p = decode_png(f.picture.png());
  // The first weight of each filter is its smallest one; filters stand below each other or side by side.
  int black = 0;
  for (int y = 0; y < p.height(); y += std::max(1, p.height() / 40))
    for (int x = 0; x < p.width(); x += std::max(1, p.width() / 40)) black += p.at(x, y) == kBlack ? 1 : 0;
  CHECK(black > 0);
  style.own_range = false;
  CHECK(draw_filters(w, style).picture.png() != f.picture.png());
}
