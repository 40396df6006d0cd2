#include "convnet/show/svg.h"

#include <fmt/format.h>

#include <cstdint>

#include "convnet/show/text.h"

namespace convnet {
namespace {

std::string base64(const std::string& bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<std::uint8_t>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

/// Hundredths of a pixel are enough.
std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string place(const Box& b) {
  return fmt::format("x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", number(b.x), number(b.y),
                     number(b.width), number(b.height));
}

}  // namespace

std::string data_uri(const Picture& picture, const std::optional<Color>& transparent) {
  return "data:image/png;base64," + base64(picture.png(transparent));
}

std::string css_color(Color c) { return fmt::format("#{:02x}{:02x}{:02x}", c.r, c.g, c.b); }

SvgCanvas::SvgCanvas(double width, double height, const std::string& label, const std::string& attributes)
    : text_(fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
                        "height=\"{1}\" role=\"img\" aria-label=\"{2}\"{3}{4}>\n",
                        number(width), number(height), html_escape(label), attributes.empty() ? "" : " ",
                        attributes)) {}

void SvgCanvas::box(const Box& box, Color fill) {
  text_ += fmt::format("<rect {} fill=\"{}\"/>\n", place(box), css_color(fill));
}

void SvgCanvas::line(const std::vector<Point>& points, Color color, double width) {
  text_ += fmt::format(
      "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\" points=\"",
      css_color(color), number(width));
  for (const Point& p : points) text_ += (&p == points.data() ? "" : " ") + number(p.x) + "," + number(p.y);
  text_ += "\"/>\n";
}

void SvgCanvas::dot(Point center, double radius, Color color) {
  text_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>\n", number(center.x),
                       number(center.y), number(radius), css_color(color));
}

void SvgCanvas::text(Point at, const std::string& text, Color color, double size, Anchor anchor) {
  const char* name = anchor == Anchor::start ? "start" : anchor == Anchor::middle ? "middle" : "end";
  text_ += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"{}\" font-size=\"{}\" text-anchor=\"{}\">{}</text>\n",
                       number(at.x), number(at.y), css_color(color), number(size), name, html_escape(text));
}

void SvgCanvas::image(const Box& box, const Picture& picture) {
  text_ +=
      fmt::format("<image {} preserveAspectRatio=\"none\" href=\"{}\"/>\n", place(box), data_uri(picture));
}

}  // namespace convnet
