// The folder that a training run saves its checkpoints in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convnet/base/file_lock.h"
#include "convnet/train/options.h"

namespace convnet {

/// Makes folders; the destructor removes those of them that are still empty.
class MadeFolders {
 public:
  MadeFolders() = default;
  MadeFolders(const MadeFolders&) = delete;
  MadeFolders& operator=(const MadeFolders&) = delete;
  ~MadeFolders();

  /// Removes the folders made so far that are empty.
  void remove_empty() const;
  /// Makes `path` and the folders above it if they do not exist. Throws InputError, whose message ends with
  /// `purpose` and `path`.
  void make(const std::string& path, const std::string& purpose);
  /// Makes a folder in an existing one, as make_numbered_folder() does.
  std::string make_numbered(const std::string& name);

 private:
  std::vector<std::string> paths_;
};

/// A lock on the file ".lock" in a folder; the file says which process holds the lock. The lock ends with the
/// process, however that ends. The destructor also removes the file.
class RunLock {
 public:
  /// Throws InputError if the file cannot be opened, or if another process holds the lock, saying which. If
  /// the disk has no room for the file, warns and goes without a lock.
  explicit RunLock(const std::string& folder);
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

  /// Removes the file; the lock stays.
  void remove_file() const;
  /// Returns whether the file, or without a lock the folder, is still there. If not, others may lock it.
  bool is_in_place() const;
  /// Returns whether the file is locked; some file systems have no locks.
  bool locked() const { return lock_.held(); }

 private:
  FileLock open_file(const std::string& folder) const;

  std::string path_;
  FileLock lock_;
};

/// A folder that belongs to this run as long as the object lives. The destructor removes a folder that the
/// run has made and saved nothing in.
class RunFolder {
 public:
  enum class Name { as_given, numbered };
  /// Makes the folder if it does not exist, or with Name::numbered a new one: `path`, or path_2, path_3, …
  /// Locks it, and removes temporary files that killed runs have left. Throws InputError if the folder cannot
  /// be made or written, or if another run has locked it.
  explicit RunFolder(const std::string& path, Name name = Name::as_given);

  const std::string& path() const { return path_; }
  /// Returns whether the folder still belongs to this run: nobody has removed or renamed it, or its lock.
  bool is_claimed() const { return lock_->is_in_place(); }
  /// Claims the folder again if it does not belong to this run any more: makes it if it is gone, and locks
  /// it. If another run has claimed a folder of that name meanwhile, or a file has the name, claims path_2,
  /// path_3, … instead, and path() changes. Returns a sentence for the user about what happened, or "" if the
  /// folder was still there. Throws as the constructor does.
  std::string reclaim();
  /// Does what the destructor does, if the program is about to end without destructors: removes what the run
  /// has made, if it has saved nothing.
  void leave() const;

 private:
  std::string make(const std::string& path, Name name);

  MadeFolders made_;
  std::string path_;
  std::unique_ptr<RunLock> lock_;
};

/// Throws InputError if --save-file or --save-path names a folder that a run could not be saved in. Makes and
/// locks nothing, so it cannot tell that another run saves there.
void check_run_folder(const CheckpointOptions& given);

/// Returns the path of the folder of a run that names none: runs/NET-DATA, after the net and the folder, tar
/// or provider of the data in the options.
std::string usual_run_folder(const OptionTexts& given);

/// Claims the folder of a run: the one that --save-file names, a new one in --save-path, or the folder of
/// --load-file. `given` are the options of the command line alone. Returns null if no option names a folder.
/// Throws InputError as RunFolder and find_checkpoint() do.
std::unique_ptr<RunFolder> claim_run_folder(const CheckpointOptions& given);

}  // namespace convnet
