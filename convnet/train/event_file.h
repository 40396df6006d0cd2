// Event files, which TensorBoard reads: records (TFRecord) of protocol buffer messages.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace convnet {

/// Returns whether a folder has event files of any program; one that does not exist has none. Throws
/// RunError if it cannot be listed.
bool has_event_files(const std::string& folder);

/// An event file that is open for writing. Names of series (tags) are UTF-8.
class EventFile {
 public:
  /// Makes a new file in `folder`, which is made if necessary, with a name by which TensorBoard reads it
  /// after the files that exist there. TensorBoard then drops the events of those files from step
  /// `first_step` on. Throws RunError, and leaves no file then.
  EventFile(const std::string& folder, std::int64_t first_step);

  void scalar(const std::string& tag, std::int64_t step, double value);
  /// Adds a text, which TensorBoard shows as Markdown.
  void text(const std::string& tag, std::int64_t step, const std::string& text);
  void image(const std::string& tag, std::int64_t step, int width, int height, const std::string& png);
  /// Writes all events so far to the file. Throws RunError.
  void flush();

  const std::string& path() const { return path_; }

 private:
  void event(std::int64_t step, std::string_view fields);
  /// Throws RunError. `code` is an errno, or 0.
  [[noreturn]] void fail(int code) const;

  std::string path_;
  std::ofstream file_;
};

}  // namespace convnet
