// Locks that keep several processes from using the same file or folder at a time.
#pragma once

#include <string>

namespace convnet {

/// An open file or folder with an exclusive lock on it, which keeps out other processes, and other objects of
/// this class in the same process. The lock ends with the object, or with the process, however that ends. The
/// lock is advisory: it keeps out only those who ask for it.
class FileLock {
 public:
  enum class Kind { file, folder };
  enum class Wait { no, yes };
  enum class State {
    held,      ///< the lock is held
    taken,     ///< somebody else has the lock; only with Wait::no
    no_locks,  ///< the file is open but not locked, because the file system has no locks
    not_open   ///< the file could not be opened or made
  };

  /// Opens and locks the file or folder at `path`. A file is made if it does not exist, and opened for
  /// reading and writing; a symbolic link to a file is refused. If the file is removed or replaced before it
  /// is locked, that is done again with the file that is now at `path`. With Wait::yes it waits while
  /// somebody else has the lock. Throws nothing for a failure; state() says what has come of it.
  explicit FileLock(const std::string& path, Kind kind = Kind::file, Wait wait = Wait::no);
  FileLock(FileLock&& other) noexcept;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

  State state() const { return state_; }
  bool held() const { return state_ == State::held; }
  /// Returns the errno of the failure; 0 for State::held.
  int error() const { return error_; }
  /// Returns whether the open file has other names (hard links), in other folders perhaps: what is written
  /// into it changes the file of those names, too.
  bool has_other_names() const;
  /// Returns whether the file did not exist before.
  bool made() const { return made_; }
  /// Returns the open file, which belongs to this object; -1 for State::not_open.
  int descriptor() const { return descriptor_; }

 private:
  void open(const std::string& path, Kind kind);
  void lock(Wait wait);

  int descriptor_ = -1;
  State state_ = State::not_open;
  int error_ = 0;
  bool made_ = false;
};

}  // namespace convnet
