// The curves, filters and files of a run that --tensorboard shows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convnet/net/net.h"
#include "convnet/net/net_files.h"
#include "convnet/train/board_folder.h"
#include "convnet/train/event_file.h"

namespace convnet {

/// Steps are minibatches since the start of training, as checkpoints count them: a run that goes on from a
/// checkpoint goes on in the same curves, and what was written after that checkpoint is dropped.
class TensorBoard {
 public:
  /// Begins an event file in `folder`, which is kept from then on, with both files' text. `done` is the
  /// number of minibatches trained so far. Layers whose filters make no picture are named on stderr. Throws
  /// RunError. Keeps a reference to `net`. Several processes make the same calls, because weights are read
  /// together; `folder` is null in all but the first, and these write nothing.
  TensorBoard(BoardFolder* folder, const Net& net, const NetFiles& files, std::uint64_t done);

  /// Adds costs and learning rates of a trained batch.
  void trained(std::uint64_t done, const CostSums& costs, const TrainingProgress& progress);
  /// Adds costs of a test and pictures of the first layers' filters.
  void tested(std::uint64_t done, const CostSums& costs);

 private:
  void add_costs(std::int64_t step, const CostSums& costs, const std::string& kind);

  const Net& net_;
  std::vector<const WeightBuffers*> filters_;  ///< matrices of the first layers
  std::optional<EventFile> events_;            ///< of the first process
};

}  // namespace convnet
