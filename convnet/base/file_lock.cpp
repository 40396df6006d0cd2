#include "convnet/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "convnet/base/file.h"

namespace convnet {

FileLock::FileLock(const std::string& path, Kind kind, Wait wait) {
  // Whoever has the lock may remove the file before giving it up: then there is another to lock.
  do {
    if (descriptor_ >= 0) ::close(descriptor_);
    open(path, kind);
    lock(wait);
  } while ((state_ == State::held || state_ == State::no_locks) && !is_file_called(path, descriptor_));
}

FileLock::FileLock(FileLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      state_(std::exchange(other.state_, State::not_open)),
      error_(other.error_),
      made_(other.made_) {}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool FileLock::has_other_names() const {
  struct stat status = {};
  return descriptor_ >= 0 && ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_nlink > 1;
}

void FileLock::open(const std::string& path, Kind kind) {
  made_ = false;
  if (kind == Kind::folder) {
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  } else {
    constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    descriptor_ = ::open(path.c_str(), kFlags | O_EXCL, 0666);
    made_ = descriptor_ >= 0;
    if (!made_ && errno == EEXIST) descriptor_ = ::open(path.c_str(), kFlags, 0666);
  }
  error_ = descriptor_ < 0 ? errno : 0;
}

void FileLock::lock(Wait wait) {
  state_ = State::not_open;
  if (descriptor_ < 0) return;
  int result = -1;
  do {
    result = ::flock(descriptor_, LOCK_EX | (wait == Wait::no ? LOCK_NB : 0));
  } while (result != 0 && errno == EINTR);
  error_ = result == 0 ? 0 : errno;
  state_ = result == 0 ? State::held : error_ == EWOULDBLOCK ? State::taken : State::no_locks;
}

}  // namespace convnet
