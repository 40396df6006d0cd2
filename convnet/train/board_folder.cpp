#include "convnet/train/board_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/printable.h"
#include "convnet/train/event_file.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// Returns a folder's name in the note.
std::string owner_name(const std::string& run) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(run.empty() ? "." : run, error);
  return error ? run : whole.string();
}

/// Returns the folder that a note names.
std::string owner_in(const std::string& text) {
  return text.ends_with('\n') ? text.substr(0, text.size() - 1) : text;
}

/// Returns whether a run saves its checkpoints in the folder of the one that it goes on from.
bool saves_beside(const RunFolder& run, const Checkpoint& resumed) {
  std::error_code ignored;
  return fs::equivalent(run.path(), folder_of(resumed.file), ignored);
}

/// Returns whether a folder does not exist. One that cannot be looked at may exist.
bool is_gone(const std::string& folder) {
  std::error_code error;
  return fs::status(folder, error).type() == fs::file_type::not_found;
}

}  // namespace

BoardFolder::BoardFolder(const std::string& path)
    : path_(path),
      note_((fs::path(path) / "convnet-run.txt").string()),
      lock_(open_note()),
      restore_(lock_.made()) {}

BoardFolder::BoardFolder(const std::string& path, const RunFolder& run,
                         const std::optional<Checkpoint>& resumed)
    : BoardFolder(path) {
  if (!lock_.made()) text_before_ = read_whole_file(note_);
  const std::string me = owner_name(run.path());
  check_owner(me, run, resumed);
  if (text_before_ == me + "\n") return;
  restore_ = true;
  if (write_note(me + "\n")) return;
  const int code = errno;
  throw RunError(note_ + ": cannot be written: " + error_text(code));
}

// The note must go before the lock: whoever gets the lock then sees that the note is not the folder's.
BoardFolder::~BoardFolder() { leave(); }

void BoardFolder::leave() const {
  if (!restore_ || !is_file_called(note_, lock_.descriptor())) return;
  if (text_before_.empty())
    ::unlink(note_.c_str());
  else
    write_note(text_before_);
}

FileLock BoardFolder::open_note() {
  made_.make(path_, "event files are to be written to");
  FileLock lock(note_);
  if (lock.state() == FileLock::State::not_open)
    throw InputError(note_ + ": cannot be opened for writing: " + error_text(lock.error()));
  if (lock.state() == FileLock::State::taken)
    throw InputError(fmt::format(
        "--tensorboard {}: another run writes its curves there; wait until it ends, or give this one a "
        "folder of its own",
        path_));
  return lock;
}

/// Sets errno and returns false if that fails.
bool BoardFolder::write_note(const std::string& text) const {
  if (lock_.has_other_names()) {
    errno = EMLINK;
    return false;
  }
  const auto size = static_cast<ssize_t>(text.size());
  const ssize_t written = ::pwrite(lock_.descriptor(), text.data(), text.size(), 0);
  if (written >= 0 && written < size) errno = ENOSPC;
  return written == size && ::ftruncate(lock_.descriptor(), size) == 0;
}

void BoardFolder::check_owner(const std::string& me, const RunFolder& run,
                              const std::optional<Checkpoint>& resumed) const {
  const std::string owner = owner_in(text_before_);
  if (owner == me) return;
  const bool has_curves = has_event_files(path_);
  // Without locks, the run that wrote the note may be about to begin.
  if (!has_curves && (lock_.made() || lock_.held())) return;
  if (resumed && has_curves_of(*resumed, run, owner)) return;
  throw InputError(
      fmt::format("--tensorboard {}: has the curves of another run{}, which this one would write over; give "
                  "it a folder of its own, or remove that one",
                  path_, owner.empty() ? "" : ", that of " + printable(owner, owner.size())));
}

bool BoardFolder::has_curves_of(const Checkpoint& resumed, const RunFolder& run,
                                const std::string& owner) const {
  // The run's folder was moved, or the curves are of an older version, which wrote no note.
  if (owner.empty() ? !saves_beside(run, resumed) : !is_gone(owner)) return false;
  std::error_code ignored;
  const auto board = resumed.options.find("tensorboard");
  return board != resumed.options.end() && fs::equivalent(board->second, path_, ignored);
}

}  // namespace convnet
