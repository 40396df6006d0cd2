// The inputs that each output of a layer reads: this defines completely the layers that add, pick or move
// numbers, and the windows of the normalisations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/reference/keys.h"

namespace convnet::reference {

/// One image's features: maps (C,H,W), or a flat vector of c numbers.
struct Shape {
  std::int64_t c = 0, h = 1, w = 1;
  bool image = false;
  std::int64_t size() const { return c * h * w; }
};

/// An element of one image of an input, in (C,H,W) order.
struct Tap {
  std::size_t input = 0, element = 0;
  double weight = 1;
};

/// The rule by which an image's outputs are computed from their taps.
enum class Rule {
  none,          ///< the layer has no taps
  sum,           ///< sum of weight * tap
  largest,       ///< the first of the largest taps
  product,       ///< product of the taps
  largest_abs,   ///< the first tap of the largest magnitude
  normalise,     ///< own element / (power of the sum of the squared taps)
  normalise_sd,  ///< the same, of taps minus the means of their own windows
};

struct TapLayer {
  Rule rule = Rule::none;
  Shape shape;
  std::vector<std::vector<Tap>> taps;  ///< taps by output element of one image, in scan order
};

/// Smallest number of windows of `stride` that covers `rest` pixels after the first window.
std::int64_t windows(std::int64_t rest, std::int64_t stride);

/// `shape` read as `channels` maps, which are square where it is a flat vector.
Shape as_maps(const Shape& shape, std::int64_t channels);

/// Rule none for layer types of another kind. rscale as in tests.
TapLayer tap_layer(const std::string& type, const std::vector<Shape>& inputs, const Keys& keys);

/// Bilinear samples of one row of `in` pixels: output i is at source `start + i*scale`, clamped to
/// [0, in - 1.01]. Returns the (source, weight) pairs of each output.
std::vector<std::vector<std::pair<std::int64_t, double>>> bilinear(std::int64_t in, std::int64_t out,
                                                                   double scale, double start);
/// Returns the products of taps for rows and taps for columns, for every map.
std::vector<std::vector<Tap>> separable(
    const Shape& in, const std::vector<std::vector<std::pair<std::int64_t, double>>>& rows,
    const std::vector<std::vector<std::pair<std::int64_t, double>>>& cols);

}  // namespace convnet::reference
