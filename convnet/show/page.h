// Everything `convnet show` has of a checkpoint, as one HTML file.
#pragma once

#include <optional>
#include <string>

#include "convnet/show/image_predictions.h"
#include "convnet/show/run.h"

namespace convnet {

/// A net's predictions for the test range, or the reason why there are none.
struct PagePredictions {
  std::optional<ImagePredictions> predictions;
  bool only_errors = false;  ///< show images whose best class is wrong
  std::string missing;       ///< why there are none
};

/// A page that needs nothing else: pictures are inside, and it asks no network. All text of it is escaped.
/// `smooth` as in CurveRequest. Throws InputError for a damaged history or weights
/// that are not the net's.
std::string html_page(const Run& run, const PagePredictions& tested, int smooth);

}  // namespace convnet
