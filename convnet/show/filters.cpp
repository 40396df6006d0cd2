#include "convnet/show/filters.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "convnet/base/error.h"

namespace convnet {
namespace {

constexpr int kUsualPixels = 640;  // that small filters are enlarged to
constexpr int kMostEnlarged = 16;  // times
constexpr std::int64_t kGap = 1;   // between filters, in weights

/// Filters as (filters, channels, height, width).
struct Filters {
  std::int64_t count = 0, channels = 0, height = 0, width = 0;
  std::vector<float> values;

  std::int64_t size() const { return channels * height * width; }
  float at(std::int64_t filter, std::int64_t channel, std::int64_t y, std::int64_t x) const {
    return values[static_cast<std::size_t>(((filter * channels + channel) * height + y) * width + x)];
  }
};

/// Side of a square of that many pixels; 0 if there is none.
std::int64_t square_side(std::int64_t pixels) {
  const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(pixels))));
  return side * side == pixels ? side : 0;
}

/// The channels of `inputs` numbers that are maps, and the maps' side.
std::pair<std::int64_t, std::int64_t> maps_of(std::int64_t inputs, int channels) {
  std::vector<std::int64_t> tried = {3, 1};
  if (channels > 0) tried = {channels};
  for (const std::int64_t c : tried) {
    if (inputs > 0 && inputs % c == 0 && square_side(inputs / c) > 0) return {c, square_side(inputs / c)};
  }
  std::string fitting;
  for (std::int64_t c = 1; c <= inputs && c <= 4096; ++c) {
    if (inputs % c == 0 && square_side(inputs / c) > 1)
      fitting += (fitting.empty() ? "" : ", ") + std::to_string(c);
  }
  throw InputError("has filters of " + std::to_string(inputs) + " weights, which are no square maps of " +
                   (channels > 0 ? std::to_string(channels) : "3 or 1") + " channels; --channels may be " +
                   (fitting.empty() ? std::to_string(inputs) : fitting));
}

Filters filters_of(const NamedTensor& weights, const FilterStyle& style) {
  const Dims& d = weights.dims;
  if (weights.values.empty()) throw InputError("is " + to_string(d) + ": there is nothing to draw");
  Filters f;
  f.values = weights.values;
  if (d.size() == 4) {
    f.count = d[0], f.channels = d[1], f.height = d[2], f.width = d[3];
  } else if (d.size() == 2 || d.size() == 3) {
    f.count = d.size() == 3 ? d[0] * d[1] : d[0];
    std::tie(f.channels, f.height) = maps_of(d.back(), style.channels);
    f.width = f.height;
  } else if (d.size() == 6) {
    const std::int64_t maps = d[2];
    if (style.local_plane >= maps)
      throw InputError("has " + std::to_string(maps) + " output maps; --local-plane " +
                       std::to_string(style.local_plane) + " is not among 0 to " + std::to_string(maps - 1));
    f.count = d[0] * d[1], f.channels = d[3], f.height = d[4], f.width = d[5];
    f.values.clear();
    for (std::int64_t position = 0; position < f.count; ++position) {
      const auto first = weights.values.begin() +
                         (position * maps + style.local_plane) * static_cast<std::ptrdiff_t>(f.size());
      f.values.insert(f.values.end(), first, first + static_cast<std::ptrdiff_t>(f.size()));
    }
  } else {
    throw InputError("is " + to_string(d) + ", which are no filters");
  }
  return f;
}

void make_rgb_of_yuv(Filters& f) {
  const std::int64_t pixels = f.height * f.width;
  for (std::int64_t i = 0; i < f.count; ++i) {
    for (std::int64_t p = 0; p < pixels; ++p) {
      float* y = &f.values[static_cast<std::size_t>(i * f.size() + p)];
      float* u = y + pixels;
      float* v = u + pixels;
      const float red = *y + 1.28033F * *v;
      const float green = *y - 0.21482F * *u - 0.38059F * *v;
      const float blue = *y + 2.12798F * *u;
      *y = red, *u = green, *v = blue;
    }
  }
}

void normalize_each(Filters& f) {
  for (std::int64_t i = 0; i < f.count; ++i) {
    float* values = &f.values[static_cast<std::size_t>(i * f.size())];
    const auto count = static_cast<double>(f.size());
    double sum = 0;
    double squares = 0;
    for (std::int64_t k = 0; k < f.size(); ++k) sum += values[k];
    for (std::int64_t k = 0; k < f.size(); ++k)
      squares += (values[k] - sum / count) * (values[k] - sum / count);
    const double deviation = std::sqrt(squares / count);
    for (std::int64_t k = 0; k < f.size(); ++k)
      values[k] = deviation > 0 ? static_cast<float>((values[k] - sum / count) / deviation) : 0;
  }
}

/// Columns of a grid of `count` cells that make it most nearly square, no wider than `side`.
std::int64_t columns_of(std::int64_t count, std::int64_t cell_width, std::int64_t cell_height, int side) {
  std::int64_t best = 1;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t columns = 1; columns <= count && columns * cell_width <= side; ++columns) {
    const std::int64_t rows = (count + columns - 1) / columns;
    const double stretch = std::abs(
        std::log(static_cast<double>(columns * cell_width) / static_cast<double>(rows * cell_height)));
    if (stretch < least) {
      least = stretch;
      best = columns;
    }
  }
  return best;
}

/// Where filters stand in a picture, all in weights (pixels before it is enlarged). A cell holds a filter:
/// one tile in colour, or a tile for each of its first channels.
struct Grid {
  std::int64_t channels = 1;  ///< tiles of a cell, side by side
  std::int64_t cell_width = 0, cell_height = 0;
  std::int64_t filter_gap = kGap;  ///< between cells of a row
  std::int64_t rows = 0, columns = 0;
  std::int64_t shown = 0;  ///< number of filters
};

