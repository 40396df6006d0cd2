// The facts of a layer that the graph and the plan use without knowing its type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ops/neuron.h"

namespace convnet {

/// The function that a layer computes, if it is one that the cost above can differentiate with its own work.
enum class LayerFunction { other, logistic, softmax };

/// The tensors of the forward pass that a layer's backward reads.
enum class BackwardReads { neither, inputs, output };

/// The work of a neuron above it that a layer can do, if it is the neuron's only input and the neuron is its
/// only user.
enum class FusesNeuron {
  no,
  relu,                ///< this layer computes max(0,x); the relu's backward still masks the gradient
  relu_and_gradient,   ///< this layer also masks the gradient; the relu's backward passes it on unchanged
  quick_and_gradient,  ///< this layer does the same for all neurons that are is_quick()
};
/// Returns whether the layer multiplies the gradient by the slope of the neuron that it fuses.
constexpr bool fuses_gradient(FusesNeuron fuses) {
  return fuses == FusesNeuron::relu_and_gradient || fuses == FusesNeuron::quick_and_gradient;
}

/// The division of a layer over devices (model parallelism). A layer that can be divided overrides
/// Layer::part().
enum class Division {
  none,
  outputs,    ///< with parallel=model each device of the gpu= line computes some of the outputs
  as_inputs,  ///< element-wise: each part reads the same part of the inputs
};

/// The images on which a layer's output for one image depends in training.
enum class SeesImages {
  own,         ///< only that image
  of_pass,     ///< all images of its replicas in the same pass; equals one device if a minibatch is one pass
  of_replica,  ///< all images of the same replica; equals one device if there is one replica
};

/// The labels of a cost, which are its first input.
enum class CostLabels {
  none,     ///< the cost has no labels; its only input is the layer below
  classes,  ///< the class of each image, an integer
  numbers,  ///< a number for each output of the layer below
};

struct DataFacts {
  int matrix = 0;                  ///< index of the provider's matrix
  std::int64_t label_classes = 0;  ///< number of classes, if the matrix holds class labels; else 0
};

struct CostFacts {
  int values = 1;                     ///< number of accumulators in the costs buffer
  double coeff = 0;                   ///< weight of the cost in the gradient
  std::vector<std::string> children;  ///< costs whose accumulators are added to this one's
  CostLabels labels = CostLabels::none;
  /// The function of a layer below for which the cost can compute the gradient of both together.
  LayerFunction differentiates = LayerFunction::other;
};

/// The immutable facts of a layer. The defaults are right for every layer with a gradient that reads neither
/// its inputs nor its output in backward, but they allow no optimisations. check_facts() lists the
/// combinations that make no sense.
struct LayerFacts {
  LayerFunction function = LayerFunction::other;
  Neuron neuron = {};  ///< the function of a layer that is an element-wise function; else ident
  FusesNeuron fuses_neuron = FusesNeuron::no;
  Division division = Division::none;
  SeesImages sees = SeesImages::own;
  bool differentiable = true;  ///< false: backward does nothing, and no weights may lie below

  // Memory.
  BackwardReads backward_reads = BackwardReads::neither;
  bool in_place = false;           ///< the output may overwrite input 0
  bool backward_in_place = false;  ///< the gradient of input 0 may overwrite the gradient of the output
  bool cheap = false;  ///< --conserve-mem may compute the output again in backward instead of keeping it

  /// Why the output is a vector where maps are to be expected: the end of a message; "" if it is not.
  std::string flat_because = {};

  std::optional<DataFacts> data = {};  ///< data layers only
  std::optional<CostFacts> cost = {};  ///< cost layers only
};

/// Throws std::logic_error if the facts contradict each other, which is a bug of the layer type, never a
/// mistake of the user.
///
/// - A layer is a data layer, a cost, or neither.
/// - Data layers and costs have the function LayerFunction::other, are not divided or recomputed, do not work
///   in place, and have no weights.
/// - A data layer has no inputs to read in backward, and a cost has no output to read.
/// - in_place excludes BackwardReads::inputs, because the input has been overwritten when backward runs.
/// - A layer that fuses a neuron does not read its own output in backward, because the neuron has changed it.
/// - The function of a layer that fuses a neuron is LayerFunction::other, because Node::fused cannot tell two
///   rewrites apart.
/// - A layer without a gradient (differentiable = false) has no weights, and no facts about its backward.
/// - Division::outputs is for layers with weights, Division::as_inputs for layers without.
void check_facts(const LayerFacts& facts, bool has_weights);

}  // namespace convnet
