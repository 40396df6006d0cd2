// What --tensorboard shows of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convnet/train/checkpoint.h"
#include "convnet/train/event_file.h"
#include "convnet/train/net.h"
#include "convnet/train/run_folder.h"

namespace convnet {

/// Throws InputError if the folder `board` has the curves of another run than the one that goes on in `run`:
/// from `resumed`, or if there is none, from its start. Curves may be gone on with by a run that resumes the
/// one that wrote them, by the same run after it was killed before its first checkpoint, and where the folder
/// of that run was moved.
void check_board_owner(const std::string& board, const RunFolder& run,
                       const std::optional<Checkpoint>& resumed);

/// Steps are minibatches since the start of training, as checkpoints count them: a run that goes on from a
/// checkpoint goes on in the same curves, and what was written after that checkpoint is dropped.
class TensorBoard {
 public:
  /// A new event file in `folder`, with both files' text, and a note that the folder belongs to the run that
  /// saves its checkpoints in `run`. `done`: minibatches trained so far. Layers whose filters make no picture
  /// are named on stderr. Throws RunError. Keeps a reference to `net`.
  TensorBoard(const std::string& folder, const Net& net, const NetFiles& files, std::uint64_t done,
              const std::string& run);

  /// A batch was trained, at `progress` of the run in [0,1]: costs and learning rates.
  void trained(std::uint64_t done, const CostSums& costs, double progress);
  /// A test: costs and pictures of the first layers' filters.
  void tested(std::uint64_t done, const CostSums& costs);

 private:
  void add_costs(std::int64_t step, const CostSums& costs, const std::string& kind);

  const Net& net_;
  IniFile parameters_;
  std::vector<const WeightBuffers*> filters_;  ///< matrices of the first layers
  EventFile events_;
};

}  // namespace convnet
