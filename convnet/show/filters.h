// The weights of a layer as a picture.
#pragma once

#include <string>

#include "convnet/checkpoint/safetensors.h"
#include "convnet/show/picture.h"

namespace convnet {

/// How filters are drawn.
struct FilterStyle {
  bool rgb = true;         ///< draw filters of three channels in colour; else each channel is a grey tile
  bool normalize = false;  ///< bring each filter to mean 0 and variance 1 first
  bool from_yuv = false;   ///< the three channels are Y, U and V
  /// Channels of the input of a fully-connected layer; 0: three or one, whichever makes filters square.
  int channels = 0;
  int local_plane = 0;  ///< for a local layer: draw the filters of this output map at all positions
  int side = 2048;      ///< largest width and height of the picture, pixels
  int most_channels = 0, most_filters = 0;  ///< draw at most this many; 0: as many as fit
  Color gaps = kWhite;     ///< between filters; no pixel of a filter has it, unless it is white
  bool own_range = false;  ///< scale each filter by its own smallest and largest weight
};

/// The drawing of a layer's filters, and the text below it.
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
