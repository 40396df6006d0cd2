// Files that appear under their name complete or not at all.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convnet/base/end_signals.h"

namespace convnet {

/// A file that is written to a temporary file, NAME.convnet-tmp-1 or another number, and that publish()
/// renames to NAME, durably. Until then an existing file NAME stays whole. The temporary file is always a new
/// one: if something has its name, even a link or a pipe, that stays as it is, and the next number is taken.
/// It is locked as long as it is written. The destructor removes a temporary file that was not published, and
/// so does a signal that ends the program (end_signals.h). SIGKILL and crashes leave it without its lock, and
/// the next OutputFile for NAME removes it. A symbolic link is followed: the file that it names is replaced,
/// not the link. Pipes and character devices are not replaced but written to, from the first write() on;
/// folders and all other kinds of files are errors. All functions throw RunError naming file and cause; it is
/// a DiskFullError if there is no space left.
class OutputFile {
 public:
  /// The time that a pipe may be without a reader before the first write().
  static constexpr auto kPatience = std::chrono::minutes(1);

  explicit OutputFile(std::string path, std::chrono::milliseconds patience = kPatience);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(const void* bytes, std::size_t count);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Syncs the file, renames it, and syncs its folder. No call may follow.
  void publish();

 private:
  struct Unopened {};  ///< for the constructor that opens nothing
  OutputFile(Unopened, std::string path, std::chrono::milliseconds patience);
  [[noreturn]] void fail() const;
  void open_temporary();
  bool make_temporary(const std::string& name);
  void open_stream();

  std::string path_;
  std::chrono::milliseconds patience_;
  std::string target_, temporary_;              ///< path_ after symbolic links; empty for pipes and devices
  std::optional<RemovedAtEnd> removed_at_end_;  ///< of temporary_
  int descriptor_ = -1;
  bool published_ = false;
};

/// Writes a whole file with an OutputFile.
void write_whole_file(const std::string& path, std::string_view bytes);

/// Returns the final name for a temporary file of an OutputFile; nullopt for names of other files.
std::optional<std::string> target_of_temporary(const std::string& name);

/// Makes the name of a file or folder just renamed to `path` survive a power cut. Throws RunError.
void sync_parent_folder(const std::string& path);

/// Throws InputError if no folder can be made or written at `path`. `what` is the end of the message, like
/// "checkpoints are to be saved in". Makes nothing.
void check_folder_writable(const std::string& path, const std::string& what);

/// Throws InputError if `path` is a folder, if the folder above it is missing, or if an OutputFile could not
/// be written there. `what` is as in check_folder_writable(). Makes nothing.
void check_file_writable(const std::string& path, const std::string& what);

/// A file that an option names.
struct OutputOption {
  std::string option;  ///< "--html"
  std::string path;    ///< empty: the option is not given
  std::string what;    ///< as in check_folder_writable()
  /// The bytes that every file of this kind begins with, so that no file of another kind is replaced, like
  /// one of a data set. Empty: any file is replaced.
  std::string begins = {};
  /// A test for kinds of files that cannot be told by their first bytes: it returns whether the file at
  /// `path` may be replaced. Null: `begins` decides.
  bool (*is_of_kind)(const std::string& path) = nullptr;
  /// Folders that the command makes before it writes the file; they may be missing. "" stands for none.
  std::vector<std::string> made_folders = {};
};

/// Throws InputError if an output cannot be written, if two options name the same one, if it would replace a
/// file of another kind, or if it is one of the command's `inputs`, even by another path. `inputs` may hold
/// empty names and names of files that do not exist. Makes nothing.
void check_outputs(const std::vector<OutputOption>& outputs, const std::vector<std::string>& inputs);

/// Makes a folder of this name, or if the name is taken, of the name with "_2", "_3", … appended. Nobody
/// else gets the same one. Returns the name. Throws InputError if none can be made.
std::string make_numbered_folder(const std::string& name);

/// Makes a folder and its missing parents; "" is the current folder. Throws RunError.
void make_folders(const std::string& path);

}  // namespace convnet
