// Pixels whose channels are split.
#include "providers/channels.h"

#include <vector>

#include "tests/catch.h"

using namespace convnet;

TEST_CASE("channels are split for any number of pixels, mirrored or not, and nothing else is written") {
  constexpr std::uint8_t kUntouched = 255;
  for (std::size_t count = 0; count <= 70; ++count)
    for (const bool mirror : {false, true}) {
      std::vector<std::uint8_t> pixels;
      for (std::size_t i = 0; i < 3 * count; ++i) pixels.push_back(static_cast<std::uint8_t>(i % 251));
      const std::size_t stride = count + 5;
      std::vector<std::uint8_t> split(3 * stride, kUntouched), expected = split;
      for (std::size_t c = 0; c < 3; ++c)
        for (std::size_t x = 0; x < count; ++x)
          expected[c * stride + (mirror ? count - 1 - x : x)] = pixels[3 * x + c];
      split_channels(pixels.data(), count, mirror, split.data(), stride);
      INFO(count << (mirror ? " mirrored" : ""));
      CHECK(split == expected);
    }
}
