// The folder of a run's event files.
#pragma once

#include <optional>
#include <string>

#include "convnet/base/file_lock.h"
#include "convnet/checkpoint/checkpoint.h"
#include "convnet/train/run_folder.h"

namespace convnet {

/// A folder of event files that belongs to this run as long as the object lives. The file convnet-run.txt in
/// it, the note, names the folder in which the run saves its checkpoints. A lock on the note keeps out other
/// runs at the same time, and the name in it keeps out later ones.
class BoardFolder {
 public:
  /// Makes the folder if it does not exist, locks it, and writes the note. `resumed` is the checkpoint that
  /// the run goes on from. A run that saves its checkpoints in the folder that the note names may continue
  /// the curves in the folder, or replace them from its start on. If the folder that the note names no longer
  /// exists, a run may continue the curves if its checkpoint says that they are its own. Throws InputError if
  /// the folder cannot be made, has the curves of another run, or belongs to a run that is alive, and
  /// RunError if the note cannot be written or the folder cannot be listed.
  BoardFolder(const std::string& path, const RunFolder& run, const std::optional<Checkpoint>& resumed);
  BoardFolder(const BoardFolder&) = delete;
  BoardFolder& operator=(const BoardFolder&) = delete;
  /// Calls leave(), removes the folder if the run has made it and it is empty, and gives up the lock.
  ~BoardFolder();

  const std::string& path() const { return path_; }
  /// Call it when the run has written event files: the note then stays.
  void keep() { restore_ = false; }
  /// Restores the earlier note, or removes the note if there was none before; does nothing after keep().
  void leave() const;

 private:
  explicit BoardFolder(const std::string& path);
  /// Makes the folder, opens and locks the note.
  FileLock open_note();
  bool write_note(const std::string& text) const;
  void check_owner(const std::string& me, const RunFolder& run,
                   const std::optional<Checkpoint>& resumed) const;
  /// Returns whether `resumed` says that curves here are of its run. `owner` is the folder that the note
  /// names.
  bool has_curves_of(const Checkpoint& resumed, const RunFolder& run, const std::string& owner) const;

  MadeFolders made_;
  std::string path_;
  std::string note_;         ///< the note's path
  FileLock lock_;            ///< the open note, locked where the file system has locks
  std::string text_before_;  ///< the note's text when it was opened
  bool restore_ = false;     ///< leave() must restore or remove the note
};

}  // namespace convnet
