// A file that can be read at any position, from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace convnet {

/// Throws InputError for a name that no file can have: one with a NUL, at which the system takes it to end.
void check_name(const std::string& path);

/// Reads up to `count` bytes of the open file `descriptor`, from `offset` on, and returns their number: fewer
/// only at the end of the file. Throws RunError for I/O errors; `path` is for its text.
std::size_t read_at(int descriptor, const std::string& path, std::uint64_t offset, void* to,
                    std::size_t count);

/// Owns the open file. Immutable: any number of threads may read at once.
class InputFile {
 public:
  /// Throws InputError if `path` is not there or not a regular file, RunError if it cannot be opened.
  explicit InputFile(std::string path);
  /// Makes a file of bytes that are in memory already; messages call it `name`.
  InputFile(std::string name, std::string contents);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  /// Returns the `bytes` bytes from `offset` on. Throws InputError if the file is shorter, RunError for I/O
  /// errors.
  std::string read(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;  // -1: the bytes are in contents_
  std::string contents_;
  std::uint64_t size_ = 0;
};

/// Returns the contents of a file. Throws like InputFile.
std::string read_whole_file(const std::string& path);

/// Returns the absolute path without links, dots and "..", as far as it exists.
std::filesystem::path canonical_path(const std::filesystem::path& path);

/// Returns whether `path` is `folder` or lies in it, at any depth, behind links or not. It need not be there.
bool lies_in(const std::string& path, const std::string& folder);

/// Returns whether `a` comes before `b` when numbers in names are compared by value: data_2 before data_10.
bool natural_less(std::string_view a, std::string_view b);

/// Returns whether the open file `descriptor` is still the one at `path`; it may have been removed or
/// replaced meanwhile.
bool is_file_called(const std::string& path, int descriptor);

/// Returns the system's text for an errno value: "No such file or directory".
std::string error_text(int error);

}  // namespace convnet
