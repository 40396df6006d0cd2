// The arithmetic on pixels is in integers, so that every machine and compiler makes the same ones.
#include "providers/resize.h"

#include <fmt/format.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
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
  /// In units of 1/(1 << kWeightBits). The type is narrow so that compilers find fast products.
  std::vector<std::int16_t> weights;

  /// Weights 0 and 1, 2 and 3 and so on of each new pixel; a missing one is 0.
  std::vector<std::int32_t> pairs;

  int begin() const { return first.front(); }
  int end() const { return first.back() + taps; }
};
constexpr int kWeightBits = 14;

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
      exact += weight_at(x, centre) / sum * (1 << kWeightBits);
      const int weight = static_cast<int>(std::lround(exact)) - given;
      axis.weights.push_back(static_cast<std::int16_t>(weight));
      given += weight;
    }
    axis.first.push_back(first);
    const std::int16_t* const weights = axis.weights.data() + axis.weights.size() - axis.taps;
    for (int k = 0; k < axis.taps; k += 2) {
      const std::int16_t second = k + 1 < axis.taps ? weights[k + 1] : std::int16_t{0};
      axis.pairs.push_back(static_cast<std::uint16_t>(weights[k]) | static_cast<std::int32_t>(second) << 16);
    }
  }
  return axis;
}

/// Bytes beyond the last pixel of a row that sum_pixels() may read.
constexpr std::size_t kRowPadding = 8;

#ifdef __SSE2__
/// Two weights, again and again.
__m128i weight_pair(std::int16_t first, std::int16_t second) {
  return _mm_set1_epi32(static_cast<std::uint16_t>(first) | static_cast<std::int32_t>(second) << 16);
}
#endif

std::uint8_t rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>((sum + (1 << (kWeightBits - 1))) >> kWeightBits);
}

/// Writes the weighted sums of `taps` rows, `stride` bytes apart, for `count` numbers of a row.
void sum_rows(const std::uint8_t* from, std::size_t stride, const std::int16_t* weights, std::size_t taps,
              std::size_t count, std::uint8_t* to) {
  std::size_t i = 0;
#ifdef __SSE2__
  // Sixteen numbers at a time, and two rows: the instruction adds the products of neighbours.
  const __m128i zero = _mm_setzero_si128(), half = _mm_set1_epi32(1 << (kWeightBits - 1));
  const auto load = [](const std::uint8_t* at) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  };
  for (; i + 16 <= count; i += 16) {
    __m128i a = half, b = half, c = half, d = half;
    for (std::size_t k = 0; k < taps; k += 2) {
      const bool pair = k + 1 < taps;
      const __m128i first = load(from + k * stride + i),
                    second = pair ? load(from + (k + 1) * stride + i) : zero;
      const __m128i weight = weight_pair(weights[k], pair ? weights[k + 1] : std::int16_t{0});
      const __m128i low = _mm_unpacklo_epi8(first, second), high = _mm_unpackhi_epi8(first, second);
      a = _mm_add_epi32(a, _mm_madd_epi16(_mm_unpacklo_epi8(low, zero), weight));
      b = _mm_add_epi32(b, _mm_madd_epi16(_mm_unpackhi_epi8(low, zero), weight));
      c = _mm_add_epi32(c, _mm_madd_epi16(_mm_unpacklo_epi8(high, zero), weight));
      d = _mm_add_epi32(d, _mm_madd_epi16(_mm_unpackhi_epi8(high, zero), weight));
    }
    const __m128i first_half =
                      _mm_packs_epi32(_mm_srai_epi32(a, kWeightBits), _mm_srai_epi32(b, kWeightBits)),
                  second_half =
                      _mm_packs_epi32(_mm_srai_epi32(c, kWeightBits), _mm_srai_epi32(d, kWeightBits));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm_packus_epi16(first_half, second_half));
  }
#endif
  for (; i < count; ++i) {
    std::int32_t sum = 0;
    for (std::size_t k = 0; k < taps; ++k) sum += weights[k] * from[k * stride + i];
    to[i] = rounded(sum);
  }
}

