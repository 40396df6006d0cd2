// The results of a test besides its costs: features, probabilities, errors by class.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convnet/net/outputs.h"
#include "convnet/net/predictions.h"
#include "convnet/net/target_scores.h"
#include "convnet/train/npy_writer.h"
#include "convnet/train/options.h"

namespace convnet {

/// Returns the classifier that the options name, or all of the net. Throws InputError if a file is for one of
/// them and the options do not say which, or as find_classifier() does.
std::vector<Classifier> tested_classifiers(const Graph& graph, const std::vector<MatrixInfo>& matrices,
                                           const TestOptions& options);

/// Collects the outputs of one test batch after the other, and writes the files of --write-features,
/// --test-out and --confusion. The output for an image is the mean over its views.
class TestOutputs {
 public:
  /// Returns the name of an image of a batch; see Provider::image_name().
  using NameImage = std::function<std::string(int batch, std::int64_t image)>;

  /// Throws InputError if an option names something that the net does not have. Keeps all references.
  /// `writes` says whether this process writes the files; of several, the first does.
  TestOutputs(const Net& net, const std::vector<MatrixInfo>& matrices, const TestOptions& options,
              bool writes = true, NameImage name = nullptr);

  /// Begins batch `number`, which has `images` images. Its steps follow.
  void begin_batch(int number, std::int64_t images);
  /// Returns the `after_task` for Executor::run() in the batch's next step, which runs `plan`.
  std::function<void(TaskId task)> reading(const Plan& plan) { return reader_.reading(plan); }
  /// Collects what other processes have read in the step, before add_step(). All of them call it.
  void collect() { reader_.collect(); }
  /// Adds a step that has ended. `inputs` are its matrices as in StepInputs, with all views of the images.
  void add_step(const Plan& plan, const std::vector<const std::byte*>& inputs);
  /// Makes the files of the batch appear under their names, and beside them a file with the names of its
  /// images, if these have names. Throws RunError.
  void end_batch();

  /// Returns the list of files that are not written if a run is stopped before it has tested `batches`, the
  /// rest of the test range.
  std::string missing(const BatchRange& batches) const;

  /// Writes the file of --confusion.
  void finish() const;
  /// Returns the errors by class and the scores of tags and numbers as text for the terminal; "" if the net
  /// does not classify.
  std::string errors_text() const;

  /// A classifier, and the counts of the classes that it takes images for.
  struct Counted {
    Classifier classifier;
    Confusion confusion;
  };
  /// Returns the counts for the cost.logreg that --logreg-name names, or for all of them.
  const std::vector<Counted>& counted() const { return counted_; }

  /// Returns the scores of tags and of numbers.
  const TargetScores& targets() const { return targets_; }

 private:
  /// The files of the current batch for one of the reader's layers.
  struct BatchFiles {
    std::optional<NpyWriter> values, labels;
  };

  void open(BatchFiles& files, const std::string& folder, const std::string& stem, std::size_t layer,
            int number, std::int64_t images);

  const TestOptions& options_;
  bool writes_;
  NameImage name_;
  int batch_ = 0;            ///< number of the current batch
  std::int64_t images_ = 0;  ///< images in it
  std::vector<Counted> counted_;
  TargetScores targets_;
  std::optional<std::size_t> labels_;  ///< the provider's matrix that is written beside features
  /// By matrix: bytes of an image; a label's first number is the class.
  std::vector<std::int64_t> label_bytes_;
  /// Reads the layer of --write-features, then the softmax of each classifier, then what targets_ needs.
  OutputReader reader_;
  BatchFiles features_, probabilities_;
};

}  // namespace convnet
