#include "convnet/base/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/printable.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// Temporary names end in a mark and a number. The second mark is that of older versions.
constexpr std::array<std::string_view, 2> kTemporaryMarks = {".convnet-tmp-", ".tmp-"};
/// The numbers from 1 on that a temporary file gets; others only if all of these are taken.
constexpr std::uint64_t kTemporaries = 8;

std::string temporary_name(const std::string& target, std::uint64_t number) {
  return fmt::format("{}{}{}", target, kTemporaryMarks[0], number);
}

/// A descriptor that is closed at the end of its scope.
struct Descriptor {
  int number = -1;
  explicit Descriptor(int n) : number(n) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

/// Repeats a system call that a signal interrupted.
template <class Call>
auto retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Must be called while errno is that of the failure.
[[noreturn]] void fail_to_write(const std::string& path) {
  const int code = errno;
  const std::string text = fmt::format("{}: cannot be written: {}{}", path, error_text(code),
                                       code == EFBIG ? " (ulimit -f says how large files may be)" : "");
  if (code == ENOSPC || code == EDQUOT) throw DiskFullError(text);
  throw RunError(text);
}

/// Closes a descriptor. Linux has closed it even if it returns EINTR.
int close_once(int& descriptor) { return descriptor < 0 ? 0 : ::close(std::exchange(descriptor, -1)); }

/// Returns whether a file (a pipe or device) is written to in place instead of being replaced.
bool is_stream(const fs::file_status& file) { return fs::is_fifo(file) || fs::is_character_file(file); }

/// Resolves all symbolic links of `path`, even if the last one leads to no file yet.
std::string follow_links(const std::string& path) {
  constexpr int kMostLinks = 40;
  fs::path name = path;
  for (int i = 0; i < kMostLinks; ++i) {
    std::error_code no_link;
    const fs::path next = fs::read_symlink(name, no_link);
    if (no_link) return name.string();
    name = name.parent_path() / next;
  }
  errno = ELOOP;
  fail_to_write(path);
}

/// Returns whether there is a file that holds something and does not begin with these bytes.
bool is_of_other_kind(const std::string& path, const std::string& begins) {
  std::ifstream file(path, std::ios::binary);
  if (begins.empty() || !file) return false;
  std::string first(begins.size(), '\0');
  file.read(first.data(), static_cast<std::streamsize>(first.size()));
  return file.gcount() > 0 && first != begins;
}

/// Returns whether two names lead to the same file, which may not be there yet.
bool same_place(const std::string& a, const std::string& b) {
  std::error_code none;
  if (fs::equivalent(a, b, none)) return true;
  const fs::path first = follow_links(a), second = follow_links(b);
  const auto folder = [](const fs::path& file) { return file.has_parent_path() ? file.parent_path() : "."; };
  return first.filename() == second.filename() &&
         canonical_path(folder(first)) == canonical_path(folder(second));
}

/// Returns whether a signal that asks the program to end is pending because the program blocks it.
bool asked_to_end() {
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  return sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
         sigismember(&pending, SIGHUP) == 1;
}

/// Throws InputError if `there` cannot be written; `what` and `path` are as in check_folder_writable().
void check_access(const std::string& there, const std::string& what, const std::string& path) {
  if (::access(there.c_str(), W_OK) == 0) return;
  const int code = errno;
  throw InputError(fmt::format("{}: cannot be written: {}; {} {}", there, error_text(code), what, path));
}

/// Removes the temporary file of a writer that did not live to do so itself. Its lock tells that, because a
/// lock ends with its process, which other containers and hosts may not see. Leaves whatever else has the
/// name: a file of another user, a link, a pipe, or a file on a file system without locks.
void remove_dead_temporary(const std::string& name) {
  const Descriptor file(::open(name.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  struct stat status = {};
  if (file.number < 0 || ::fstat(file.number, &status) != 0) return;
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || status.st_nlink != 1) return;
  if (::flock(file.number, LOCK_EX | LOCK_NB) == 0 && is_file_called(name, file.number))
    ::unlink(name.c_str());
}

/// Opens a pipe once somebody reads it; -1 and errno if it cannot be, if the program is asked to end first,
/// or ETIMEDOUT if nobody reads it for as long as `patience`. A plain open() waits, too, but for ever where
/// signals are blocked.
int open_pipe(const std::string& path, std::chrono::milliseconds patience) {
  constexpr auto kPause = std::chrono::milliseconds(20);
  for (auto waited = std::chrono::milliseconds(0);; waited += kPause) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    // From here on, writing waits for the reader.
    if (descriptor >= 0) ::fcntl(descriptor, F_SETFL, O_WRONLY);
    if (descriptor >= 0 || (errno != ENXIO && errno != EINTR)) return descriptor;
    if (asked_to_end()) {
      errno = EINTR;
      return -1;
    }
    if (waited >= patience) {
      errno = ETIMEDOUT;
      return -1;
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

OutputFile::OutputFile(Unopened, std::string path, std::chrono::milliseconds patience)
    : path_(std::move(path)), patience_(patience) {}

// From the first line of the body on, an exception runs the destructor.
OutputFile::OutputFile(std::string path, std::chrono::milliseconds patience)
    : OutputFile(Unopened{}, std::move(path), patience) {
  std::error_code ignored;
  const fs::file_status there = fs::status(path_, ignored);
  if (fs::is_directory(there)) {
    errno = EISDIR;
    fail();
  }
  if (is_stream(there)) {
    if (::access(path_.c_str(), W_OK) != 0) fail();
    return;
  }
  if (fs::exists(there) && !fs::is_regular_file(there))
    throw RunError(path_ + ": cannot be written: it is neither a file nor a pipe nor a character device");
  target_ = follow_links(path_);
  open_temporary();
}

// The name belongs to this process only as long as it has the file open, and thereby locked.
OutputFile::~OutputFile() {
  removed_at_end_.reset();
  if (descriptor_ >= 0 && !published_ && !temporary_.empty()) ::unlink(temporary_.c_str());
  close_once(descriptor_);
}

/// Makes and opens the temporary file, and removes those of writers that were killed.
void OutputFile::open_temporary() {
  for (std::uint64_t number = 1; number <= kTemporaries; ++number) {
    const std::string name = temporary_name(target_, number);
    if (descriptor_ < 0 && make_temporary(name)) continue;
    remove_dead_temporary(name);
    if (descriptor_ < 0) make_temporary(name);
  }
  constexpr int kTries = 100;
  for (int i = 0; descriptor_ < 0 && i < kTries; ++i) {
    std::uint64_t number = 0;
    if (retry([&] { return ::getrandom(&number, sizeof number, 0); }) != sizeof number) fail();
    constexpr std::uint64_t kMost = 10'000'000'000;
    make_temporary(temporary_name(target_, kTemporaries + 1 + number % kMost));
  }
  if (descriptor_ < 0) fail();
  removed_at_end_.emplace(temporary_);
}

/// Makes, opens and locks the temporary file `name`. Returns false if there is something of that name.
bool OutputFile::make_temporary(const std::string& name) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  descriptor_ = retry([&] { return ::open(name.c_str(), kFlags, 0666); });
  if (descriptor_ < 0) {
    if (errno != EEXIST) fail();
    return false;
  }
  temporary_ = name;
  // Before it is locked, another process may take it for that of a killed one.
  const bool taken =
      retry([&] { return ::flock(descriptor_, LOCK_EX | LOCK_NB); }) != 0 && errno == EWOULDBLOCK;
  if (!taken && is_file_called(name, descriptor_)) return true;
  close_once(descriptor_);
  errno = EEXIST;
  return false;
}

/// Opens a pipe or device. Call it only when there is something to write: a pipe's reader sees the end of the
/// file when the first writer closes it.
void OutputFile::open_stream() {
  if (descriptor_ >= 0) return;
  std::error_code ignored;
  descriptor_ = fs::is_fifo(path_, ignored)
                    ? open_pipe(path_, patience_)
                    : retry([this] { return ::open(path_.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC); });
  if (descriptor_ < 0 && errno == ETIMEDOUT)
    throw RunError(path_ + ": cannot be written: it is a pipe that nobody reads; start its reader first");
  if (descriptor_ < 0) fail();
}

void OutputFile::write(const void* bytes, std::size_t count) {
  if (temporary_.empty()) open_stream();
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = retry([&] { return ::write(descriptor_, from, count); });
    if (done < 0) fail();
    from += done;
    count -= static_cast<std::size_t>(done);
  }
}

void OutputFile::publish() {
  if (temporary_.empty()) {
    open_stream();
    published_ = true;
    if (close_once(descriptor_) != 0 && errno != EINTR) fail();
    return;
  }
  if (retry([this] { return ::fsync(descriptor_); }) != 0) fail();
  removed_at_end_.reset();
  // While the lock is held, so that nobody takes the file for that of a killed process.
  published_ = ::rename(temporary_.c_str(), target_.c_str()) == 0;
  if (!published_) fail();
  close_once(descriptor_);  // all is on the disk already
  sync_parent_folder(target_);
}

void OutputFile::fail() const { fail_to_write(path_); }

void write_whole_file(const std::string& path, std::string_view bytes) {
  OutputFile file(path);
  file.write(bytes);
  file.publish();
}

std::optional<std::string> target_of_temporary(const std::string& name) {
  for (const std::string_view mark : kTemporaryMarks) {
    const std::size_t at = name.rfind(mark);
    if (at == std::string::npos) continue;
    const std::string number = name.substr(at + mark.size());
    if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
    return name.substr(0, at);
  }
  return std::nullopt;
}

void sync_parent_folder(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  const std::string name = parent.empty() ? "." : parent.string();
  int folder = retry([&] { return ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (folder < 0) fail_to_write(path);
  // EINVAL: this file system does not support fsync of a folder, and does not need it.
  const int result = retry([&] { return ::fsync(folder); });
  const int code = errno;
  close_once(folder);
  errno = code;
  if (result != 0 && code != EINVAL) fail_to_write(path);
}

void check_folder_writable(const std::string& path, const std::string& what) {
  std::error_code ignored;
  for (fs::path at = path;; at = at.parent_path()) {
    if (at.empty()) at = ".";
    if (!fs::exists(at, ignored)) continue;
    if (!fs::is_directory(at, ignored))
      throw InputError(at.string() + ": is not a folder; " + what + " " + path);
    check_access(at.string(), what, path);
    return;
  }
}

void check_file_writable(const std::string& path, const std::string& what) {
  std::error_code ignored;
  const fs::file_status there = fs::status(path, ignored);
  if (fs::is_directory(there)) throw InputError(path + ": is a folder, not a file; " + what + " " + path);
  if (is_stream(there)) {
    check_access(path, what, path);
    return;
  }
  const fs::path parent = fs::path(follow_links(path)).parent_path();
  const fs::path folder = parent.empty() ? "." : parent;
  check_folder_writable(folder.string(), what);
  if (!fs::exists(folder, ignored))
    throw InputError(fmt::format("{}: no such folder; {} {}; a folder is made by mkdir -p {}",
                                 folder.string(), what, path, shell_word(folder.string())));
  // Only writing to the folder shows whether it is possible.
  try {
    OutputFile{path};
  } catch (const RunError& e) {
    throw InputError(std::string(e.what()) + "; " + what + " " + path);
  }
}

void check_outputs(const std::vector<OutputOption>& outputs, const std::vector<std::string>& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [option, path, what, begins, is_of_kind, made_folders] = outputs[i];
    if (path.empty()) continue;
    std::error_code none;
    // Pipes and devices are not replaced.
    const bool replaced = !is_stream(fs::status(path, none));
    for (const std::string& input : inputs) {
      if (replaced && !input.empty() && fs::equivalent(path, input, none))
        throw InputError(option + " " + path + ": is a file that the command reads; name another file");
    }
    for (std::size_t k = 0; k < i && replaced; ++k) {
      if (!outputs[k].path.empty() && same_place(path, outputs[k].path))
        throw InputError(outputs[k].option + " and " + option + " name the same file, " + path);
    }
    const bool has_other_contents = replaced && is_of_kind != nullptr && fs::exists(path, none) &&
                                    !fs::is_directory(path, none) && !is_of_kind(path);
    if ((replaced && is_of_other_kind(path, begins)) || has_other_contents)
      throw InputError(
          option + " " + path +
          ": there is another kind of file of that name, or one of another program or that was edited; "
          "remove it or name another file");
    const std::string folder = fs::path(path).parent_path().string();
    const bool is_made = std::ranges::any_of(made_folders, [&](const std::string& made) {
      return !made.empty() && !folder.empty() && same_place(made, folder);
    });
    if (is_made && !fs::exists(folder, none))
      check_folder_writable(folder, what);
    else
      check_file_writable(path, what);
  }
}

std::string make_numbered_folder(const std::string& name) {
  std::string path = name;
  for (int number = 2; ::mkdir(path.c_str(), 0777) != 0; ++number) {
    if (errno != EEXIST) {
      const int code = errno;
      throw InputError(path + ": cannot be made: " + error_text(code));
    }
    path = fmt::format("{}_{}", name, number);
  }
  return path;
}

void make_folders(const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  fs::create_directories(path, error);
  std::error_code ignored;
  if (error && !fs::is_directory(path, ignored))
    throw RunError(path + ": cannot be made: " + error.message());
}

}  // namespace convnet
