// Everything that `convnet show` knows about a checkpoint, as one HTML file.
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

/// Makes a self-contained page: pictures are embedded, and it needs no network. All its text is escaped.
/// `smooth` as in CurveRequest. Throws InputError for a damaged history or weights
/// that are not the net's.
std::string html_page(const Run& run, const PagePredictions& tested, int smooth);

}  // namespace convnet
