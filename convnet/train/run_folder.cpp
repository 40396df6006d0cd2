#include "convnet/train/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/output_file.h"
#include "convnet/base/printable.h"
#include "convnet/checkpoint/checkpoint.h"
#include "convnet/net/find_net.h"
#include "convnet/train/watched_cost.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPurpose = "checkpoints are to be saved in";

/// Returns the path without dots between slashes and without slashes at its end.
std::string plain(const std::string& path) {
  std::string normal = fs::path(path).lexically_normal().string();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

/// "pid 4711 on host since 2026-01-31 12:00:00".
std::string myself() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("pid {} on {} since {:%Y-%m-%d %H:%M:%S}", getpid(), host.data(),
                     fmt::localtime(std::time(nullptr)));
}

/// Returns the line in a lock's file, which says who holds the lock.
std::string holder_of(const FileLock& lock) {
  std::array<char, 300> text{};
  const ssize_t size = ::pread(lock.descriptor(), text.data(), text.size(), 0);
  const std::string_view line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(0, size)));
  return printable(line.substr(0, line.find('\n')));
}

/// Returns whether a file of this name is what a killed writer of checkpoints leaves.
bool is_leftover(const std::string& name) {
  const auto target = target_of_temporary(name);
  return name == kBestLink || (target && (*target == kBestFile || Position::of_file_name(*target)));
}

/// Removes temporary files of killed writers of checkpoints. With the lock all temporary files are such;
/// without it, those that nobody has written to for a day are taken for such.
void remove_leftovers(const std::string& folder, bool locked) {
  std::error_code ignored, error;
  const auto young = fs::file_time_type::clock::now() - std::chrono::hours(24);
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (!is_leftover(at->path().filename().string())) continue;
    if (locked || at->last_write_time(ignored) < young) leftovers.push_back(at->path());
  }
  for (const fs::path& path : leftovers) fs::remove(path, ignored);
}

/// Returns the folder of the checkpoint that --load-file names.
std::string folder_of_loaded(const CheckpointOptions& given) {
  return folder_of(find_checkpoint(given.load_file));
}

/// Returns whether --save-file names the folder of the checkpoint that --load-file names.
bool goes_on_there(const CheckpointOptions& given) {
  std::error_code ignored;
  return fs::equivalent(folder_of_loaded(given), given.save_file, ignored);
}

/// Throws InputError if --save-file, which is to be new, has the checkpoints of another run than that of
/// --load-file.
void check_new(const CheckpointOptions& given) {
  if (!newest_checkpoint(given.save_file)) return;
  throw InputError(
      fmt::format("{0}: holds the checkpoints of a run, which --load-file {0} goes on with; to go on "
                  "with {1} there, give "
                  "a --save-file that is new",
                  plain(given.save_file), given.load_file));
}

}  // namespace

// ---- Folders ----

MadeFolders::~MadeFolders() { remove_empty(); }

void MadeFolders::remove_empty() const {
  for (auto path = paths_.rbegin(); path != paths_.rend(); ++path) ::rmdir(path->c_str());
}

void MadeFolders::make(const std::string& path, const std::string& purpose) {
  std::error_code error;
  std::vector<std::string> missing;
  for (fs::path at = path; !at.empty() && !fs::exists(at, error); at = at.parent_path())
    missing.push_back(at.string());
  for (auto folder = missing.rbegin(); folder != missing.rend(); ++folder) {
    if (::mkdir(folder->c_str(), 0777) == 0) {
      paths_.push_back(*folder);
      continue;
    }
    const int code = errno;
    if (code == EEXIST && fs::is_directory(*folder, error)) continue;  // somebody was faster
    const bool link = fs::is_symlink(*folder, error);
    throw InputError(
        *folder + ": " +
        (link ? "is a link to " + fs::read_symlink(*folder, error).string() + ", which is not there"
              : "cannot be made: " + error_text(code)) +
        "; " + purpose + " " + path);
  }
}

std::string MadeFolders::make_numbered(const std::string& name) {
  paths_.push_back(make_numbered_folder(name));
  return paths_.back();
}

// ---- The lock ----

RunLock::RunLock(const std::string& folder)
    : path_((fs::path(folder) / ".lock").string()), lock_(open_file(folder)) {
  // The text is for others to read; on a full disk the lock does without it, so that the run can make room.
  const std::string text = myself() + "\n";
  const ssize_t written = ::pwrite(lock_.descriptor(), text.data(), text.size(), 0);
  [[maybe_unused]] const int cut = ::ftruncate(lock_.descriptor(), std::max<ssize_t>(0, written));
}

// Before the lock is given up: whoever gets it then sees that the file is not the folder's any more.
RunLock::~RunLock() { remove_file(); }

bool RunLock::is_in_place() const {
  std::error_code none;
  if (lock_.state() == FileLock::State::not_open)
    return fs::is_directory(fs::path(path_).parent_path(), none);
  return is_file_called(path_, lock_.descriptor());
}

void RunLock::remove_file() const {
  if (is_file_called(path_, lock_.descriptor())) ::unlink(path_.c_str());
}

