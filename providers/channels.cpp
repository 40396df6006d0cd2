#include "providers/channels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace convnet {
namespace {

/// Copies the pixels from `first` on, one at a time.
void split_each(const std::uint8_t* pixels, std::size_t first, std::size_t count, bool mirror,
                std::uint8_t* to, std::size_t stride) {
  for (std::size_t x = first; x < count; ++x)
    for (std::size_t c = 0; c < 3; ++c) to[c * stride + (mirror ? count - 1 - x : x)] = pixels[3 * x + c];
}

#if defined(__x86_64__)
constexpr std::size_t kAtOnce = 16;

/// The places in three vectors of 16 bytes, of which one holds each of 16 pixels' numbers of a channel.
struct Places {
  alignas(16) std::uint8_t of[3][3][kAtOnce] = {};  ///< by channel and vector; 0x80 makes a zero
};
constexpr Places places_of(bool mirror) {
  Places places;
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t v = 0; v < 3; ++v)
      for (std::size_t i = 0; i < kAtOnce; ++i) {
        const std::size_t byte = 3 * (mirror ? kAtOnce - 1 - i : i) + c;
        places.of[c][v][i] =
            byte / kAtOnce == v ? static_cast<std::uint8_t>(byte % kAtOnce) : std::uint8_t{0x80};
      }
  return places;
}

/// Copies as many pixels as there are whole vectors, and returns their number.
__attribute__((target("ssse3"))) std::size_t split_vectors(const std::uint8_t* pixels, std::size_t count,
                                                           bool mirror, std::uint8_t* to,
                                                           std::size_t stride) {
  static constexpr Places kPlaces[2] = {places_of(false), places_of(true)};
  const Places& places = kPlaces[mirror ? 1 : 0];
  std::size_t x = 0;
  for (; x + kAtOnce <= count; x += kAtOnce) {
    const auto* const from = reinterpret_cast<const __m128i*>(pixels + 3 * x);
    const __m128i first = _mm_loadu_si128(from), second = _mm_loadu_si128(from + 1),
                  third = _mm_loadu_si128(from + 2);
    for (std::size_t c = 0; c < 3; ++c) {
      const auto* const place = reinterpret_cast<const __m128i*>(places.of[c]);
      const __m128i channel = _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(first, _mm_load_si128(place)),
                                                        _mm_shuffle_epi8(second, _mm_load_si128(place + 1))),
                                           _mm_shuffle_epi8(third, _mm_load_si128(place + 2)));
      std::uint8_t* const at = to + c * stride + (mirror ? count - kAtOnce - x : x);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(at), channel);
    }
  }
  return x;
}
#endif

}  // namespace

void split_channels(const std::uint8_t* pixels, std::size_t count, bool mirror, std::uint8_t* to,
                    std::size_t stride) {
  std::size_t done = 0;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("ssse3")) done = split_vectors(pixels, count, mirror, to, stride);
#endif
  split_each(pixels, done, count, mirror, to, stride);
}

void blend_onto_white(const std::uint8_t* pixels, std::size_t count, std::uint8_t* to) {
  constexpr int opaque = 255;
  for (std::size_t i = 0; i < count; ++i, pixels += 4)
    for (int c = 0; c < 3; ++c)
      *to++ = static_cast<std::uint8_t>((pixels[c] * pixels[3] + opaque * (opaque - pixels[3]) + opaque / 2) /
                                        opaque);
}

}  // namespace convnet
