// Locks of files and folders.
#include "convnet/base/file_lock.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <thread>

#include "convnet/base/file.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

namespace convnet {

TEST_CASE("a lock keeps out others until it is destroyed") {
  const TempFolder folder;
  const std::string path = folder / "lock";
  std::optional<FileLock> first(path);
  CHECK(first->held());
  CHECK(first->made());
  const FileLock second(path);
  CHECK(second.state() == FileLock::State::taken);
  CHECK(second.error() == EWOULDBLOCK);
  CHECK_FALSE(second.made());
  CHECK(is_file_called(path, second.descriptor()));  // the file can be read by those who wait
  const FileLock moved = *std::move(first);
  first.reset();
  CHECK(FileLock(path).state() == FileLock::State::taken);
}

TEST_CASE("a folder can be locked") {
  const TempFolder folder;
  {
    const FileLock first(folder.path(), FileLock::Kind::folder);
    CHECK(first.held());
    CHECK(FileLock(folder.path(), FileLock::Kind::folder).state() == FileLock::State::taken);
  }
  CHECK(FileLock(folder.path(), FileLock::Kind::folder).held());
}

TEST_CASE("a lock's file that cannot be opened is told by its error") {
  const TempFolder folder;
  std::filesystem::create_symlink(folder / "elsewhere", folder / "link");
  const FileLock link(folder / "link");
  CHECK(link.state() == FileLock::State::not_open);
  CHECK(link.error() == ELOOP);
  CHECK(link.descriptor() == -1);
  CHECK(FileLock(folder / "missing/lock").error() == ENOENT);
  CHECK(FileLock(folder / "missing", FileLock::Kind::folder).error() == ENOENT);
}

TEST_CASE("a lock's file tells whether it has other names") {
  const TempFolder folder;
  const FileLock lock(folder / "lock");
  CHECK_FALSE(lock.has_other_names());
  std::filesystem::create_hard_link(folder / "lock", folder / "other");
  CHECK(lock.has_other_names());
  CHECK_FALSE(FileLock(folder.path(), FileLock::Kind::folder).has_other_names());
}

TEST_CASE("who waits for a lock whose file is removed locks the new file") {
  const TempFolder folder;
  const std::string path = folder / "lock";
  std::optional<FileLock> first(path);
  std::atomic<bool> locked = false;
  std::thread waiter([&] {
    const FileLock second(path, FileLock::Kind::file, FileLock::Wait::yes);
    locked = second.held() && is_file_called(path, second.descriptor());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const bool early = locked;
  ::unlink(path.c_str());
  first.reset();
  waiter.join();
  CHECK_FALSE(early);
  CHECK(locked);
}

}  // namespace convnet
