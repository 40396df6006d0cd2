// Checkpoints: the state of training, in safetensors files named by epoch and batch.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convnet/checkpoint/safetensors.h"
#include "convnet/config/options.h"
#include "providers/provider.h"

namespace convnet {

/// The progress of training. (0, 0) means that it has not begun.
struct Position {
  int epoch = 0, batch = 0;
  std::int64_t minibatches = 0;  ///< 0: the batch is finished; else the number of its finished minibatches
  std::int64_t images = 0;       ///< images of the unfinished batch trained so far
  /// "3.17.safetensors", or "3.17-0042.safetensors" for a batch that is not finished.
  std::string file_name() const;
  /// Returns the position in a checkpoint's file name; nullopt for other files.
  static std::optional<Position> of_file_name(const std::string& name);
  /// Orders positions by the progress of training: an unfinished batch comes before the same batch finished.
  std::strong_ordering operator<=>(const Position& other) const;
  bool operator==(const Position& other) const { return (*this <=> other) == 0; }
};

/// Sums of costs over images: for each cost layer, in the order of the file, its values in the order in which
/// they are printed.
struct CostSums {
  std::int64_t images = 0;
  std::vector<std::pair<std::string, std::vector<double>>> sums;
};

/// One point of a run's history: a batch of training or a test, or in the older part of a long history
/// several of them in a row (history.h).
struct HistoryEntry {
  int epoch = 0, batch = 0;  ///< the training batch, or for a test the training batch before it
  int test_batch = -1;       ///< first tested batch; -1 for training
  CostSums costs;            ///< sums over all `count` entries
  std::int64_t count = 1;    ///< batches or tests added up; the numbers above are those of the last one
};

/// Progress of a matrix's updates that lasts longer than a minibatch.
struct UpdateWindow {
  std::int64_t minibatches = 0,
               images = 0;   ///< since the last update, if its period spans several minibatches
  std::int64_t updates = 0;  ///< AdamW: updates made so far

  /// Returns whether gradients have been added up since the last update.
  bool open() const { return minibatches > 0; }
};
/// Update windows by the name of the matrix; matrices without progress of this kind have none.
using UpdateWindows = std::map<std::string, UpdateWindow>;
/// Sets the window of a matrix; one that says nothing has no entry.
void set_window(UpdateWindows& windows, const std::string& matrix, const UpdateWindow& window);

/// The test of a run with the lowest value of the cost that it watches.
struct BestTest {
  double value = 0;
  int epoch = 0, batch = 0;      ///< training batch it came after; epoch 0: there was no test yet
  std::int64_t tests_since = 0;  ///< tests after it
  /// The WatchedCost::key() of the value that the run watched; "" in older checkpoints.
  std::string watched = {};
};

/// A change of the factor that all learning rates have.
struct RateChange {
  int epoch = 0, batch = 0;  ///< training batch that it came after
  double factor = 1;         ///< the new factor, in (0,1]
  bool operator==(const RateChange&) const = default;
};

/// The learning rates' drops because tests got no better (--plateau).
struct Plateau {
  std::int64_t tests_since = 0;     ///< tests since the best one or the last drop
  std::vector<RateChange> changes;  ///< from the start of training on
  /// Returns the factor of all learning rates.
  double factor() const { return changes.empty() ? 1 : changes.back().factor; }
  bool operator==(const Plateau&) const = default;
};

/// The state of training in a checkpoint, without the tensors.
struct TrainingState {
  Position position;
  std::uint64_t iteration = 0;   ///< minibatches since the start of training
  std::int64_t test_cursor = 0;  ///< tests done so far; it decides which test batch is next
  bool test_due = false;         ///< the batch is finished, but its test was not
  CostSums partial;              ///< sums over the unfinished batch so far
  double partial_seconds = 0;
  UpdateWindows windows;
  BestTest best;
  Plateau plateau;
  std::vector<HistoryEntry> history;

