// The best test of a run, by the cost that --keep-best and --patience watch.
#pragma once

#include <string>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/graph/graph.h"

namespace convnet {

/// The name that a link to the next best checkpoint has before it gets that name.
inline constexpr const char* kBestLink = "best.safetensors.new";

/// One value of a cost layer.
struct WatchedCost {
  std::string layer;
  std::size_t value = 0;  ///< index into what the layer prints

  /// Returns this value of a test.
  double of(const CostSums& test, const Graph& graph) const;
  /// Returns "top-1 error".
  std::string value_name(const Graph& graph) const;
  /// Returns "logprob (top-1 error)".
  std::string text(const Graph& graph) const;
  /// Returns "logprob.1", for checkpoints.
  std::string key() const { return layer + "." + std::to_string(value); }
};

/// Finds the value that --keep-best names: LAYER, LAYER.cost or LAYER.error. LAYER alone means the error if
/// the layer prints one, else the cost. "" means the first cost layer. Throws InputError, with the nearest
/// name, if there is no such layer or value.
WatchedCost find_watched_cost(const std::string& text, const Graph& graph);

/// Takes a test that came after `at` into account. Returns whether it is the best so far.
bool note_test(BestTest& best, const WatchedCost& watched, double value, const Position& at);

/// Makes best.safetensors in `folder` a hard link to `checkpoint`, or a copy of it where there are no links,
/// durably. Makes room for a copy by save_making_room() and returns its warning. Throws RunError.
std::string keep_as_best(const std::string& folder, const std::string& checkpoint);

}  // namespace convnet
