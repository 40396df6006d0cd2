// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). They are the same on every device and for every split of the work.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#if defined(__CUDACC__)
#include <curand_philox4x32_x.h>
#endif

#include "convnet/base/checksum.h"
#include "convnet/base/host_device.h"

namespace convnet {

struct Philox4x32 {
  std::uint32_t value[4];
};

/// Does one of the ten rounds on a counter.
CONVNET_HD inline void philox_round(std::uint32_t k0, std::uint32_t k1, std::uint32_t& c0, std::uint32_t& c1,
                                    std::uint32_t& c2, std::uint32_t& c3) {
  const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c0;
  const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c2;
  const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
  const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
  c1 = static_cast<std::uint32_t>(p1);
  c3 = static_cast<std::uint32_t>(p0);
  c0 = n0;
  c2 = n2;
}
CONVNET_HD inline void philox_next_key(std::uint32_t& k0, std::uint32_t& k1) {
  k0 += 0x9E3779B9;
  k1 += 0xBB67AE85;
}

/// Returns four random words: ten rounds on a 128-bit counter with a 64-bit key. GPUs compute them with
/// cuRAND.
CONVNET_HD inline Philox4x32 philox(std::uint64_t key, std::uint32_t c0, std::uint32_t c1, std::uint32_t c2,
                                    std::uint32_t c3) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
#if defined(__CUDA_ARCH__)
  const uint4 words = curand_Philox4x32_10(make_uint4(c0, c1, c2, c3), make_uint2(k0, k1));
  return {{words.x, words.y, words.z, words.w}};
#else
  for (int round = 0; round < 10; ++round) {
    philox_round(k0, k1, c0, c1, c2, c3);
    philox_next_key(k0, k1);
  }
  return {{c0, c1, c2, c3}};
#endif
}

/// Returns a random stream's key from the run's seed and the stream's purpose ("conv1.weights.data").
constexpr std::uint64_t philox_key(std::uint64_t seed, std::string_view purpose) {
  Fnv1a hash;
  hash.add(purpose);
  // The finaliser of splitmix64 mixes the seed in, so that neighbouring seeds share nothing.
  std::uint64_t z = hash.value() + seed * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/// Returns word i of the four. GPUs would keep an array indexed by a variable in memory, not in registers.
CONVNET_HD inline std::uint32_t word_of(const Philox4x32& r, std::uint32_t i) {
  return i < 2 ? (i == 0 ? r.value[0] : r.value[1]) : (i == 2 ? r.value[2] : r.value[3]);
}

/// Returns the random words of elements 4*quad to 4*quad+3 of image `image` in minibatch `iteration`.
CONVNET_HD inline Philox4x32 element_words(std::uint64_t key, std::uint64_t iteration, std::uint32_t image,
                                           std::uint32_t quad) {
  return philox(key, quad, image, static_cast<std::uint32_t>(iteration),
                static_cast<std::uint32_t>(iteration >> 32));
}

/// Returns the random word of element `element` of image `image` in minibatch `iteration`.
CONVNET_HD inline std::uint32_t element_random(std::uint64_t key, std::uint64_t iteration,
                                               std::uint32_t image, std::uint32_t element) {
  return word_of(element_words(key, iteration, image, element / 4), element % 4);
}

/// Returns a number uniform in [0,1), made of 24 bits of a random word.
CONVNET_HD inline float uniform01(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }

/// Returns a number from N(0,1), made of two random words (Box and Muller, 1958).
CONVNET_HD inline float normal(std::uint32_t a, std::uint32_t b) {
  const float radius = std::sqrt(-2 * std::log(1 - uniform01(a)));  // 1 - uniform01() is never 0
#if defined(__CUDA_ARCH__)
  return radius * cospif(2 * uniform01(b));  // cosf has a path for large angles, with an array in memory
#else
  return radius * std::cos(6.283185307F * uniform01(b));
#endif
}

/// Returns a number from N(0,1) for element `element` of image `image` in minibatch `iteration`. It is made
/// of what element_random() returns for the elements 2 * element and 2 * element + 1.
CONVNET_HD inline float element_normal(std::uint64_t key, std::uint64_t iteration, std::uint32_t image,
                                       std::uint32_t element) {
  const Philox4x32 r = philox(key, element / 2, image, static_cast<std::uint32_t>(iteration),
                              static_cast<std::uint32_t>(iteration >> 32));
  const std::uint32_t pair = element % 2 * 2;
  return normal(word_of(r, pair), word_of(r, pair + 1));
}

}  // namespace convnet
