// The folder of a run's event files.
#pragma once

#include <optional>
#include <string>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/train/run_folder.h"

namespace convnet {

/// A folder of event files that belongs to this run as long as the object lives. The note convnet-run.txt in
/// it names the folder that the run saves its checkpoints in. A lock on the note keeps out runs that are
/// alive at the same time, and the name keeps out later ones.
class BoardFolder {
 public:
  /// Makes the folder unless it is there, locks it, and writes the note. `resumed` is the checkpoint that the
  /// run goes on from. Curves that are there may be continued, or replaced from the run's start, by a run
  /// whose checkpoints are saved in the folder that the note names. Where that folder does not exist any
  /// more, a run may continue them if its checkpoint says that they are its own. Throws InputError where the
  /// folder cannot be made, has other curves or belongs to a run that is alive, and RunError where the note
  /// cannot be written or the folder cannot be listed.
  BoardFolder(const std::string& path, const RunFolder& run, const std::optional<Checkpoint>& resumed);
  BoardFolder(const BoardFolder&) = delete;
  BoardFolder& operator=(const BoardFolder&) = delete;
  /// Calls leave(), removes the folder if the run has made it and it is empty, and gives up the lock.
  ~BoardFolder();

  const std::string& path() const { return path_; }
  /// Says that the run has written event files: the note stays from now on.
  void keep() { restore_ = false; }
  /// Unless the run has written event files, puts the note back as it was, or removes it if it was not there.
  void leave() const;

 private:
  explicit BoardFolder(const std::string& path);
  /// Opens and locks the note. Returns false if it is not the folder's any more.
  bool open_note();
  bool write_note(const std::string& text) const;
  void check_owner(const std::string& me, const RunFolder& run,
                   const std::optional<Checkpoint>& resumed) const;
  /// Returns whether `resumed` says that curves here are of its run. `owner` is the folder that the note
  /// names.
  bool has_curves_of(const Checkpoint& resumed, const RunFolder& run, const std::string& owner) const;

  MadeFolders made_;
  std::string path_;
  std::string note_;         ///< the note's path
  int descriptor_ = -1;      ///< the open note
  bool created_ = false;     ///< the note is new
  bool locked_ = false;      ///< false where the file system has no locks
  std::string text_before_;  ///< the note's text when it was opened
  bool restore_ = false;     ///< leave() has something to do
};

/// Removes from `texts`, a new run's options, a --tensorboard that only the checkpoint `resumed` has, and
/// prints a warning: the curves stay those of the run that wrote the checkpoint. Does nothing where `run`,
/// which saves in the checkpoint's folder, is that run, or where the option is `given` on the command line.
void drop_inherited_board(OptionTexts& texts, const OptionTexts& given, const RunFolder& run,
                          const Checkpoint& resumed);

}  // namespace convnet
