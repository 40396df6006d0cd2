#include "convnet/show/font.h"
#include "convnet/show/picture_canvas.h"
#include "convnet/show/svg.h"
#include "tests/catch.h"
#include "tests/show/decode.h"

using namespace convnet;

namespace {

constexpr Color kRed = {255, 0, 0};
constexpr Color kBlackInk = {0, 0, 0};

/// The smallest box around all pixels that are not white.
Box inked(const Picture& p) {
  int left = p.width();
  int top = p.height();
  int right = -1;
  int bottom = -1;
  for (int y = 0; y < p.height(); ++y) {
    for (int x = 0; x < p.width(); ++x) {
      if (p.at(x, y) == kWhite) continue;
      left = std::min(left, x);
      right = std::max(right, x);
      top = std::min(top, y);
      bottom = std::max(bottom, y);
    }
  }
  return {static_cast<double>(left), static_cast<double>(top), right - left + 1.0, bottom - top + 1.0};
}

}  // namespace

TEST_CASE("a PNG has the picture's size and pixels") {
  Picture p(3, 2, {10, 20, 30});
  p.set(2, 1, kRed);
  const Picture back = decode_png(p.png());
  CHECK(back.width() == 3);
  CHECK(back.height() == 2);
  CHECK(back.rgb() == p.rgb());
  CHECK_THROWS_AS(Picture(0, 1), std::invalid_argument);
  CHECK_THROWS_AS(Picture(1 << 15, 1 << 15), std::invalid_argument);
}

TEST_CASE("boxes cover parts of pixels, and nothing outside") {
  PictureCanvas canvas(6, 6);
  canvas.box({1, 1, 2.5, 2}, kBlackInk);
  canvas.box({-5, 5, 6, 40}, kRed);
  const Picture& p = canvas.picture();
  CHECK(p.at(1, 1) == kBlackInk);
  CHECK(p.at(2, 2) == kBlackInk);
  CHECK(p.at(3, 1) == Color{128, 128, 128});
  CHECK(p.at(4, 1) == kWhite);
  CHECK(p.at(1, 3) == kWhite);
  CHECK(p.at(0, 5) == kRed);
  CHECK(p.at(1, 5) == kWhite);
}

TEST_CASE("lines and dots lie where they should") {
  PictureCanvas line(20, 20);
  line.line({{2, 10}, {18, 10}}, kBlackInk, 2);
  CHECK(line.picture().at(10, 9) == kBlackInk);
  CHECK(line.picture().at(10, 10) == kBlackInk);
  CHECK(line.picture().at(10, 7) == kWhite);
  CHECK(line.picture().at(10, 12) == kWhite);
  PictureCanvas dot(20, 20);
  dot.dot({10, 10}, 3, kRed);
  CHECK(dot.picture().at(10, 10) == kRed);
  const Box around = inked(dot.picture());
  CHECK(around.x >= 6);
  CHECK(around.right() <= 14);
  CHECK(around.width >= 6);
  PictureCanvas outside(4, 4);
  outside.line({{-100, -100}, {-50, 300}}, kBlackInk, 2);
  CHECK(outside.picture().rgb() == Picture(4, 4).rgb());
}

TEST_CASE("text has the width it is said to have, and ends where it is anchored") {
  const std::string text = "convnet 0.125";
  const double width = text_width(text, 16);
  CHECK(width > 60);
  CHECK(text_width(text, 32) == Approx(2 * width));
  for (const Anchor anchor : {Anchor::start, Anchor::middle, Anchor::end}) {
    PictureCanvas canvas(400, 40);
    canvas.text({200, 25}, text, kBlackInk, 16, anchor);
    const Box box = inked(canvas.picture());
    const double left = anchor == Anchor::start    ? 200
                        : anchor == Anchor::middle ? 200 - width / 2
                                                   : 200 - width;
    CHECK(box.x == Approx(left).margin(3));
    CHECK(box.width == Approx(width).margin(4));
    CHECK(box.bottom() == Approx(25).margin(2));  // nothing hangs below the baseline
  }
  CHECK(fitted(text, 16, 1000) == text);
  const std::string cut = fitted(text, 16, 60);
  CHECK(cut.ends_with("\xE2\x80\xA6"));
  CHECK(text_width(cut, 16) <= 60);
  CHECK(fitted("\xC3\xA4\xC3\xA4\xC3\xA4", 16, 28) == "\xC3\xA4\xE2\x80\xA6");
  CHECK(text_width("\xFF\x01", 16) > 0);
}

TEST_CASE("a colour of a picture may be transparent in its file") {
  Picture picture(2, 1, kRed);
  picture.set(1, 0, kBlackInk);
  const auto type_of_color = [](const std::string& png) { return static_cast<int>(png.at(25)); };
  CHECK(type_of_color(picture.png()) == 2);      // RGB
  CHECK(type_of_color(picture.png(kRed)) == 6);  // RGB with alpha
  CHECK(decode_png(picture.png(kRed)).at(1, 0) == kBlackInk);
  CHECK(data_uri(picture, kRed) != data_uri(picture));
}

TEST_CASE("SVG says the same as pixels") {
  SvgCanvas svg(100, 50, "a \"label\"", "data-x=\"1\"");
  svg.line({{1, 2}, {3.456, 4.5}}, kRed, 2);
  svg.text({5, 6}, "<b>&", kBlackInk, 12, Anchor::middle);
  svg.dot({7, 8}, 3, kRed);
  svg.box({1, 2, 3, 4}, {1, 2, 3});
  Picture p(1, 1, kRed);
  svg.image({0, 0, 9, 9}, p);
  const std::string text = svg.str();
  CHECK(
      text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 100 50\" width=\"100\" "
                       "height=\"50\" role=\"img\" aria-label=\"a &quot;label&quot;\" data-x=\"1\">\n"));
  CHECK(text.find("points=\"1,2 3.46,4.5\"") != std::string::npos);
  CHECK(text.find("text-anchor=\"middle\">&lt;b&gt;&amp;</text>") != std::string::npos);
  CHECK(text.find("<circle cx=\"7\" cy=\"8\" r=\"3\" fill=\"#ff0000\"/>") != std::string::npos);
  CHECK(text.find("<rect x=\"1\" y=\"2\" width=\"3\" height=\"4\" fill=\"#010203\"/>") != std::string::npos);
  CHECK(text.find("href=\"data:image/png;base64,iVBORw0KGgo") != std::string::npos);
  CHECK(text.ends_with("</svg>\n"));
}
