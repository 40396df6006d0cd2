// Files that appear under their name whole, or not at all.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace convnet {

/// Written to `path`.tmp-<process id>; publish() gives it its name, durably. Without that the destructor
/// removes it (a killed process leaves it). An existing file of that name stays whole until then. Everything
/// throws RunError naming file and cause.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(const void* bytes, std::size_t count);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// fsync, rename, fsync of the folder. Nothing may follow.
  void publish();

 private:
  [[noreturn]] void fail() const;

  std::string path_, temporary_;
  int descriptor_ = -1;
  bool published_ = false;
};

/// A whole file through an OutputFile.
void write_whole_file(const std::string& path, std::string_view bytes);

/// What the name of the temporary file of an OutputFile says.
struct TemporaryName {
  std::string target;  ///< the name it was to get
  long process = 0;    ///< that wrote it
};
/// Nothing for names of other files.
std::optional<TemporaryName> parse_temporary_name(const std::string& name);

/// Makes the name of a file or folder just renamed to `path` survive a power cut. Throws RunError.
void sync_parent_folder(const std::string& path);

/// Throws InputError if no folder can be made or written at `path`; `what` ends the message: "checkpoints are
/// to be saved in". Makes nothing.
void check_folder_writable(const std::string& path, const std::string& what);

/// Makes a folder and those above it; "" is the current one. Throws RunError.
void make_folders(const std::string& path);

}  // namespace convnet
