// The folder that a training run saves its checkpoints in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convnet/train/options.h"

namespace convnet {

/// Folders that were made; the destructor removes those that are empty still.
class MadeFolders {
 public:
  MadeFolders() = default;
  MadeFolders(const MadeFolders&) = delete;
  MadeFolders& operator=(const MadeFolders&) = delete;
  ~MadeFolders();

  /// Removes those that are empty.
  void remove_empty() const;
  /// Makes `path` and the folders above it, as far as they are missing. Throws InputError, whose message ends
  /// with `purpose` and `path`.
  void make(const std::string& path, const std::string& purpose);
  /// Makes a folder in an existing one, as make_numbered_folder() does.
  std::string make_numbered(const std::string& name);

 private:
  std::vector<std::string> paths_;
};

/// A lock on the file ".lock" in a folder, which says who holds it. It goes with the process, however that
/// ends; the destructor removes the file, too.
class RunLock {
 public:
  /// Throws InputError if the file cannot be written, or if another process holds the lock, saying which.
  explicit RunLock(const std::string& folder);
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

  /// Removes the file; the lock stays.
  void remove_file() const;
  /// Returns whether other runs are kept out. Some file systems have no locks.
  bool locked() const { return locked_; }

 private:
  bool open_file(const std::string& folder);
  std::string holder() const;

  std::string path_;
  int descriptor_ = -1;
  bool locked_ = false;
};

/// A folder that belongs to this run as long as the object lives. One that the run has made and put nothing
/// into is removed again.
class RunFolder {
 public:
  enum class Name { as_given, numbered };
  /// Makes the folder unless it is there, or with Name::numbered a new one: `path`, or path_2, path_3, …
  /// Locks it, and removes what killed runs left half-written. Throws InputError where no folder can be made
  /// or written, or where another run has it.
  explicit RunFolder(const std::string& path, Name name = Name::as_given);

  const std::string& path() const { return path_; }
  /// Removes what the run has made in a folder that it has saved nothing in, where the program is about to
  /// end without destructors.
  void leave() const;

 private:
  std::string make(const std::string& path, Name name);

  MadeFolders made_;
  std::string path_;
  RunLock lock_;
};

/// Claims the folder of a run with these options, which are those of this invocation alone: the one of
/// --save-file, a new one in --save-path, or the one of --load-file. Returns null if no option names one.
/// Throws InputError as RunFolder and find_checkpoint() do.
std::unique_ptr<RunFolder> claim_run_folder(const CheckpointOptions& given);

}  // namespace convnet