/// Opens and locks the file, or a new one if it has other names.
FileLock RunLock::open_file(const std::string& folder) const {
  FileLock lock(path_);
  switch (lock.state()) {
    case FileLock::State::held: break;
    case FileLock::State::not_open:
      if (lock.error() != ENOSPC && lock.error() != EDQUOT)
        throw InputError(path_ + ": cannot be written: " + error_text(lock.error()));
      // The run may make room by removing old checkpoints.
      fmt::print(stderr,
                 "warning: {} cannot be made ({}): see to it yourself that no second run saves its "
                 "checkpoints in {}\n",
                 path_, error_text(lock.error()), folder);
      break;
    case FileLock::State::taken: {
      const std::string who = holder_of(lock);
      throw InputError(
          fmt::format("{}: another run saves its checkpoints there{}; wait "
                      "until it ends, or give this one another --save-file",
                      folder, who.empty() ? "" : ": " + who));
    }
    case FileLock::State::no_locks:
      fmt::print(stderr,
                 "warning: {} has no locks ({}): see to it yourself "
                 "that no second run saves its checkpoints there\n",
                 folder, error_text(lock.error()));
  }
  if (lock.has_other_names()) {
    // Its text is not to be written into a file elsewhere.
    if (::unlink(path_.c_str()) != 0) throw InputError(path_ + ": cannot be replaced: " + error_text(errno));
    return open_file(folder);
  }
  return lock;
}

// ---- Both ----

RunFolder::RunFolder(const std::string& path, Name name)
    : path_(make(plain(path), name)), lock_(std::make_unique<RunLock>(path_)) {
  remove_leftovers(path_, lock_->locked());
}

std::string RunFolder::reclaim() {
  if (is_claimed()) return "";
  std::error_code ignored;
  const bool removed = !fs::is_directory(path_, ignored);
  const std::string before = path_;
  std::string taken;  // why the name cannot be claimed
  if (removed && fs::exists(fs::symlink_status(path_, ignored))) {
    taken = "a file has that name now";
  } else {
    make_folders(path_);
    try {
      lock_ = std::make_unique<RunLock>(path_);
    } catch (const InputError& e) {
      taken = e.what();
    }
  }
  if (!taken.empty()) {
    path_ = make_numbered_folder(before);
    lock_ = std::make_unique<RunLock>(path_);
    return fmt::format(
        "{} was removed or renamed while this run trained, and cannot be claimed again ({}); from now "
        "on this run saves in {}",
        before, taken, path_);
  }
  if (!removed) return "";
  return fmt::format(
      "{} was removed or renamed while this run trained; it is made again for what is saved from now on",
      path_);
}

void RunFolder::leave() const {
  lock_->remove_file();
  made_.remove_empty();
}

/// Returns the name that the folder got.
std::string RunFolder::make(const std::string& path, Name name) {
  check_folder_writable(path, kPurpose);
  if (name == Name::as_given) {
    made_.make(path, kPurpose);
    return path;
  }
  made_.make(fs::path(path).parent_path().string(), kPurpose);
  return made_.make_numbered(path);
}

void check_run_folder(const CheckpointOptions& given) {
  const std::string& folder = given.save_file.empty() ? given.save_path : given.save_file;
  if (!folder.empty()) check_folder_writable(plain(folder), kPurpose);
  if (!given.load_file.empty() && !given.save_file.empty() && !goes_on_there(given)) check_new(given);
}

std::string usual_run_folder(const OptionTexts& given) {
  const auto text_of = [&](const char* key) {
    const auto found = given.find(key);
    return found == given.end() ? "" : found->second;
  };
  const std::string net = short_net_name(fs::path(text_of("layer-def")).filename().string());
  std::string data = text_of("data-provider");
  if (const std::string path = text_of("data-path"); !path.empty()) {
    std::error_code error;
    const fs::path absolute = fs::absolute(path, error);
    const fs::path last = fs::path(plain((error ? fs::path(path) : absolute).string())).filename();
    data = last.extension() == ".tar" ? last.stem().string() : last.string();
  }
  return (fs::path("runs") / (data.empty() ? net : net + "-" + data)).string();
}

std::unique_ptr<RunFolder> claim_run_folder(const CheckpointOptions& given) {
  if (!given.load_file.empty()) {
    const std::string own = folder_of_loaded(given);
    if (given.save_file.empty() && !given.save_path.empty())
      fmt::print(stderr, "warning: --save-path is for new runs; this one goes on in {}\n", own);
    if (given.save_file.empty() || goes_on_there(given)) return std::make_unique<RunFolder>(own);
    auto folder = std::make_unique<RunFolder>(given.save_file);
    check_new(given);
    return folder;
  }
  if (!given.save_file.empty()) return std::make_unique<RunFolder>(given.save_file);
  if (given.save_path.empty()) return nullptr;
  const std::string name = fmt::format("ConvNet__{:%Y-%m-%d_%H.%M.%S}", fmt::localtime(std::time(nullptr)));
  return std::make_unique<RunFolder>((fs::path(given.save_path) / name).string(), RunFolder::Name::numbered);
}

}  // namespace convnet