  /// Returns whether the best test is the one at this position.
  bool follows_best_test() const {
    return position.minibatches == 0 && best.epoch == position.epoch && best.batch == position.batch &&
           !test_due;
  }
};

/// A checkpoint that was read or is to be written.
struct Checkpoint {
  std::string file;  ///< path it was read from
  TensorFile tensors;
  TrainingState state;
  OptionTexts options;
  std::string definition_path, definition_text;  ///< path and text of the layer definition file
  std::string parameters_path, parameters_text;
  std::string placement;  ///< placement_text() of the layers if a search has placed them; else empty
  std::map<std::string, std::string> algorithms;  ///< the libraries' choices, by operation
  std::vector<MatrixInfo> matrices;  ///< description of the data set's matrices; empty in older checkpoints
  /// Batches that the run used, even if its options name none; nullopt in older checkpoints.
  std::optional<BatchRange> train_range, test_range;
  std::int64_t train_images = 0;  ///< images of the training range; 0 in older checkpoints
};

/// Fills in the metadata of checkpoint.tensors and writes them into `folder`; then removes all checkpoints
/// there except the newest `keep` and this one. If the disk is full, makes room by save_making_room() and
/// returns its warning. Throws RunError, before anything is written, if read_checkpoint() or Net::load()
/// would refuse the file. With CONVNET_CHECKS it is read again before others are removed.
std::string write_checkpoint(const std::string& folder, Checkpoint& checkpoint, int keep);

/// Calls `save`, which writes the checkpoint `file` into `folder`. As long as that throws DiskFullError,
/// removes the oldest checkpoint that is older than the newest one that can be read, and tries again. Returns
/// a line that names the removed checkpoints, "" for none. If there are none left to remove, throws RunError
/// with the cause and the newest checkpoint that can be read.
std::string save_making_room(const std::string& folder, const std::string& file,
                             const std::function<void()>& save);

/// Makes a checkpoint from the tensors and metadata of `file`. Throws InputError naming what is wrong.
Checkpoint parse_checkpoint(const std::string& file, TensorFile tensors);

/// Returns the folder that the checkpoint `file` is in; "." for a bare name.
std::string folder_of(const std::string& file);

/// Returns the path of a checkpoint: the file, or a folder's newest. Throws InputError if there is none, and
/// RunError if the folder cannot be listed or the path cannot be looked up.
std::string find_checkpoint(const std::string& file_or_folder);

/// Reads a file, or a folder's newest checkpoint. Throws InputError naming the file, what is wrong, and the
/// newest sound checkpoint before it, if there is one. Throws RunError as find_checkpoint() does.
Checkpoint read_checkpoint(const std::string& file_or_folder);

/// Puts the statistics that a run of this provider measured when it began into a checkpoint's tensors.
/// `image` holds the dims of an image.
void save_statistics(const PixelStatistics& statistics, const std::string& provider, const Dims& image,
                     TensorFile& into);

/// Weights with which a new run may begin.
struct InitialWeights {
  std::string file;  ///< path they were read from
  TensorFile tensors;
  bool of_convnet = true;      ///< false: the file is another program's, and so are the names of its tensors
  Checkpoint checkpoint = {};  ///< what else a checkpoint holds, without its tensors
  std::string place = {};      ///< where in the file they are, if not at its top: "model_ema"
  /// A line that tells the user what to know of the file; "" if there is nothing.
  std::string note = {};
  bool has_batch_norms = true;  ///< false: the file says that its net has none
};

/// Reads a checkpoint as read_checkpoint() does, or another program's file: safetensors, or one of
/// torch.save. Throws as read_checkpoint() does.
InitialWeights read_initial_weights(const std::string& file_or_folder);

/// Returns the newest checkpoint in a folder; nullopt if there is none or no folder. Throws RunError if the
/// folder cannot be listed.
std::optional<std::string> newest_checkpoint(const std::string& folder);

/// The checkpoint of the best test in a run's folder (--keep-best).
inline constexpr const char* kBestFile = "best.safetensors";
/// Returns the text that names what there is instead in a folder without checkpoints: kBestFile, or the
/// newest checkpoint of cuda-convnet, a pickle called EPOCH.BATCH without an extension; "" if there is
/// neither.
std::string instead_of_checkpoints(const std::string& folder);

/// Returns a line for errors of a data set, one of whose paths is that of `option` in the checkpoint's
/// options, if there is nothing at that path; "" if there is, or if the path is empty.
std::string moved_data_text(const Checkpoint& checkpoint, const std::string& path, const std::string& option);

/// Returns whether `file` is there and no checkpoint of `position` or before.
bool is_later(const std::string& file, const Position& position);

/// The folder to which later checkpoints were moved, and their number.
struct Abandoned {
  std::string folder;  ///< "" if there were none
  std::size_t checkpoints = 0;
  bool best = false;  ///< the checkpoint of the best test was one of them
};
/// Moves the checkpoints in `folder` that come after `position` into a new folder there, so that a run that
/// goes on from `position` neither removes them nor is taken for their successor. kBestFile is moved, too,
/// if it is a later one or cannot be read. Returns the new folder and the number of checkpoints moved. Throws
/// InputError or RunError.
Abandoned move_later_checkpoints(const std::string& folder, const Position& position);

}  // namespace convnet
