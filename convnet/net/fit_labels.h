// Gives nets that come with the program the end that the labels of a data set need. They end in a softmax and
// cost.logreg, for images of one class each:
//
//   [probs]                       tags: neuron=logistic and cost.bce      numbers: cost.sum2 of a difference
//   type=softmax
//   inputs=fc
//   [logprob]
//   type=cost.logreg
//   inputs=labels,probs
#pragma once

#include <optional>
#include <string>

#include "convnet/config/ini.h"
#include "providers/provider.h"

namespace convnet {

/// The kind of labels that a net ends for.
struct LabelFit {
  LabelKind kind = LabelKind::classes;  ///< never automatic
  /// The mean and the standard deviation of all numbers. The last layer with weights answers in their units,
  /// so that usual learning rates fit numbers of any size.
  double mean = 0, deviation = 1;
  /// A warning if one of several numbers has a much smaller deviation, and so hardly counts; else "".
  std::string warning = {};
};

/// Returns the fit for a data set. Reads the numbers of the images of `range`, but no pixels where the
/// provider can read numbers alone; without a range, numbers are taken for ones of mean 0 and deviation 1.
/// Throws like Provider::read().
LabelFit label_fit(const Provider& provider, const std::optional<BatchRange>& range);

/// Returns the fit that fit_definition() gave a definition.
LabelFit label_fit(const IniFile& definition);

/// Puts an end for tags or numbers in the place of each softmax with cost.logreg that reads the data set's
/// classes. Returns what the net ends in now, for a note; "" if it stays as it is.
std::string fit_definition(IniFile& definition, const LabelFit& fit);

/// Removes from the parameters of a net what only its cost.logreg had, if `definition` has another cost now.
void fit_parameters(IniFile& parameters, const IniFile& definition);

}  // namespace convnet
