// The inputs of `convnet predict`: files, folders, and what stands on stdin or in a list of names.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "convnet/cli/prediction_printer.h"
#include "providers/file_images.h"

namespace convnet {

/// Reads stdin as it comes: a line, the name of a file or folder, as soon as it is there, or an image.
class StdinReader {
 public:
  StdinReader() = default;
  /// Makes a reader of lines that were read from elsewhere.
  explicit StdinReader(std::string lines) : read_(std::move(lines)), ended_(true) {}

  /// Returns whether stdin holds an image or an array instead of names. Waits for its first bytes.
  bool is_file();
  /// Returns all of stdin.
  std::string whole();
  /// Returns whether line() would not wait: a whole line or the end of stdin is there.
  bool is_ready();
  /// Returns the next line without its end; nullopt at the end of stdin. Waits for it.
  std::optional<std::string> line();

 private:
  /// Adds to what was read. Returns false at the end of stdin.
  bool read_more();

  std::string read_;
  std::size_t begin_ = 0;  ///< of read_, of what line() has not returned yet
  bool ended_ = false;
};

/// Lists the images that arguments of the command name.
class PredictInputs {
 public:
  /// `named`: files, folders, and "-" for stdin. `paths` is a file with more names of files and folders, a
  /// line each, or "-" for stdin, which then holds no image; "": there is none. The images are for a net that
  /// was trained on `like`. Throws InputError if both are stdin, or as read_whole_file().
  PredictInputs(std::vector<std::string> named, const std::string& paths, const LikeSet& like);

  /// Images to classify together, and inputs that cannot be.
  struct Piece {
    std::vector<FileImage> images;
    std::vector<Prediction> left_out;
    bool empty() const { return images.empty() && left_out.empty(); }
  };
  /// Returns the next inputs, with at most `most` images; an empty piece if there are no more. Does not wait
  /// for names on stdin if there are others to return before them.
  Piece next(std::size_t most);
  /// Returns how many images were found and not returned yet.
  std::size_t waiting() const { return images_.size(); }
  /// Returns the names of these images.
  std::vector<std::string> names() const;

 private:
  /// Lists the inputs of an argument; those of "-" follow by list_line().
  void list(const std::string& name);
  /// Lists the inputs that a file or folder holds.
  void list_file(const std::string& path);
  /// Begins with stdin.
  void open_stdin();
  /// Lists the inputs that the next line of stdin names.
  void list_line();
  void leave_out(const std::string& name, const std::string& why);

  std::deque<std::string> named_;
  const LikeSet& like_;
  std::deque<FileImage> images_;
  std::vector<Prediction> left_out_;
  std::optional<std::string> list_;  ///< contents of `paths_` if that is a file
  std::string paths_;  ///< list of names that comes after named_; "": there is none, or it is being read
  StdinReader stdin_;
  bool in_stdin_ = false;
  /// The name of stdin or of the list, and what to say of it if it has no names.
  std::string lines_of_, no_lines_;
  std::size_t lines_ = 0;  ///< of stdin or the list, with a name
};

}  // namespace convnet
