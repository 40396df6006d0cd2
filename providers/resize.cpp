// The arithmetic on pixels is in integers, so that every machine and compiler makes the same ones.
#include "providers/resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "convnet/base/error.h"

namespace convnet {
namespace {

/// The pixels and weights that scaling one axis uses: out[i] = sum over k < taps of
/// weights[taps * i + k] * in[first[i] + k].
struct Axis {
  int taps = 0;
  std::vector<int> first;
  /// In units of 1/(1 << weight_bits). The type is narrow so that compilers find fast products.
  std::vector<std::int16_t> weights;

  int begin() const { return first.front(); }
  int end() const { return first.back() + taps; }
};
constexpr int weight_bits = 14;

/// Makes the taps of the new pixels [begin, end) of `to`, which are made of `from`.
Axis make_axis(int from, int to, int begin, int end) {
  const double scale = static_cast<double>(from) / to, radius = std::max(1.0, scale);
  const auto weight_at = [&](int x, double centre) {
    return std::max(0.0, 1 - std::abs(x + 0.5 - centre) / radius);
  };
  Axis axis;
  // Equal sizes need one pixel each.
  axis.taps = from == to ? 1 : std::min(from, static_cast<int>(std::ceil(2 * radius)) + 1);
  for (int i = begin; i < end; ++i) {
    const double centre = (i + 0.5) * scale;
    const int reach = from == to ? i : static_cast<int>(std::floor(centre - radius));
    const int first = std::clamp(reach, 0, from - axis.taps);
    double sum = 0;
    for (int x = first; x < first + axis.taps; ++x) sum += weight_at(x, centre);
    // Rounding errors are carried to the next weight, so that the weights add up and a uniform area stays
    // uniform.
    double exact = 0;
    int given = 0;
    for (int x = first; x < first + axis.taps; ++x) {
      exact += weight_at(x, centre) / sum * (1 << weight_bits);
      const int weight = static_cast<int>(std::lround(exact)) - given;
      axis.weights.push_back(static_cast<std::int16_t>(weight));
      given += weight;
    }
    axis.first.push_back(first);
  }
  return axis;
}

std::uint8_t rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>((sum + (1 << (weight_bits - 1))) >> weight_bits);
}

}  // namespace

ImageSize scaled_to_shorter_side(ImageSize size, int side) {
  const auto scaled = [side](std::int64_t longer, std::int64_t shorter) {
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    return static_cast<int>(std::min((longer * side + shorter / 2) / shorter, most));
  };
  return size.height < size.width ? ImageSize{side, scaled(size.width, size.height)}
                                  : ImageSize{scaled(size.height, size.width), side};
}

DecodedImage resize_image(const DecodedImage& image, ImageSize size, const ImageWindow& window) {
  const Axis rows = make_axis(image.height, size.height, window.y, window.y + window.height);
  const Axis columns = make_axis(image.width, size.width, window.x, window.x + window.width);
  const auto row_taps = static_cast<std::size_t>(rows.taps),
             column_taps = static_cast<std::size_t>(columns.taps);
  const auto row_bytes = static_cast<std::size_t>(image.width) * 3;
  DecodedImage out{window.height, window.width, {}};
  out.pixels.resize(static_cast<std::size_t>(window.height) * static_cast<std::size_t>(window.width) * 3);
  // The columns that are needed, as a range of a row's bytes.
  const auto begin = static_cast<std::size_t>(columns.begin()) * 3,
             end = static_cast<std::size_t>(columns.end()) * 3;
  std::vector<std::int32_t> sums(end - begin);
  std::vector<std::uint8_t> row(end - begin);
  std::uint8_t* to = out.pixels.data();
  for (std::size_t y = 0; y < rows.first.size(); ++y) {
    const std::uint8_t* from =
        image.pixels.data() + static_cast<std::size_t>(rows.first[y]) * row_bytes + begin;
    const std::uint8_t* line = from;  // as it is where the height stays
    if (image.height != size.height) {
      std::fill(sums.begin(), sums.end(), 0);
      for (std::size_t k = 0; k < row_taps; ++k, from += row_bytes) {
        const std::int16_t weight = rows.weights[y * row_taps + k];
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += weight * static_cast<std::int16_t>(from[i]);
      }
      for (std::size_t i = 0; i < sums.size(); ++i) row[i] = rounded(sums[i]);
      line = row.data();
    }
    if (image.width == size.width) {
      to = std::copy(line, line + row.size(), to);
      continue;
    }
    for (std::size_t x = 0; x < columns.first.size(); ++x, to += 3) {
      const std::uint8_t* pixel = line + static_cast<std::size_t>(columns.first[x]) * 3 - begin;
      const std::int16_t* const weights = columns.weights.data() + x * column_taps;
      std::int32_t red = 0, green = 0, blue = 0;
      for (std::size_t k = 0; k < column_taps; ++k, pixel += 3) {
        red += weights[k] * pixel[0];
        green += weights[k] * pixel[1];
        blue += weights[k] * pixel[2];
      }
      to[0] = rounded(red);
      to[1] = rounded(green);
      to[2] = rounded(blue);
    }
  }
  return out;
}

DecodedImage resize_image(const DecodedImage& image, ImageSize size) {
  return resize_image(image, size, {0, 0, size.height, size.width});
}

void check_aspect(const DecodedImage& image, const std::string& name, int most) {
  const auto [shorter, longer] = std::minmax(image.height, image.width);
  if (longer / shorter > most)
    throw InputError(fmt::format("{}: {} x {} pixels; one side is more than {} times the other", name,
                                 image.width, image.height, most));
}

DecodedImage cut_window(const DecodedImage& image, const ImageWindow& window) {
  DecodedImage out{window.height, window.width, {}};
  for (int row = window.y; row < window.y + window.height; ++row) {
    const auto at = image.pixels.begin() + (std::ptrdiff_t{row} * image.width + window.x) * 3;
    out.pixels.insert(out.pixels.end(), at, at + std::ptrdiff_t{window.width} * 3);
  }
  return out;
}

DecodedImage centre_square(const DecodedImage& image, int side) {
  return cut_window(image, {(image.height - side) / 2, (image.width - side) / 2, side, side});
}

}  // namespace convnet
