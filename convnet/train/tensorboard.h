// Writes the curves, filters and files of a run for --tensorboard.
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

/// Writes an event file for TensorBoard. Steps are minibatches since the start of training. A run that goes
/// on from a checkpoint continues the same curves, and events after that checkpoint are dropped.
class TensorBoard {
 public:
  /// Begins an event file with the text of both files in `folder`, and calls BoardFolder::keep(). `done` is
  /// the number of minibatches trained so far. Names layers on stderr whose filters cannot be drawn. Throws
  /// RunError. Keeps a reference to `net`. Several processes make the same calls, because they read weights
  /// together; `folder` is null in all but the first, and those write nothing.
  TensorBoard(BoardFolder* folder, const Net& net, const NetFiles& files, std::uint64_t done);

  /// Adds costs and learning rates of a trained batch, and the share of its time that steps waited for data,
  /// if that is worth a word.
  void trained(std::uint64_t done, const CostSums& costs, const TrainingProgress& progress,
               const std::optional<double>& waiting_for_data);
  /// Adds costs of a test and pictures of the first layers' filters.
  void tested(std::uint64_t done, const CostSums& costs);

 private:
  /// Writes the events so far to the file. Warns once if somebody has removed the file, because training can
  /// go on without curves.
  void flush();
  void add_costs(std::int64_t step, const CostSums& costs, const std::string& kind);

  const Net& net_;
  std::vector<const WeightBuffers*> filters_;  ///< matrices of the first layers
  std::optional<EventFile> events_;            ///< nullopt in all processes but the first
  bool lost_ = false;                          ///< the file was removed, and a warning has said so
};

}  // namespace convnet
