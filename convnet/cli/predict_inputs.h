// The inputs of `convnet predict`: files, folders, and what stands on stdin.
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
  bool ended_ = false;
};

/// Lists the images that arguments of the command name.
class PredictInputs {
 public:
  /// `named`: files, folders, and "-" for stdin. The images are for a net that was trained on `like`.
  PredictInputs(std::vector<std::string> named, const LikeSet& like);

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
  StdinReader stdin_;
  bool in_stdin_ = false;
  std::size_t lines_ = 0;  ///< of stdin, with a name
};

}  // namespace convnet
