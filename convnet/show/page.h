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
  bool only_errors = false;  ///< show images whose best class is wrong
  std::string missing;       ///< why there are none
};

/// Makes a self-contained page: pictures are embedded, and it needs no network. All its text is escaped.
/// `smooth` as in CurveRequest. Throws InputError for a damaged history or weights
/// that are not the net's.
std::string html_page(const Run& run, const PagePredictions& tested, int smooth);

/// A run beside others.
struct NamedRun {
  std::string name;  ///< as its user gave it
  const Run* run = nullptr;
  int smooth = 1;  ///< as in CurveRequest
};
/// Makes such a page of several runs: their tests in one chart for each value, and what differs between them.
/// Throws InputError for a damaged history.
std::string html_page_of_runs(const std::vector<NamedRun>& runs);

}  // namespace convnet
