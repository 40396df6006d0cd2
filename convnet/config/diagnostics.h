// Places in the user's files, and the list of everything that is wrong with them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convnet/base/error.h"

namespace convnet {

/// A place in a file. Cheap to copy; every parsed value keeps the place that it comes from.
struct SourceLocation {
  std::shared_ptr<const std::string> file;  ///< null: not from a file (a command-line option)
  int line = 0;                             ///< 1-based
  /// Returns "configs/x.cfg:41", "configs/x.cfg" without a line, "" without a file.
  std::string str() const;
};

/// Collects all errors and warnings of a run, so that they are reported together.
class Diagnostics {
 public:
  /// The most errors, and the most warnings, that are kept; one more entry then says that more follow.
  static constexpr std::size_t max_messages = 1000;

  /// `message` reads like "layer 'conv2': unknown key 'fliterSize'; did you mean 'filterSize'?"
  void error(const SourceLocation& where, const std::string& message);
  void warning(const SourceLocation& where, const std::string& message);

  bool has_errors() const { return !errors_.empty(); }
  const std::vector<std::string>& errors() const { return errors_; }      ///< "file:line: message"
  const std::vector<std::string>& warnings() const { return warnings_; }  ///< "file:line: warning: message"
  /// Number of errors so far, including those beyond max_messages.
  std::size_t error_count() const { return error_count_; }
  /// Throws InputError with all errors, one on each line, if there are any. They are sorted by file and line;
  /// errors without a place come last.
  void throw_if_errors() const;

 private:
  std::vector<std::string> errors_, warnings_;
  std::vector<SourceLocation> error_places_;  ///< one for each error; empty for the entry "more follow"
  std::size_t error_count_ = 0;
};

/// Returns the candidate closest to `word` within `max_edits` edits (insertions, deletions, replacements and
/// exchanges of two neighbours; case-insensitive), the first of equally close ones; "" if there is none.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates, int max_edits = 2);

/// Returns how many edits a mistyped word may be away from what was meant, where there are many short words:
/// one for a word under six letters, which is near to many others, else two.
int typing_edits(std::string_view word);

/// Returns the end of a message about an unknown word: "; did you mean 'conv1'?" with the nearest candidate,
/// or "; " and `otherwise` if none is near ("" if that is empty, too).
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         const std::string& otherwise = "", int max_edits = 2);

/// Returns "a, b, c".
std::string join(const std::vector<std::string>& words, std::string_view separator = ", ");

}  // namespace convnet
