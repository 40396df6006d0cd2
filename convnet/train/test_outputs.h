// The results of testing a finished net besides the costs: features, probabilities, errors by class.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convnet/net/outputs.h"
#include "convnet/net/predictions.h"
#include "convnet/train/npy.h"
#include "convnet/train/options.h"

namespace convnet {

/// Collects the outputs of the test batches one after the other, and writes the files that options ask for:
/// --write-features, --test-out, --confusion. Views of an image count as one, their mean.
class TestOutputs {
 public:
  /// Makes the name of an image of a batch, as Provider::image_name().
  using NameImage = std::function<std::string(int batch, std::int64_t image)>;

  /// Throws InputError where an option asks for what the net does not have, or a file's folder cannot be
  /// written. References are kept. `writes`: whether this process writes the files; of several, the first
  /// does.
  TestOutputs(const Net& net, const std::vector<MatrixInfo>& matrices, const TestOptions& options,
              bool writes = true, NameImage name = nullptr);

  /// Begins batch `number`, of `images` images, whose steps follow.
  void begin_batch(int number, std::int64_t images);
  /// Returns what the executor shall do after each task of the batch's next step, by `plan`.
  std::function<void(TaskId task)> reading(const Plan& plan) { return reader_.reading(plan); }
  /// Collects what other processes have read in the step, before add_step(). All of them call it.
  void collect() { reader_.collect(); }
  /// Adds a step that is done. `inputs` are its matrices as in StepInputs, all views of the images.
  void add_step(const Plan& plan, const std::vector<const std::byte*>& inputs);
  /// Gives the batch's files their names, and writes those of its images, if they have any, beside them.
  /// Throws RunError.
  void end_batch();

  /// Lists what is not written, for the message of a run that is stopped before it has done `batches`, the
  /// rest of the test range.
  std::string missing(const BatchRange& batches) const;

  /// Writes --confusion.
  void finish() const;
  /// Returns the errors by class as text for the terminal; "" for nets that do not classify.
  std::string errors_text() const;
  /// Returns what images were taken for, and by which layers; null where errors are not counted by class.
  const Confusion* confusion() const { return confusion_ ? &*confusion_ : nullptr; }
  const Classifier* classifier() const { return classifier_ ? &*classifier_ : nullptr; }

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
  int batch_ = 0;            ///< the current one
  std::int64_t images_ = 0;  ///< of it
  const Graph& graph_;
  std::optional<Classifier> classifier_;
  std::optional<Confusion> confusion_;
  std::optional<std::size_t> labels_;  ///< matrix
  std::int64_t label_bytes_;           ///< of an image in it; its class is the first number
  OutputReader reader_;                ///< of the layer of --write-features, then the classifier's
  BatchFiles features_, probabilities_;
};

}  // namespace convnet
