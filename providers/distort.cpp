#include "providers/distort.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

namespace convnet {
namespace {

std::uint8_t rounded(double value) {
  // NOLINTNEXTLINE(bugprone-incorrect-roundings): the number is not negative, and lround() is slow
  return static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0) + 0.5);
}

std::uint8_t luma_of(const std::uint8_t* pixel) { return luma(pixel[0], pixel[1], pixel[2]); }

/// Makes every number `table[number]`, with a table for each channel.
void look_up(DecodedImage& image, const std::array<std::array<std::uint8_t, 256>, 3>& tables) {
  for (std::size_t i = 0; i < image.pixels.size(); i += 3)
    for (std::size_t c = 0; c < 3; ++c) image.pixels[i + c] = tables[c][image.pixels[i + c]];
}

/// Makes every number f(number).
template <class F>
void map_numbers(DecodedImage& image, const F& f) {
  std::array<std::uint8_t, 256> table{};
  for (int v = 0; v < 256; ++v) table[static_cast<std::size_t>(v)] = f(static_cast<std::uint8_t>(v));
  look_up(image, {table, table, table});
}

/// Takes the pixel of row y and column x from `place(y, x)`, a pair of row and column.
template <class Place>
void move_pixels(DecodedImage& image, const Place& place) {
  const std::vector<std::uint8_t> from = std::exchange(image.pixels, {});
  image.pixels.assign(from.size(), 0);
  std::uint8_t* to = image.pixels.data();
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x, to += 3) {
      const auto [row, column] = place(y, x);
      if (row < -0.5 || column < -0.5) continue;
      const double r = row + 0.5, c = column + 0.5;
      if (r >= image.height || c >= image.width) continue;
      const std::size_t at = 3 * (static_cast<std::size_t>(r) * static_cast<std::size_t>(image.width) +
                                  static_cast<std::size_t>(c));
      std::copy_n(from.data() + at, 3, to);
    }
}

void rotate(DecodedImage& image, double degrees) {
  const double angle = degrees * std::numbers::pi / 180, cosine = std::cos(angle), sine = std::sin(angle);
  const double middle_y = (image.height - 1) / 2.0, middle_x = (image.width - 1) / 2.0;
  move_pixels(image, [&](int y, int x) {
    const double down = y - middle_y, right = x - middle_x;
    return std::pair(middle_y + cosine * down + sine * right, middle_x - sine * down + cosine * right);
  });
}

void change_contrast(DecodedImage& image, double factor) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) sum += luma_of(&image.pixels[i]);
  const std::size_t pixels = image.pixels.size() / 3;
  const double mean = std::floor(static_cast<double>(sum) / static_cast<double>(pixels) + 0.5);
  map_numbers(image, [=](std::uint8_t v) { return rounded(mean + factor * (v - mean)); });
}

void change_saturation(DecodedImage& image, double factor) {
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    const double grey = luma_of(&image.pixels[i]);
    for (std::size_t c = 0; c < 3; ++c)
      image.pixels[i + c] = rounded(grey + factor * (image.pixels[i + c] - grey));
  }
}

/// Pixels at the border have no 3x3 neighbours and stay as they are.
void change_sharpness(DecodedImage& image, double factor) {
  const std::vector<std::uint8_t> from = image.pixels;
  const auto row = static_cast<std::ptrdiff_t>(image.width) * 3;
  for (int y = 1; y + 1 < image.height; ++y)
    for (std::ptrdiff_t i = y * row + 3; i < (y + 1) * row - 3; ++i) {
      int sum = 4 * from[static_cast<std::size_t>(i)];
      for (const std::ptrdiff_t line : {-row, std::ptrdiff_t{0}, row})
        for (const std::ptrdiff_t side : {-3, 0, 3}) sum += from[static_cast<std::size_t>(i + line + side)];
      const double smooth = rounded(sum / 13.0);
      std::uint8_t& pixel = image.pixels[static_cast<std::size_t>(i)];
      pixel = rounded(smooth + factor * (pixel - smooth));
    }
}

std::array<std::array<std::int64_t, 256>, 3> histograms(const DecodedImage& image) {
  std::array<std::array<std::int64_t, 256>, 3> counts{};
  for (std::size_t i = 0; i < image.pixels.size(); i += 3)
    for (std::size_t c = 0; c < 3; ++c) ++counts[c][image.pixels[i + c]];
  return counts;
}

/// Replaces the table of each channel that `fill(histogram, table)` wants to change.
template <class Fill>
void map_channels(DecodedImage& image, const Fill& fill) {
  std::array<std::array<std::uint8_t, 256>, 3> tables;
  const auto counts = histograms(image);
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t v = 0; v < 256; ++v) tables[c][v] = static_cast<std::uint8_t>(v);
    fill(counts[c], tables[c]);
  }
  look_up(image, tables);
}

