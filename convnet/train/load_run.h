// Everything that a run of training reads and checks before it has a net.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "convnet/runtime/processes.h"
#include "convnet/train/board_folder.h"
#include "convnet/train/requested_run.h"
#include "convnet/train/run_folder.h"
#include "convnet/train/stop_signal.h"

namespace convnet {

/// A run that has been read and checked.
struct LoadedRun : RequestedRun {
  bool by_name = false;       ///< the command line names a net that comes with the program, and no parameters
  OptionTexts saved_options;  ///< the options that the run's checkpoints store
  std::int64_t train_images = 0;  ///< images of the training range, as the data set tells before it is read
  std::unique_ptr<RunFolder> folder;   ///< null unless the run trains
  std::unique_ptr<BoardFolder> board;  ///< --tensorboard; null for none
  Graph graph;
  std::string placement;  ///< placement_text() of what a search found; empty if there was no search
  PixelStatistics statistics;
  std::vector<std::int64_t> class_counts;  ///< Provider::class_counts() of what it trains on
};

/// Reads a run's checkpoint, files and data set, and claims its folders. `given` are the options of the
/// command line; with --load-file, or a --save-file that exists, they override the checkpoint's. Throws
/// InputError with everything that is wrong. A stop signal during this call ends the program. Several
/// processes (else `processes` is null) load a run together: the first one claims the folders and chooses the
/// checkpoint, which all read.
LoadedRun load_run(const OptionTexts& given, StopSignal& stop, Processes* processes = nullptr);

}  // namespace convnet
