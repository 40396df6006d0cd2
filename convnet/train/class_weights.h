// classWeights=balanced of cost.logreg: weights of classes from the labels of the training images.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convnet/train/requested_run.h"

namespace convnet {

/// Returns how many images of `range` have each class of a matrix of labels. Reads no pixels where the
/// provider can read labels alone. Images without a label (-1) are not counted. Throws like Provider::read().
std::vector<std::int64_t> count_labels(const Provider& provider, const BatchRange& range, std::size_t matrix);

/// Returns images / (classes * images of the class) for each class that has images, where `classes` is the
/// number of these classes, and 1 for the others.
std::vector<double> balanced_weights(const std::vector<std::int64_t>& counts);

/// Gives each classWeights=balanced in the parameters the weights that the checkpoint has for it, so that a
/// run keeps them.
void keep_class_weights(IniFile& parameters, const Checkpoint& checkpoint);

/// Measures the weights of each classWeights=balanced that has none yet, and writes them into the
/// parameters. `graph` is that of the run. Returns a note about them; "" if there was nothing to measure.
std::string measure_class_weights(RequestedRun& run, const Graph& graph);

}  // namespace convnet