Grid grid_of(const Filters& f, const FilterStyle& style, bool color) {
  if (std::max(f.width, f.height) + 2 * kGap > style.side)
    throw InputError("has filters of " + std::to_string(f.height) + "x" + std::to_string(f.width) +
                     " weights, more than a picture shows");
  const std::int64_t wanted =
      style.most_channels > 0 ? std::min<std::int64_t>(f.channels, style.most_channels) : f.channels;
  Grid grid;
  grid.channels = color ? 1 : std::min(wanted, (style.side - kGap) / (f.width + kGap));
  // Channels of one filter stand closer than filters do.
  if (grid.channels > 1) grid.filter_gap = 3 * kGap;
  grid.cell_width = grid.channels * (f.width + kGap) - kGap + grid.filter_gap;
  grid.cell_height = f.height + kGap;
  const std::int64_t most =
      style.most_filters > 0 ? std::min<std::int64_t>(f.count, style.most_filters) : f.count;
  grid.columns = columns_of(most, grid.cell_width, grid.cell_height, style.side);
  grid.rows = std::min((most + grid.columns - 1) / grid.columns, (style.side - kGap) / grid.cell_height);
  grid.shown = std::min(most, grid.rows * grid.columns);
  return grid;
}

/// Scales weights to brightness: from the smallest, black, to the largest, of all filters or of each.
class Brightness {
 public:
  Brightness(const Filters& f, bool own_range) : f_(f), own_range_(own_range) {
    if (!own_range) ranges_.push_back(range_of(0, std::ssize(f.values)));
    for (std::int64_t i = 0; own_range && i < f.count; ++i)
      ranges_.push_back(range_of(i * f.size(), f.size()));
  }

  std::uint8_t of(std::int64_t filter, std::int64_t channel, std::int64_t y, std::int64_t x) const {
    const auto& [low, width] = ranges_[own_range_ ? static_cast<std::size_t>(filter) : 0];
    const double share = width > 0 ? (f_.at(filter, channel, y, x) - low) / width : 0.5;
    return static_cast<std::uint8_t>(std::lround(255 * share));
  }

 private:
  struct Range {
    double low, width;
  };
  Range range_of(std::int64_t first, std::int64_t count) const {
    const auto begin = f_.values.begin() + first;
    const auto [smallest, largest] = std::minmax_element(begin, begin + count);
    return {*smallest, static_cast<double>(*largest) - static_cast<double>(*smallest)};
  }

  const Filters& f_;
  const bool own_range_;
  std::vector<Range> ranges_;
};

Picture drawn(const Filters& f, const Grid& grid, const Brightness& brightness, bool color, Color gaps) {
  Picture picture(static_cast<int>(grid.columns * grid.cell_width - grid.filter_gap + 2 * kGap),
                  static_cast<int>(grid.rows * grid.cell_height + kGap), gaps);
  for (std::int64_t i = 0; i < grid.shown; ++i) {
    for (std::int64_t c = 0; c < grid.channels; ++c) {
      const std::int64_t left = kGap + i % grid.columns * grid.cell_width + c * (f.width + kGap);
      const std::int64_t top = kGap + i / grid.columns * grid.cell_height;
      for (std::int64_t y = 0; y < f.height; ++y) {
        for (std::int64_t x = 0; x < f.width; ++x) {
          const std::uint8_t first = brightness.of(i, c, y, x);
          Color pixel = color ? Color{first, brightness.of(i, 1, y, x), brightness.of(i, 2, y, x)}
                              : Color{first, first, first};
          if (pixel == gaps && gaps != kWhite) pixel.g ^= 1;
          picture.set(static_cast<int>(left + x), static_cast<int>(top + y), pixel);
        }
      }
    }
  }
  return picture;
}

std::string caption_of(const Filters& f, const FilterStyle& style, const Grid& grid, bool color) {
  std::string caption = std::to_string(f.count) + (f.count == 1 ? " filter of " : " filters of ") +
                        to_string({f.channels, f.height, f.width});
  if (color) caption += style.from_yuv ? ", YUV as RGB" : ", channels as RGB";
  if (grid.channels > 1) caption += ", a channel beside the other";
  if (grid.channels < f.channels && !color)
    caption += "; the first " + std::to_string(grid.channels) + " channels";
  if (style.own_range) caption += "; each from its smallest weight, black, to its largest";
  if (grid.shown < f.count) caption += "; the first " + std::to_string(grid.shown) + " filters";
  return caption;
}

}  // namespace

FilterPicture draw_filters(const NamedTensor& weights, const FilterStyle& style) {
  Filters f = filters_of(weights, style);
  if (style.from_yuv) {
    if (f.channels != 3)
      throw InputError("has filters of " + std::to_string(f.channels) + " channels; YUV ones have 3");
    make_rgb_of_yuv(f);
  }
  if (style.normalize) normalize_each(f);
  if (!all_finite(f.values))
    throw InputError("holds numbers that are not finite (NaN or infinity), or too large to draw");
  const bool color = style.rgb && f.channels == 3;
  const Grid grid = grid_of(f, style, color);
  const Picture picture = drawn(f, grid, Brightness(f, style.own_range), color, style.gaps);
  const int longest = std::max(picture.width(), picture.height());
  const int usual = std::clamp((kUsualPixels + longest / 2) / longest, 1, kMostEnlarged);
  const int factor = std::max(1, std::min(usual, style.side / longest));
  return {picture.enlarged(factor), caption_of(f, style, grid, color)};
}

}  // namespace convnet
