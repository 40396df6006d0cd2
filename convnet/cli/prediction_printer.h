// The results of `convnet predict` as they are printed: lines, CSV or JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "convnet/net/predictions.h"

namespace convnet {

/// A file with its outputs, or why it has none.
struct Prediction {
  std::string file, error;
  std::vector<std::vector<float>> outputs;  ///< by layer of the answer
};

enum class ResultForm { lines, csv, json };

/// Prints predictions as they come, lines and CSV at once, JSON at the end: the best classes where the answer
/// has classes, else the numbers of its layers.
class PredictionPrinter {
 public:
  /// `top`: number of classes to print for a file. `sizes`: how many numbers each layer of `answer` has.
  /// `files`: all that will come, which are aligned. Keeps a reference to `answer`.
  PredictionPrinter(ResultForm form, int top, const Answer& answer, const std::vector<std::int64_t>& sizes,
                    const std::vector<std::string>& files);

  /// Prints a prediction, or on stderr why there is none.
  void add(const Prediction& p);
  /// Prints what is left. Throws RunError if there was a file without a prediction.
  void finish();

 private:
  bool prints_classes() const { return !answer_.class_names.empty(); }
  void print_csv_header(const std::vector<std::int64_t>& sizes) const;
  void print_csv(const Prediction& p) const;
  void print_line(const Prediction& p) const;
  void add_json(const Prediction& p);

  const ResultForm form_;
  const std::size_t top_;
  const Answer& answer_;
  std::size_t widest_ = 0, count_ = 0, bad_ = 0;
  nlohmann::json files_ = nlohmann::json::array();
};

}  // namespace convnet
