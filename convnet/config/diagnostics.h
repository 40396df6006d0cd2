// Places in the user's files, and the list of everything that is wrong with them.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "convnet/base/error.h"
#include "convnet/base/names.h"

namespace convnet {

/// A place in a file. Cheap to copy; every parsed value keeps the place that it comes from.
struct SourceLocation {
  std::shared_ptr<const std::string> file;  ///< null: not from a file (a command-line option)
  int line = 0;                             ///< 1-based
  /// The command-line option that replaced what the file has there, like "--set conv1.wc=0"; null: none.
  std::shared_ptr<const std::string> option = nullptr;
  /// For a place in a template: the lines that use it, the innermost first, like "line 40, line 90"; else
  /// null.
  std::shared_ptr<const std::string> uses = nullptr;
  bool has_copies =
      false;  ///< several sections come from there: those of a template, or of a repeated section
  /// Returns "configs/x.cfg:41", "configs/x.cfg" without a line, "" without a file; for an option, its text;
  /// for a place in a template "configs/x.cfg:41 (used in line 90)".
  std::string str() const;
};

/// Collects all errors and warnings of a run, so that they are reported together. What is wrong in a template
/// or a repeated section is reported once, for the first that it makes, and equal lines are reported once.
class Diagnostics {
 public:
  /// The most errors, and the most warnings, that are kept; one more entry then says that more follow.
  static constexpr std::size_t max_messages = 1000;

  /// `message` reads like "layer 'conv2': unknown key 'fliterSize'; did you mean 'filterSize'?"
  void error(const SourceLocation& where, const std::string& message);
  void warning(const SourceLocation& where, const std::string& message);
  /// Adds a line to the warnings as it is. Errors are printed without it.
  void note(const std::string& line);

  bool has_errors() const { return !errors_.empty(); }
  const std::vector<std::string>& errors() const { return errors_; }      ///< "file:line: message"
  const std::vector<std::string>& warnings() const { return warnings_; }  ///< "file:line: warning: message"
  /// Number of errors so far, including those beyond max_messages.
  std::size_t error_count() const { return error_count_; }
  /// Throws InputError with all errors, one on each line, if there are any. The warnings that have a place
  /// stand between them, because one often explains an error (the value of a key swallowed the line below).
  /// The lines are sorted by file and line; those without a place come last.
  void throw_if_errors() const;

 private:
  bool is_repeated(const SourceLocation& where, const std::string& message);

  std::vector<std::string> errors_, warnings_;
  /// The place of each error and of each warning; empty for the entry "more follow", and for notes.
  std::vector<SourceLocation> error_places_, warning_places_;
  std::size_t error_count_ = 0;
  std::set<std::string>
      of_copies_;  ///< what has been reported of places with copies, without names and values
};

}  // namespace convnet
