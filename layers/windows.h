// The windows of layers of type conv and local: their keys and their geometry.
#pragma once

#include <optional>
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
  std::vector<int> channels, filter_size, padding, stride, groups, dilation;
  // Without values for what is the same in both directions, or before and behind the image.
  std::vector<std::optional<int>> filter_size_y, padding_y, stride_y, dilation_y;
  std::vector<std::optional<int>> padding_end, padding_end_y;
  int modules = 0;
  std::optional<int> modules_y;
  Rounding rounding = Rounding::up;
};

/// The keys of WindowParams for a layer whose parameters derive from it.
template <class Params>
std::vector<ParamSpec> window_param_specs() {
  static_assert(std::is_base_of_v<WindowParams, Params>);
  const auto field = [](auto member) { return field_of<Params>(member); };
  const auto vertical = [&](const char* key, auto member, double least, const char* doc) {
    return param_per_input(key, field(member),
                           {.fallback = "", .min = least, .max = 4096, .unit = "pixels", .doc = doc});
  };
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
                      {.min = 1, .max = 4096, .unit = "pixels", .doc = "side of the filters"}),
      vertical("filterSizeY", &WindowParams::filter_size_y, 1,
               "height of the filters, if it is not filterSize"),
      param_per_input("padding", field(&WindowParams::padding),
                      {.fallback = "0",
                       .min = 0,
                       .max = 4096,
                       .unit = "pixels",
                       .doc = "border of zeros around the image",
                       .aliases = {"pad"}}),
      vertical("paddingY", &WindowParams::padding_y, 0,
               "border above and below the image, if it is not padding"),
      vertical("paddingEnd", &WindowParams::padding_end, 0,
               "border to the right of the image and below it, if it is not that to the left and above"),
      vertical("paddingEndY", &WindowParams::padding_end_y, 0,
               "border below the image; without it paddingEnd, or paddingY if there is none either"),
      param_per_input("stride", field(&WindowParams::stride),
                      {.fallback = "1",
                       .min = 1,
                       .max = 4096,
                       .unit = "pixels",
                       .doc = "step between neighbouring windows"}),
      vertical("strideY", &WindowParams::stride_y, 1, "step downwards, if it is not stride"),
      param_per_input("dilation", field(&WindowParams::dilation),
                      {.fallback = "1",
                       .min = 1,
                       .max = 4096,
                       .unit = "pixels",
                       .doc = "step between the pixels that neighbouring weights of a filter see"}),
      vertical("dilationY", &WindowParams::dilation_y, 1, "the same downwards, if it is not dilation"),
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
      param("modulesY", field(&WindowParams::modules_y),
            {.fallback = "",
             .min = 1,
             .max = 1 << 20,
             .unit = "windows",
             .doc = "height of the output, if it is not modulesX"}),
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
