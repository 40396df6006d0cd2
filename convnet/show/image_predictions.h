// A net's predictions for single test images, and drawings of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convnet/net/predictions.h"
#include "convnet/net/target_scores.h"
#include "convnet/show/canvas.h"
#include "convnet/show/run.h"

namespace convnet {

/// Test images with their true labels and a softmax layer's probabilities.
struct ImagePredictions {
  struct Image {
    int batch = 0;
    std::int64_t place = 0;  ///< index in the batch
    std::int64_t label = 0;
    std::string name = {};  ///< as Provider::image_name()
  };
  std::vector<std::string> classes;  ///< names by output of the softmax
  std::vector<Image> images;
  std::vector<float> probabilities;  ///< (images, classes)

  /// Returns an image's most probable classes, at most `count`, best first; ties go to the first class.
  std::vector<std::size_t> best(std::size_t image, std::size_t count) const;
  float probability(std::size_t image, std::size_t cls) const {
    return probabilities[image * classes.size() + cls];
  }
  Confusion confusion() const;
};

/// Tests the net on `batches`. Throws InputError where the data set cannot be used or is damaged, RunError
/// where an output is not finite.
ImagePredictions predict(const Run& run, const Classifier& classifier, const BatchRange& batches);

/// Tests the net on the test range, and scores its tags and numbers, if it has any. Throws as predict() does.
TargetScores score_targets(const Run& run);

/// Picks `count` random images of all, or of those whose best class is wrong; fewer if there are no more.
std::vector<std::size_t> choose_images(const ImagePredictions& predictions, std::size_t count,
                                       bool only_errors, std::uint64_t seed);

/// Draws an image of `info.dims` with these values: grey, RGB, or else the first channel. Values that are not
/// bytes are scaled so that the darkest is black and the brightest white.
Picture picture_of(std::vector<float> values, const MatrixInfo& info);

/// Draws images as the net sees them, but without the mean subtracted: grey, RGB, or else the first channel.
/// Pixels that are not bytes are scaled so that the darkest is black and the brightest white.
std::vector<Picture> pictures_of(const Run& run, const ImagePredictions& predictions,
                                 const std::vector<std::size_t>& chosen);

/// The size of a drawing, in pixels.
struct Size {
  int width = 0, height = 0;
};

/// Returns the size of the drawing of this many images.
Size predictions_size(std::size_t images);
/// Draws each chosen image with its true label and bars for the five best classes, four images in a row.
void draw_predictions(Canvas& canvas, const ImagePredictions& predictions,
                      const std::vector<std::size_t>& chosen, const std::vector<Picture>& pictures);

/// All files of predictions_csv() begin so (OutputOption::begins).
inline constexpr const char* kPredictionsBegin = "batch,image,";
/// Writes a header, then a line for each image: batch, index in it, name if the data set has names, true
/// label, and the five best classes with their probabilities (RFC 4180).
std::string predictions_csv(const ImagePredictions& predictions);

/// Returns the size of the drawing of a confusion matrix.
Size confusion_size(const std::vector<std::string>& classes);
/// Draws the confusion matrix. Rows are true classes, columns predicted ones; the shade of a cell is its
/// fraction of the row. Numbers and names are drawn if there is room.
void draw_confusion(Canvas& canvas, const Confusion& confusion, const std::vector<std::string>& classes);

}  // namespace convnet
