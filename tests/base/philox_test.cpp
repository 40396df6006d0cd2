#include "convnet/base/philox.h"

#include <vector>
#include "tests/catch.h"

using namespace convnet;

namespace {
std::vector<std::uint32_t> words(const Philox4x32& r) { return {r.value, r.value + 4}; }
}  // namespace

TEST_CASE("philox gives the published numbers", "[philox]") {
  using Words = std::vector<std::uint32_t>;
  CHECK(words(philox(0, 0, 0, 0, 0)) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(words(philox(~std::uint64_t{0}, ~0U, ~0U, ~0U, ~0U)) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(words(philox(0x299f31d0a4093822, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344)) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("element_random counts elements, images and iterations apart", "[philox]") {
  CHECK(element_random(0, 0, 0, 2) == 0xbc57ac4c);
  CHECK(element_random(7, (std::uint64_t{9} << 32) + 5, 3, 6) == philox(7, 1, 3, 5, 9).value[2]);
}

TEST_CASE("philox_key depends on seed and purpose", "[philox]") {
  CHECK(philox_key(1, "conv1") == philox_key(1, "conv1"));
  CHECK(philox_key(1, "conv1") != philox_key(2, "conv1"));
  CHECK(philox_key(1, "conv1") != philox_key(1, "conv2"));
}

TEST_CASE("uniform01 stays below one", "[philox]") {
  CHECK(uniform01(0) == 0.0F);
  CHECK(uniform01(0xFFFFFFFF) < 1.0F);
  CHECK(uniform01(0x80000000) == 0.5F);
}
