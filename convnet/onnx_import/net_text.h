// Writes a simplified sketch as the two files of a net.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convnet/onnx_import/net_sketch.h"
#include "convnet/onnx_import/translate.h"
#include "providers/provider.h"

namespace convnet {

struct NetText {
  std::string definition, parameters;
  /// Says what the outputs are compared with, never automatic: classes by cost.logreg of a softmax, tags by
  /// cost.bce of logistic outputs, or numbers by cost.sum2 of the differences.
  LabelKind labels = LabelKind::classes;
  std::int64_t outputs = 0;  ///< classes, tags or numbers
  /// Whether the net ends in a softmax that the model does not have.
  bool adds_softmax = false;
  bool drops_logarithm = false;  ///< the net ends in a softmax where the model has the logarithm of one
  /// Weights by the names of their layers, then by those of the matrices without that of an input.
  std::map<std::string, std::map<std::string, SketchMatrix>> matrices;
};

/// Writes the net. `head` is a comment for both files, one line without #. `predicts_numbers` says that the
/// outputs are numbers, not scores of classes; logistic outputs are tags all the same.
NetText net_text(const TranslatedNet& translated, const std::string& head, bool predicts_numbers);

}  // namespace convnet
