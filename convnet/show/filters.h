// The weights of a layer as a picture.
#pragma once

#include <string>

#include "convnet/checkpoint/safetensors.h"
#include "convnet/show/picture.h"

namespace convnet {

struct FilterStyle {
  bool rgb = true;         ///< filters of three channels are in colour; else a grey tile a channel
  bool normalize = false;  ///< bring each filter to mean 0 and variance 1 first
  bool from_yuv = false;   ///< the three channels are Y, U and V
  int channels =
      0;  ///< channels of a fully-connected layer's input; 0: three or one, whichever makes squares
  int local_plane = 0;  ///< for a local layer: draws the filters of this output map at all positions
  int side = 2048;      ///< most pixels of the picture's width and height
  int most_channels = 0, most_filters = 0;  ///< of those that are drawn; 0: as many as fit
  bool own_range = false;                   ///< each filter from black to white by its own weights
};

struct FilterPicture {
  Picture picture;
  std::string caption;  ///< "64 filters of 32x5x5, a channel beside the other", and what was left out
};

/// Draws all filters in a near-square grid, the smallest weight black, the largest white (or in colour).
/// Weights are as in checkpoints: conv (O,I,H,W), fc (O,I), sfc (parts,O,I), local (Y,X,O,I,H,W). Filters
/// that do not fit are left out, and the caption says so. Throws InputError, with a message that follows the
/// tensor's name, if the weights are no filters or not finite.
FilterPicture draw_filters(const NamedTensor& weights, const FilterStyle& style = {});

}  // namespace convnet