/// Writes a row of new pixels, each a weighted sum of neighbouring ones. The first number of `from` is that
/// of pixel columns.begin(). Up to kRowPadding bytes beyond the last pixel may be read.
void sum_columns(const std::uint8_t* from, const Axis& columns, std::uint8_t* to) {
  const std::size_t count = columns.first.size();
#ifdef __SSE2__
  const __m128i zero = _mm_setzero_si128(), half = _mm_set1_epi32(1 << (kWeightBits - 1));
  const auto load = [](const std::uint8_t* at) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
  };
  const std::size_t pairs = columns.pairs.size() / count;
  const std::int32_t* pair = columns.pairs.data();
  for (std::size_t x = 0; x < count; ++x, to += 3) {
    const std::uint8_t* at = from + std::ptrdiff_t{3} * (columns.first[x] - columns.begin());
    __m128i sums = half;
    for (std::size_t k = 0; k < pairs; ++k, at += 6, ++pair) {
      const __m128i both = _mm_unpacklo_epi8(load(at), load(at + 3));
      sums = _mm_add_epi32(sums, _mm_madd_epi16(_mm_unpacklo_epi8(both, zero), _mm_set1_epi32(*pair)));
    }
    sums = _mm_srai_epi32(sums, kWeightBits);
    const int rgb = _mm_cvtsi128_si32(_mm_packus_epi16(_mm_packs_epi32(sums, zero), zero));
    // The fourth byte is one of the next pixel, which is written later.
    if (x + 1 < count) {
      std::memcpy(to, &rgb, sizeof rgb);
    } else {
      for (int c = 0; c < 3; ++c) to[c] = static_cast<std::uint8_t>(rgb >> (8 * c) & 0xFF);
    }
  }
#else
  const auto taps = static_cast<std::size_t>(columns.taps);
  for (std::size_t x = 0; x < count; ++x)
    for (int c = 0; c < 3; ++c) {
      const std::uint8_t* const at = from + std::ptrdiff_t{3} * (columns.first[x] - columns.begin()) + c;
      std::int32_t sum = 0;
      for (std::size_t k = 0; k < taps; ++k) sum += columns.weights[x * taps + k] * at[3 * k];
      *to++ = rounded(sum);
    }
#endif
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
  const auto row_taps = static_cast<std::size_t>(rows.taps);
  const auto row_bytes = static_cast<std::size_t>(image.width) * 3;
  DecodedImage out{window.height, window.width, {}};
  out.pixels.resize(static_cast<std::size_t>(window.height) * static_cast<std::size_t>(window.width) * 3);
  // The columns that are needed, as a range of a row's bytes.
  const auto begin = static_cast<std::size_t>(columns.begin()) * 3,
             end = static_cast<std::size_t>(columns.end()) * 3;
  std::vector<std::uint8_t> row(end - begin + kRowPadding);
  std::uint8_t* to = out.pixels.data();
  for (std::size_t y = 0; y < rows.first.size(); ++y) {
    const std::uint8_t* const from =
        image.pixels.data() + static_cast<std::size_t>(rows.first[y]) * row_bytes + begin;
    if (image.height == size.height)
      std::copy(from, from + (end - begin), row.data());
    else
      sum_rows(from, row_bytes, rows.weights.data() + y * row_taps, row_taps, end - begin, row.data());
    if (image.width == size.width) {
      to = std::copy(row.data(), row.data() + (end - begin), to);
      continue;
    }
    sum_columns(row.data(), columns, to);
    to += 3 * columns.first.size();
  }
  return out;
}

DecodedImage resize_image(const DecodedImage& image, ImageSize size) {
  return resize_image(image, size, {0, 0, size.height, size.width});
}

void check_size(std::int64_t width, std::int64_t height, const std::string& name) {
  if (width < 1 || height < 1)
    throw InputError(
        fmt::format("{}: a damaged image: {} x {} pixels; a side has at least one", name, width, height));
  if (width > kMaxImagePixels || height > kMaxImagePixels || width * height > kMaxImagePixels)
    throw InputError(fmt::format("{}: {} x {} pixels; {} are allowed", name, width, height, kMaxImagePixels));
}

int eighths_for(const ImageWindow& window, int wanted_side) {
  if (wanted_side <= 0) return 8;
  const std::int64_t side = std::min(window.width, window.height);
  for (const int eighths : {1, 2, 4})
    if ((side * eighths + 7) / 8 >= wanted_side) return eighths;
  return 8;
}

void check_aspect(ImageSize image, const std::string& name, int most) {
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
