// Checkpoints: where training stands, in safetensors files named by epoch and batch.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convnet/checkpoint/safetensors.h"
#include "convnet/config/params.h"
#include "providers/provider.h"

namespace convnet {

/// How far training has come. (0, 0): not begun.
struct Position {
  int epoch = 0, batch = 0;
  std::int64_t minibatches = 0;  ///< 0: the batch is finished; else that many of its minibatches are
  std::int64_t images = 0;       ///< of the unfinished batch, trained so far
  /// "3.17.safetensors", or "3.17-0042.safetensors" for a batch that is not finished.
  std::string file_name() const;
  /// The position a checkpoint's file name says; nullopt for other files.
  static std::optional<Position> of_file_name(const std::string& name);
  /// Natural order: an unfinished batch comes before the finished one.
  std::strong_ordering operator<=>(const Position& other) const;
  bool operator==(const Position& other) const { return (*this <=> other) == 0; }
};

/// Sums of a batch's costs: by cost layer in order of the file, the values in printed order.
struct CostSums {
  std::int64_t images = 0;
  std::vector<std::pair<std::string, std::vector<double>>> sums;
};

/// One point of a run's history: a batch of training or a test, or in the older part of a long history
/// several of them in a row (history.h).
struct HistoryEntry {
  int epoch = 0, batch = 0;  ///< training batch it came after; `batch` of a test is the training batch too
  int test_batch = -1;       ///< first tested batch; -1 for training
  CostSums costs;            ///< of all `count` together
  std::int64_t count = 1;    ///< batches or tests; the names above are those of the last one
};

/// An update whose period spans several minibatches: what it has seen since the last.
struct UpdateWindow {
  std::int64_t minibatches = 0, images = 0;
};
/// By the name of the matrix.
using UpdateWindows = std::map<std::string, UpdateWindow>;

/// Everything but the tensors.
struct TrainingState {
  Position position;
  std::uint64_t iteration = 0;   ///< minibatches since the start of training
  std::int64_t test_cursor = 0;  ///< tests done so far: which test batch is next
  bool test_due = false;         ///< the batch is finished, but its test was not
  CostSums partial;              ///< of the unfinished batch
  double partial_seconds = 0;
  UpdateWindows windows;
  std::vector<HistoryEntry> history;
};

/// A checkpoint as read or to be written.
struct Checkpoint {
  std::string file;  ///< path it was read from
  TensorFile tensors;
  TrainingState state;
  OptionTexts options;
  std::string definition_path, definition_text;  ///< of the layer definition file, as written
  std::string parameters_path, parameters_text;
  std::map<std::string, std::string> algorithms;  ///< what the libraries chose, by operation
  std::vector<MatrixInfo> matrices;               ///< of the data set; none in older checkpoints
};

/// Fills the metadata of checkpoint.tensors and writes it into `folder`; then removes all but the newest
/// `keep` and this one. Throws RunError.
void write_checkpoint(const std::string& folder, Checkpoint& checkpoint, int keep);

/// The checkpoint that the tensors and metadata of `file` are. Throws InputError naming what is wrong.
Checkpoint parse_checkpoint(const std::string& file, TensorFile tensors);

/// The path of a checkpoint: that of the file, or of a folder's newest. Throws InputError if there is none.
std::string find_checkpoint(const std::string& file_or_folder);

/// Reads a file, or a folder's newest checkpoint. Throws InputError naming the file, what is wrong, and the
/// newest sound checkpoint before it, if there is one.
Checkpoint read_checkpoint(const std::string& file_or_folder);

/// The newest checkpoint in a folder; nullopt if there is none or no folder. Throws InputError if the folder
/// cannot be listed.
std::optional<std::string> newest_checkpoint(const std::string& folder);

/// The folder that later checkpoints were moved to, and their number.
struct Abandoned {
  std::string folder;  ///< "" if there were none
  std::size_t checkpoints = 0;
};
/// Moves the checkpoints in `folder` that come after `position` into a new folder there, so that a run that
/// goes on from `position` neither removes them nor is taken for their successor. Returns that folder and how
/// many they are. Throws InputError or RunError.
Abandoned move_later_checkpoints(const std::string& folder, const Position& position);

}  // namespace convnet
