// Everything that `convnet show` knows about a checkpoint, as one HTML file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convnet/show/image_predictions.h"
#include "convnet/show/run.h"

namespace convnet {

/// A net's predictions for the test range, or the reason why there are none.
struct PagePredictions {
  std::optional<ImagePredictions> predictions;
  std::optional<TargetScores> scores = {};  ///< of tags and numbers
  std::string softmax = {};                 ///< of the predictions, as in find_classifier_of()
  bool only_errors = false;                 ///< show images whose best class is wrong
  std::string missing;                      ///< the reason why there are none
};

/// All pages begin so (OutputOption::begins).
inline constexpr const char* kPageBegins = "<!DOCTYPE html>";
/// Makes a self-contained page, with embedded pictures, that needs no network. All text in it is escaped.
/// `smooth` is CurveRequest::smooth. Throws InputError if the history is damaged or the weights do not fit
/// the net.
std::string html_page(const Run& run, const PagePredictions& tested, int smooth);

/// A run beside others.
struct NamedRun {
  std::string name;  ///< as its user gave it
  const Run* run = nullptr;
  int smooth = 1;  ///< as in CurveRequest
};
/// Makes such a page for several runs: a chart for each value with the tests of all runs, and the differences
/// between their options and files. Throws InputError if a history is damaged.
std::string html_page_of_runs(const std::vector<NamedRun>& runs);

}  // namespace convnet
