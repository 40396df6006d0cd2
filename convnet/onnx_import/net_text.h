// Writes a simplified sketch as the two files of a net.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convnet/onnx_import/net_sketch.h"
#include "convnet/onnx_import/translate.h"

namespace convnet {

/// The cost at the end of a net, which decides what its outputs are compared with.
enum class ImportedCost {
  classes,  ///< cost.logreg of a softmax
  tags,     ///< cost.bce of logistic outputs, with a number for each
  numbers   ///< cost.sum2 of what the outputs differ from numbers
};

struct NetText {
  std::string definition, parameters;
  ImportedCost cost = ImportedCost::classes;
  std::int64_t outputs = 0;  ///< classes, tags or numbers
  /// Whether the net ends in a softmax that the model does not have.
  bool adds_softmax = false;
  /// Weights by the names of their layers, then by those of the matrices without that of an input.
  std::map<std::string, std::map<std::string, SketchMatrix>> matrices;
};

/// Writes the net. `head` is a comment for both files, lines without #. `predicts_numbers` says that the
/// outputs are numbers, not scores of classes; logistic outputs are tags all the same.
NetText net_text(const TranslatedNet& translated, const std::vector<std::string>& head,
                 bool predicts_numbers);

}  // namespace convnet
