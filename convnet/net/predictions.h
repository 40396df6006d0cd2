// The predictions of a net: the layers that make them, the classes of a cost.logreg, and how they are
// mistaken for each other.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "convnet/graph/graph.h"

namespace convnet {

/// The probabilities and labels that a cost.logreg compares.
struct Classifier {
  std::string cost;                      ///< layer name
  std::string softmax;                   ///< layer whose outputs are the probabilities
  std::size_t labels = 0;                ///< the provider's matrix
  std::int64_t outputs = 0;              ///< number of the softmax's outputs, at least that of classes
  std::vector<std::string> class_names;  ///< by output, printable; its number where the data set has no name
};

/// Returns printable names of the outputs of a layer that has one for each class or tag of the data set:
/// those of the first matrix that has as many names, else numbers.
std::vector<std::string> names_of_outputs(const std::vector<MatrixInfo>& matrices, std::int64_t outputs);

/// Returns the names of all cost.logreg layers.
std::vector<std::string> logreg_costs(const Graph& graph);
/// Finds the classifier of the cost.logreg layer `name`, or of the only such layer if `name` is empty. Throws
/// InputError listing those there are if there is none, or if `name` is empty and there are several.
Classifier find_classifier(const Graph& graph, const std::vector<MatrixInfo>& matrices,
                           const std::string& name);

/// Finds the classifier of the cost.logreg above the softmax layer `softmax`, or of the first cost.logreg if
/// `softmax` is empty. Throws InputError naming the softmax layers that there are.
Classifier find_classifier_of(const Graph& graph, const std::vector<MatrixInfo>& matrices,
                              const std::string& softmax);

/// The outputs that say what a net makes of an image.
struct Answer {
  std::vector<std::string> layers;  ///< as OutputReader takes them
  /// Printable names of the classes, by output, if the only layer has a probability for each; else empty.
  std::vector<std::string> class_names;
  /// Printable names of the numbers of a regression, by output, if the data set names them; else empty.
  std::vector<std::string> number_names = {};
};

/// Finds the answer that `layers`, the comma list of --output, asks for. If it is empty, that is the softmax
/// of the first cost.logreg, or where there is none, the layer that the first cost compares with its labels
/// or targets. Throws InputError for a layer that is named twice, as nodes_with_features() does, and if the
/// list is empty and no cost compares anything.
Answer find_answer(const Graph& graph, const std::vector<MatrixInfo>& matrices, const std::string& layers);
/// Returns whether find_answer() has an answer for an empty list.
bool has_answer(const Graph& graph);

/// Returns the most probable output; the first of equal ones.
std::int64_t best_output(std::span<const float> probabilities);

/// Returns the most probable outputs, at most `count`, best first; ties go to the first.
std::vector<std::size_t> best_outputs(std::span<const float> probabilities, std::size_t count);

/// Returns the text as a field of a CSV file: in quotes if it must be (RFC 4180), and with an apostrophe
/// before text that spreadsheets would compute (that begins with = + - @).
std::string csv_field(std::string text);

/// The errors of a class that has images.
struct ClassErrors {
  std::size_t label = 0;
  std::int64_t images = 0, wrong = 0;
  std::int64_t taken = 0;      ///< images that are taken for the class it is most often mistaken for
  std::int64_t taken_for = 0;  ///< that class, the first of several; 0 if there is none
  std::int64_t predicted = 0;  ///< images of all classes that are taken for this one
  std::int64_t right() const { return images - wrong; }
  double error() const { return static_cast<double>(wrong) / static_cast<double>(images); }
  /// Returns the part of the class's images that are taken for it.
  double recall() const { return static_cast<double>(right()) / static_cast<double>(images); }
  /// Returns the part of the images taken for the class that are of it; 0 if there are none.
  double precision() const {
    return predicted == 0 ? 0 : static_cast<double>(right()) / static_cast<double>(predicted);
  }
  /// Returns the harmonic mean of precision and recall, 2 * right / (images + predicted).
  double f1() const { return 2 * static_cast<double>(right()) / static_cast<double>(images + predicted); }
};

/// Means over classes, in which each class counts as much as any other.
struct MacroAverages {
  std::int64_t classes = 0;  ///< classes that have images, or that images are taken for
  double precision = 0, recall = 0, f1 = 0;
};

/// Counts how often images of each class are taken for each class.
class Confusion {
 public:
  /// All files of csv() begin so (OutputOption::begins).
  static constexpr const char* begins = "true class";

  /// `names` are those of the classes, by number.
  explicit Confusion(std::vector<std::string> names);

  /// Counts an image of class `label` that is taken for `predicted`. A label that is no class is not counted.
  void add(std::int64_t label, std::int64_t predicted);

  std::int64_t images() const { return images_; }
  /// Returns how many images of `label` are taken for `predicted`.
  std::int64_t count(std::int64_t label, std::int64_t predicted) const;

  /// Returns the errors of each class that has images, by class.
  std::vector<ClassErrors> by_class() const;
  /// Returns the means over all classes that have images or that images are taken for. A class without images
  /// counts as 0.
  MacroAverages macro_averages() const;
  /// Returns a line for each class that has images: its error, its images, and the class that it is most
  /// often mistaken for. The class with most errors comes first; there are at most `most` lines.
  std::string table(std::size_t most) const;
  /// Returns the counts as CSV (RFC 4180): a header of names, then a row for each true class with a column
  /// for each predicted one.
  std::string csv() const;

 private:
  /// Returns how many images are taken for each class that images are taken for.
  std::map<std::int64_t, std::int64_t> by_prediction() const;

  std::vector<std::string> names_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> counts_;  ///< by label and prediction
  std::int64_t images_ = 0;
};

}  // namespace convnet
