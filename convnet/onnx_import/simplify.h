// Simplifies a sketch: layers that another one can do as well are taken in by it.
#pragma once

#include <vector>

#include "convnet/onnx_import/translate.h"

namespace convnet {

/// What is done to the numbers of an image before the first layer sees them: x * scale + shift. `scale` has a
/// number for each channel, `shift` one for each channel or for each number of an image.
struct ImagePreparation {
  std::vector<float> scale, shift;
};

/// Simplifies the net, until each layer is one of the program. Factors and terms of maps go into the weights
/// of the layer below them, those of the images, if `prepares`, into the returned preparation. Terms of
/// single numbers of the images, which no layer adds, go there in any case. Throws InputError naming each
/// operator of which something is left that no layer does; messages begin with `file`.
ImagePreparation simplify(TranslatedNet& translated, const std::string& file, bool prepares);

/// Returns for each layer how often it is read by layers that the output needs; the output counts as read
/// once.
std::vector<int> count_users(const NetSketch& net, SketchId output);

}  // namespace convnet
