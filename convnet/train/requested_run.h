// The run that a command line names, and all checks of its options that need no device and read no image:
// training makes them before its first step, and `convnet plan` and `convnet bench` make the same ones.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/net/net_files.h"
#include "convnet/runtime/processes.h"
#include "convnet/train/options.h"
#include "providers/provider.h"

namespace convnet {

/// A run before there is a graph.
struct RequestedRun {
  OptionTexts given;     ///< the options of the command line
  OptionTexts texts;     ///< these, and the checkpoint's where they are not given
  TrainOptions options;  ///< `texts`, parsed
  std::string notes;     ///< lines for the user about options and choices that were made for those not given
  std::optional<Checkpoint> checkpoint;  ///< the checkpoint to resume from or to test
  NetFiles files;
  std::shared_ptr<const Provider> provider;
};

/// Reads the checkpoint that `given` names, by --load-file or by a --save-file that exists, and adds its
/// options to those that are given. Throws InputError for options that make no sense together or for the
/// checkpoint, and for files that the run could not write. Several processes (else `processes` is null) make
/// the call together; the first one chooses the checkpoint.
void read_options(RequestedRun& run, const OptionTexts& given, Processes* processes = nullptr);

/// The learning parameters of a resumed run if its command line does not name their file.
enum class ParametersNotGiven {
  as_in_file,       ///< those of the file as it is now
  as_in_checkpoint  ///< those that the checkpoint has
};

/// Returns whether the folders of the data set are its classes, if it is a folder.
bool names_classes_by_folders(const DataOptions& data);

/// Returns whether the data set must be opened before the net's files are read, because a new run has a net
/// that comes with the program, which ends as the labels need it.
bool needs_data_first(const RequestedRun& run);

/// Reads the net's files into `run.files`, and notes for a resumed run whether they or the checkpoint are
/// used. Returns the checkpoint's definition as it was before --conv-to-local or --unshare-weights changed
/// it, or nullopt if nothing did. Throws InputError if a file cannot be read, or if it has another net than
/// the checkpoint.
std::optional<IniFile> read_files(RequestedRun& run, ParametersNotGiven otherwise, Diagnostics& diagnostics);

/// Chooses the ranges of batches that the run does not name, and returns a note about them (data_set.h).
/// Throws InputError as open_data() does.
std::string choose_ranges(RequestedRun& run);

/// Opens the data set as `run.provider`. Throws InputError if it lacks the batches of the run, or does not
/// fit the checkpoint; the message says so if the folder's name comes from there.
void open_data(RequestedRun& run);

/// Throws InputError, with the nearest name, if an option names a layer that the net does not have.
void check_layer_names(const RequestedRun& run, const Graph& graph);

/// Adds a line to a run's notes.
void add_note(std::string& notes, const std::string& line);

}  // namespace convnet
