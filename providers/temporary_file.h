// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace convnet {

/// A file that is written as `path`.tmp-<process id> and gets its own name when it is complete. An existing
/// file of that name stays whole until then. A killed process leaves the temporary file behind.
class TemporaryFile {
 public:
  /// Throws RunError naming file and cause, like the others.
  explicit TemporaryFile(const std::string& path);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  /// Removes what was not published.
  ~TemporaryFile();

  void write(const void* bytes, std::size_t count);
  /// To the disk (fsync), rename, fsync of the folder.
  void publish();

 private:
  [[noreturn]] void fail() const;

  std::string path_, temporary_;
  int descriptor_ = -1;
  bool published_ = false;
};

/// A whole file through a TemporaryFile.
void write_whole_file(const std::string& path, std::string_view bytes);

/// Makes the name of a file or folder just renamed to `path` survive a power cut. Throws RunError.
void sync_parent_folder(const std::string& path);

/// What the name of a temporary file says.
struct TemporaryName {
  std::string target;  ///< the name it was to get
  long process = 0;    ///< that wrote it
};
/// Nothing for names of other files.
std::optional<TemporaryName> parse_temporary_name(const std::string& name);

}  // namespace convnet
