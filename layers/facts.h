// The facts of a layer that the graph and the plan use without knowing its type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace convnet {

/// The function a layer computes, where the layer above or below can join it with its own operations.
enum class LayerFunction { other, relu, logistic, softmax };

/// The tensors of the forward pass that a layer's backward reads.
enum class BackwardReads { neither, inputs, output };

/// The part of a relu above it that a layer can take over, if it is the relu's only input and the relu its
/// only user.
enum class FusesRelu {
  no,
  forward,               ///< the relu keeps its backward
  forward_and_gradient,  ///< the relu's backward passes the gradient on: this layer's masks it
};

/// How a layer can be divided over devices (model parallelism). A layer that can be overrides Layer::part.
enum class Division {
  none,
  outputs,    ///< with parallel=model each device of the gpu= line computes some of the outputs
  as_inputs,  ///< element-wise: each part lies above the same part of the inputs
};

/// The images whose values a training forward's output for an image depends on, besides that image.
enum class SeesImages {
  own,
  of_pass,     ///< all of its replicas' images in a pass: what one device computes if a minibatch is one pass
  of_replica,  ///< those of the same replica: what one device computes if there is one replica
};

/// The first input of a cost.
enum class CostLabels {
  none,     ///< the cost has a single input, which is no label
  classes,  ///< the class of each image, an integer
  numbers,  ///< a number for each output of the layer below
};

struct DataFacts {
  int matrix = 0;                  ///< index of the provider's matrix
  std::int64_t label_classes = 0;  ///< number of classes, if the matrix holds class labels; else 0
};

struct CostFacts {
  int values = 1;                     ///< number of accumulators
  double coeff = 0;                   ///< weight of the cost in the gradient
  std::vector<std::string> children;  ///< costs whose accumulators are added to this one's
  CostLabels labels = CostLabels::none;
  /// Function of the layer below, if the cost can differentiate itself and that function at once.
  LayerFunction differentiates = LayerFunction::other;
};

/// The immutable facts of a layer. The default ones are true of every layer with a gradient, but let the
/// plan and the graph improve nothing. check_facts() lists the combinations that make no sense.
struct LayerFacts {
  LayerFunction function = LayerFunction::other;
  FusesRelu fuses_relu = FusesRelu::no;
  Division division = Division::none;
  SeesImages sees = SeesImages::own;
  bool differentiable = true;  ///< false: backward does nothing, and no weights may lie below

  // Memory.
  BackwardReads backward_reads = BackwardReads::neither;
  bool in_place = false;           ///< the output may be written over input 0
  bool backward_in_place = false;  ///< the gradient of input 0 may be written over the output's gradient
  bool cheap = false;  ///< --conserve-mem may compute the output again in backward instead of keeping it

  std::optional<DataFacts> data = {};  ///< data layers only
  std::optional<CostFacts> cost = {};  ///< cost layers only
};

/// Throws std::logic_error if the facts contradict each other: they are declared by a layer type, never by
/// the user.
///
/// - A layer is a data layer, a cost, or neither. A data layer and a cost are no function of LayerFunction,
///   are not divided, not recomputed, work not in place, and have no weights; a data layer has no inputs to
///   read in backward, and a cost has no output to read.
/// - in_place excludes BackwardReads::inputs, because the input is gone when backward runs.
/// - A layer that fuses a relu does not read its own output in backward, because the relu has changed it, and
///   is itself no function that a neighbour joins, because Node::fused says only that one rewrite applies.
/// - A layer without a gradient (differentiable = false) has no weights, and no facts about its backward.
/// - Division::outputs is for layers with weights, Division::as_inputs for layers without.
void check_facts(const LayerFacts& facts, bool has_weights);

}  // namespace convnet
