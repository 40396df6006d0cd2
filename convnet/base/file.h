// A file that is read at any place, from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace convnet {

/// Owns the open file. Immutable: any number of threads may read at once.
class InputFile {
 public:
  /// Throws InputError if `path` is not there or not a regular file, RunError if it cannot be opened.
  explicit InputFile(std::string path);
  /// Bytes that are in memory already; `name` stands for them in messages.
  InputFile(std::string name, std::string contents);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  /// Throws InputError if the file ends before, RunError for I/O errors.
  std::string read(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;  // -1: contents_ it is
  std::string contents_;
  std::uint64_t size_ = 0;
};

/// All of a file. Throws like InputFile.
std::string read_whole_file(const std::string& path);

/// Whether `a` comes before `b` where numbers in names count by their value: data_2 before data_10.
bool natural_less(std::string_view a, std::string_view b);

/// Whether the open file `descriptor` is still the one called `path`: somebody may have removed or replaced
/// it.
bool is_file_called(const std::string& path, int descriptor);

/// Returns the system's text for an errno value: "No such file or directory".
std::string error_text(int error);

/// A name or a piece of a file for a message: at most `most` bytes, what is not printable as \xHH.
std::string printable(std::string_view text, std::size_t most = 60);

}  // namespace convnet
