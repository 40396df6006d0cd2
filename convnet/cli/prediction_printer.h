// The results of `convnet predict` as they are printed: lines, CSV or JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "convnet/net/predictions.h"

namespace convnet {

/// An image with its outputs, or why it has none.
struct Prediction {
  std::string file;                         ///< name of the file, or of the record in it ("x.npy[3]")
  std::string error;                        ///< empty if there are outputs
  std::vector<std::vector<float>> outputs;  ///< by layer of the answer
};

enum class ResultForm { lines, csv, json };

/// Prints predictions as they come: the best classes where the answer has classes, else the numbers of its
/// layers. JSON is complete, and so valid, only after finish() or fail().
class PredictionPrinter {
 public:
  /// `top`: number of classes to print for an image. `sizes`: how many numbers each layer of `answer` has.
  /// `files`: the names of the images that are known to come, which are aligned. Prints to `out`, which must
  /// stay open. Keeps a reference to `answer`.
  PredictionPrinter(ResultForm form, int top, const Answer& answer, const std::vector<std::int64_t>& sizes,
                    const std::vector<std::string>& files, std::FILE* out = stdout);

  /// Prints a prediction, or on stderr why there is none.
  void add(const Prediction& p);
  /// Prints the end. Throws RunError if an image has no prediction.
  void finish();
  /// Prints the end if no more predictions come because of an error. JSON gets a member "error", so that
  /// nobody takes the object for a complete one.
  void fail(const std::string& error);

 private:
  bool prints_classes() const { return !answer_.class_names.empty(); }
  /// Makes the column of names as wide as this one, within bounds.
  void align_to(const std::string& file);
  void print_csv_header(const std::vector<std::int64_t>& sizes) const;
  void print_csv(const Prediction& p) const;
  void print_line(const Prediction& p);
  void print_json(const Prediction& p);
  void end_json();

  const ResultForm form_;
  const std::size_t top_;
  const Answer& answer_;
  std::size_t widest_ = 0, count_ = 0, bad_ = 0;
  std::FILE* const out_;
};

}  // namespace convnet
