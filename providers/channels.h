// Changes the order of an image's numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convnet {

/// Copies `count` pixels of red, green and blue to three rows, of which each begins `stride` bytes after the
/// one before; mirrored, the last pixel comes first.
void split_channels(const std::uint8_t* pixels, std::size_t count, bool mirror, std::uint8_t* to,
                    std::size_t stride);

/// Shows `count` pixels of red, green, blue and opacity on white paper; writes red, green and blue.
void blend_onto_white(const std::uint8_t* pixels, std::size_t count, std::uint8_t* to);

}  // namespace convnet
