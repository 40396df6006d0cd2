// The names and values of a net's tensors in checkpoints, and PyTorch's names for them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/graph/tensor_names.h"
#include "convnet/graph/whole_layers.h"
#include "convnet/plan/plan_set.h"
#include "convnet/runtime/executor.h"

namespace convnet {

/// Returns the suffix of the squares that a rule keeps. They differ, so that a checkpoint shows by which
/// optimiser it was trained.
inline const char* squares_suffix(UpdateRule rule) {
  return rule == UpdateRule::rmsprop ? kRmsSquaresSuffix : kAdamSquaresSuffix;
}

/// Returns a matrix that a net needs from the tensors of the checkpoint `file`. Throws InputError naming
/// both if it is missing, has other dims, or holds numbers that are not finite.
const std::vector<float>& matrix_of(const TensorFile& tensors, const std::string& file,
                                    const std::string& name, const Dims& dims);

/// Returns the values of a layer's matrix that tests of the checkpoint use: its running averages if there are
/// any, else the weights. Throws as matrix_of().
const std::vector<float>& tested_matrix(const Checkpoint& checkpoint, const std::string& layer,
                                        const WeightSpec& spec);

/// Returns the name that PyTorch gives to a matrix of a module with the name of the layer, like
/// "conv1.weight" for "conv1.weights.data"; "" if it has none. `first_input` is false for the weights of
/// further inputs, which modules of PyTorch do not have.
std::string pytorch_name(const std::string& layer, const std::string& matrix, bool first_input);

/// The weights of a net for programs that know PyTorch's names.
struct PytorchWeights {
  TensorFile file;
  std::vector<std::string> unnamed;  ///< tensors for which PyTorch has no name; they have the checkpoint's
};
/// Makes them from a checkpoint and its net, of which no layer may be divided. Throws as matrix_of(), and
/// InputError if two would have one name.
PytorchWeights pytorch_weights(const Graph& graph, const Checkpoint& checkpoint);

/// Sums of the magnitudes of a whole matrix and of its increments, and the number of its elements.
struct Magnitudes {
  double weights = 0, increments = 0, count = 0;
};
/// Returns the magnitudes of every matrix, by its name. All processes call it together: each sums what its
/// own devices have, and only sums are sent.
std::map<std::string, Magnitudes> magnitudes(const Executor& executor, const PlanSet& plans);

/// Returns the numbers of a matrix from those of the whole one that it may be a part of.
std::vector<float> part_of(const WholeMatrix& whole, const std::vector<float>& values);

/// Builds the net of a checkpoint. It has no nodes for an older checkpoint, which did not note what its data
/// looks like.
Graph stored_graph(const Checkpoint& checkpoint);

/// Throws InputError as Net::init_from() would for a net with these plans, and warns as it does of pixels.
void check_initial_weights(const Graph& graph, const PlanSet& plans, const std::string& file_or_folder,
                           bool pixel_std);

/// The pixels that a net with some weights expects.
enum class PixelScale {
  whole,    ///< not divided, as the file says: a checkpoint, or one that convnet export wrote
  divided,  ///< divided by their standard deviations, as it says
  usual,    ///< divided as a rule: the weights are another program's, and the file does not say it
  unknown   ///< an ONNX model, which may divide pixels itself
};
/// Returns what a file of initial weights says. Throws as Net::init_from() does.
PixelScale pixel_scale(const std::string& file_or_folder);

}  // namespace convnet
