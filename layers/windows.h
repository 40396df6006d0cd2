// The windows of layers of type conv and local: their keys and their geometry.
#pragma once

#include <vector>

#include "layers/weights.h"

namespace convnet {

/// The rounding of the number of windows if the last one does not fit exactly.
enum class Rounding {
  up,   ///< the last window may hang over the far edge
  down  ///< pixels at the far edge may be in no window
};
/// The key `rounding` of a layer whose parameters have the field `rounding`.
template <class Params>
ParamSpec rounding_spec() {
  Rounding Params::*field = &Params::rounding;
  return param_choice(
      "rounding", field, {{"up", Rounding::up}, {"down", Rounding::down}},
      {.fallback = "up",
       .doc = "of the side of the output: with up the last window may hang over the far edge, "
              "with down, as in PyTorch and Caffe, pixels there may be in no window"});
}

struct WindowParams : WeightParams {
  std::vector<OutputCount> filters;
  std::vector<int> channels, filter_size, padding, stride, groups;
  int modules = 0;
  Rounding rounding = Rounding::up;
};

/// The keys of WindowParams for a layer whose parameters derive from it.
template <class Params>
std::vector<ParamSpec> window_param_specs() {
  static_assert(std::is_base_of_v<WindowParams, Params>);
  const auto field = [](auto member) { return field_of<Params>(member); };
  return {
      param_per_input("channels", field(&WindowParams::channels),
                      {.fallback = "0", .min = 0, .max = 1 << 20, .unit = "maps", .doc = kChannelsDoc}),
      param_per_input(
          "filters", field(&WindowParams::filters),
          {.min = 1,
           .max = 1 << 20,
           .unit = "maps",
           .doc = "output maps of each group, or classes: as many as the data has; filters*groups is "
                  "the same for all inputs"}),
      param_per_input("filterSize", field(&WindowParams::filter_size),
                      {.min = 1, .max = 4096, .unit = "pixels", .doc = "side of the square filters"}),
      param_per_input("padding", field(&WindowParams::padding),
                      {.fallback = "0",
                       .min = 0,
                       .max = 4096,
                       .unit = "pixels",
                       .doc = "border of zeros around the image",
                       .aliases = {"pad"}}),
      param_per_input("stride", field(&WindowParams::stride),
                      {.fallback = "1",
                       .min = 1,
                       .max = 4096,
                       .unit = "pixels",
                       .doc = "step between neighbouring windows"}),
      param_per_input("groups", field(&WindowParams::groups),
                      {.fallback = "1",
                       .min = 1,
                       .max = 1 << 20,
                       .doc = "divides input and output maps into separate convolutions"}),
      param("modulesX", field(&WindowParams::modules),
            {.fallback = "0",
             .min = 0,
             .max = 1 << 20,
             .unit = "windows",
             .doc = "side of the output; 0: as the other keys say"}),
      rounding_spec<Params>(),
      param_hint("sumWidth", {.doc = "performance hint of cuda-convnet2", .aliases = {"partialSum"}}),
      param_hint("randSparse",
                 {.doc = "random connectivity of cuda-convnet2: not supported, with a warning"}),
  };
}

/// Returns the geometries of all inputs, with n = 0. Their outputs must have the same size. Returns none
/// after reporting errors.
std::vector<ConvGeometry> window_geometries(const LayerSource& source, const WindowParams& p);

}  // namespace convnet
