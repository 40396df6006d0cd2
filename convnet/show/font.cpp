#include "convnet/show/font.h"

#include <cmath>
#include <stdexcept>
#include <vector>

#define STBTT_STATIC
#define STB_TRUETYPE_IMPLEMENTATION
#include <stb/stb_truetype.h>

#include "convnet/show/text.h"

// The font's file, as the build found it, becomes part of the program.
asm(".section .rodata\n"
    ".balign 16\n"
    "convnet_font_bytes:\n"
    ".incbin \"" CONVNET_FONT
    "\"\n"
    ".byte 0\n"
    ".previous\n");
extern "C" const unsigned char convnet_font_bytes[];

namespace convnet {
namespace {

const stbtt_fontinfo& font() {
  static const stbtt_fontinfo info = [] {
    stbtt_fontinfo f;
    if (stbtt_InitFont(&f, convnet_font_bytes, stbtt_GetFontOffsetForIndex(convnet_font_bytes, 0)) == 0)
      throw std::logic_error("the built-in font cannot be read");
    return f;
  }();
  return info;
}

double scale_of(double size) { return stbtt_ScaleForMappingEmToPixels(&font(), static_cast<float>(size)); }

double advance_of(char32_t code) {
  int advance = 0;
  int bearing = 0;
  stbtt_GetCodepointHMetrics(&font(), static_cast<int>(code), &advance, &bearing);
  return advance;
}

double width_of(const std::u32string& codes, double size) {
  double width = 0;
  for (const char32_t c : codes) width += advance_of(c);
  return width * scale_of(size);
}

}  // namespace

double text_width(std::string_view text, double size) { return width_of(code_points(text), size); }

std::string fitted(const std::string& text, double size, double width) {
  if (text_width(text, size) <= width) return text;
  const std::string ellipsis = "\xE2\x80\xA6";
  std::size_t end = text.size();
  while (end > 0 && text_width(text.substr(0, end) + ellipsis, size) > width) {
    --end;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  }
  return text.substr(0, end) + ellipsis;
}

void draw_text(Picture& picture, Point at, std::string_view text, Color color, double size, Anchor anchor) {
  const std::u32string codes = code_points(text);
  const double width = width_of(codes, size);
  double x = at.x - (anchor == Anchor::start ? 0 : anchor == Anchor::middle ? width / 2 : width);
  const double scale = scale_of(size);
  const auto y = static_cast<int>(std::lround(at.y));
  std::vector<unsigned char> glyph;
  for (const char32_t code : codes) {
    const int column = static_cast<int>(std::floor(x));
    const auto shift = static_cast<float>(x - column);
    const auto s = static_cast<float>(scale);
    const int index = static_cast<int>(code);
    int left = 0;
    int top = 0;
    int right = 0;
    int bottom = 0;
    stbtt_GetCodepointBitmapBoxSubpixel(&font(), index, s, s, shift, 0, &left, &top, &right, &bottom);
    const int across = right - left;
    const int down = bottom - top;
    if (across > 0 && down > 0) {
      glyph.assign(static_cast<std::size_t>(across) * static_cast<std::size_t>(down), 0);
      stbtt_MakeCodepointBitmapSubpixel(&font(), glyph.data(), across, down, across, s, s, shift, 0, index);
      for (int row = 0; row < down; ++row) {
        for (int c = 0; c < across; ++c)
          picture.blend(column + left + c, y + top + row, color,
                        glyph[static_cast<std::size_t>(row * across + c)] / 255.0);
      }
    }
    x += advance_of(code) * scale;
  }
}

}  // namespace convnet