/// A channel of one value stays as it is.
void autocontrast(DecodedImage& image) {
  map_channels(image, [](const auto& counts, auto& table) {
    const auto is_used = [](std::int64_t count) { return count > 0; };
    const auto least = std::find_if(counts.begin(), counts.end(), is_used) - counts.begin();
    const auto most = 255 - (std::find_if(counts.rbegin(), counts.rend(), is_used) - counts.rbegin());
    if (least >= most) return;
    const auto from = static_cast<double>(least), range = static_cast<double>(most - least);
    for (std::size_t v = 0; v < 256; ++v) table[v] = rounded((static_cast<double>(v) - from) * 255 / range);
  });
}

/// Makes every value (darker + step / 2) / step, rounded down, where `darker` is the number of darker pixels
/// and `step` is 1/255 of the pixels below the channel's brightest value, as Pillow does. A channel with
/// fewer than 255 such pixels stays as it is.
void equalize(DecodedImage& image) {
  map_channels(image, [](const auto& counts, auto& table) {
    std::int64_t all = 0, brightest = 0;
    for (const std::int64_t count : counts) {
      all += count;
      if (count > 0) brightest = count;
    }
    const std::int64_t step = (all - brightest) / 255;
    if (step == 0) return;
    std::int64_t darker = step / 2;
    for (std::size_t v = 0; v < 256; ++v) {
      table[v] = static_cast<std::uint8_t>(std::min<std::int64_t>(darker / step, 255));
      darker += counts[v];
    }
  });
}

}  // namespace

void distort(DecodedImage& image, Distortion kind, double m) {
  switch (kind) {
    case Distortion::none: return;
    case Distortion::shear_x:
      return move_pixels(image, [=](int y, int x) { return std::pair(1.0 * y, x + m * (y + 0.5)); });
    case Distortion::shear_y:
      return move_pixels(image, [=](int y, int x) { return std::pair(y + m * (x + 0.5), 1.0 * x); });
    case Distortion::translate_x:
      return move_pixels(image, [=](int y, int x) { return std::pair(1.0 * y, x + m); });
    case Distortion::translate_y:
      return move_pixels(image, [=](int y, int x) { return std::pair(y + m, 1.0 * x); });
    case Distortion::rotate: return rotate(image, m);
    case Distortion::brightness:
      return map_numbers(image, [=](std::uint8_t v) { return rounded((1 + m) * v); });
    case Distortion::saturation: return change_saturation(image, 1 + m);
    case Distortion::contrast: return change_contrast(image, 1 + m);
    case Distortion::sharpness: return change_sharpness(image, 1 + m);
    case Distortion::posterize: {
      const int dropped = 8 - static_cast<int>(m);
      return map_numbers(image,
                         [=](std::uint8_t v) { return static_cast<std::uint8_t>(v >> dropped << dropped); });
    }
    case Distortion::solarize:
      return map_numbers(image,
                         [=](std::uint8_t v) { return static_cast<std::uint8_t>(v < m ? v : 255 - v); });
    case Distortion::autocontrast: return autocontrast(image);
    case Distortion::equalize: return equalize(image);
  }
}

DrawnDistortion draw_distortion(const Philox4x32& random) {
  const auto pick = [&](int word, std::uint64_t choices) {
    return static_cast<int>(random.value[word] * choices >> 32);
  };
  constexpr int kBins = 31;
  const auto kind = static_cast<Distortion>(pick(0, kDistortions));
  const int bin = pick(1, kBins);
  const double part = static_cast<double>(bin) / (kBins - 1), sign = (random.value[2] & 1) != 0 ? -1 : 1;
  switch (kind) {
    case Distortion::shear_x:
    case Distortion::shear_y:
    case Distortion::brightness:
    case Distortion::saturation:
    case Distortion::contrast:
    case Distortion::sharpness: return {kind, sign * 0.99 * part};
    case Distortion::translate_x:
    case Distortion::translate_y: return {kind, sign * std::floor(32 * part)};
    case Distortion::rotate: return {kind, sign * 135 * part};
    case Distortion::posterize: return {kind, 8 - std::floor(6 * part + 0.5)};
    case Distortion::solarize: return {kind, 255 * (1 - part)};
    default: return {kind, 0};
  }
}

void jitter_colors(DecodedImage& image, double strength, const Philox4x32& random) {
  std::array<Distortion, 3> order = {Distortion::brightness, Distortion::contrast, Distortion::saturation};
  // The last word chooses one of the six orders.
  const auto lot = static_cast<std::size_t>(random.value[3] * std::uint64_t{6} >> 32);
  std::swap(order[0], order[lot % 3]);
  if (lot >= 3) std::swap(order[1], order[2]);
  const double least = std::max(-1.0, -strength);
  for (std::size_t i = 0; i < 3; ++i)
    distort(image, order[i], least + (strength - least) * double{uniform01(random.value[i])});
}

}  // namespace convnet
