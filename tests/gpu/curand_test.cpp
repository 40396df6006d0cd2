// The random words of cuRAND, which kernels on GPUs use, beside those of hosts. Needs no device: cuRAND's
// rounds are compiled for the host here.
#include <random>

#include <vector_functions.h>
#define QUALIFIERS [[maybe_unused]] static inline
#include <curand_philox4x32_x.h>

#include "convnet/base/philox.h"
#include "tests/catch.h"

using namespace convnet;

TEST_CASE("cuRAND's random words are those of hosts") {
  std::mt19937 random(1);
  const auto word = [&] { return static_cast<std::uint32_t>(random()); };
  for (int i = 0; i < 2'000'000; ++i) {
    const std::uint32_t k0 = word(), k1 = word(), c0 = word(), c1 = word(), c2 = word(), c3 = word();
    const uint4 theirs = curand_Philox4x32_10(make_uint4(c0, c1, c2, c3), make_uint2(k0, k1));
    const Philox4x32 ours = philox(std::uint64_t{k1} << 32 | k0, c0, c1, c2, c3);
    const std::uint32_t words[] = {theirs.x, theirs.y, theirs.z, theirs.w};
    if (!std::equal(std::begin(words), std::end(words), std::begin(ours.value))) FAIL("counter " << i);
  }
}
