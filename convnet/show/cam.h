// Grad-CAM: which pixels of an image spoke for a class (Selvaraju et al. 2017, arXiv 1610.02391).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/net/net.h"
#include "convnet/net/net_files.h"
#include "convnet/net/outputs.h"
#include "convnet/net/predictions.h"
#include "convnet/show/image_predictions.h"
#include "convnet/show/picture.h"
#include "convnet/show/run.h"

namespace convnet {

/// How much each place of a layer's maps speaks for a class.
struct CamMap {
  std::size_t cls = 0;
  double probability = 0;
  int height = 0, width = 0;
  std::vector<float> values;  ///< (height, width), 0 to 1; all 0 if no place speaks for the class
};

/// Computes Grad-CAM maps of one layer.
///
/// The score of a class is the input of the softmax, that of a tag the input of its logistic function. The
/// weight of a map is the mean over its pixels of the score's derivatives. The sum of the derivatives is the
/// derivative by a number that is added to all pixels of the map, so it is measured as a central difference:
/// the part of the net above the layer runs, as in a test, on copies of the layer's output in which one map
/// is a little higher or lower. A backward pass would be that of training, where batch norm and dropout
/// compute something else.
class CamNet {
 public:
  /// `provider` describes the data; `layer` "": the last layer with maps of more than one pixel. Throws
  /// InputError if there is no such layer below the softmax `softmax` ("": that of the first cost.logreg, or
  /// the probabilities of tags), or if the part of the net above it cannot run by itself. All arguments must
  /// outlive the object.
  CamNet(const Checkpoint& checkpoint, const Graph& graph, const Provider& provider,
         const DeviceOptions& devices, const StepOptions& step, const PixelStatistics& statistics,
         const std::string& layer, const std::string& softmax);

  const std::string& layer() const { return layer_; }
  const Classifier& classifier() const { return classifier_; }
  /// Returns "512 maps of 7x7".
  std::string maps_text() const;

  /// Returns the map of an image, whose matrices are those of the provider, for class `cls`, or if it is
  /// negative for the most probable one. Throws RunError if an output is not finite.
  CamMap map_of(const std::vector<const std::byte*>& matrices, std::int64_t cls);

 private:
  /// Runs the part of the net above the layer on `images` copies of its inputs. Returns the scores of a
  /// class.
  std::vector<double> scores(const std::vector<std::vector<float>>& inputs, std::int64_t images,
                             std::size_t cls);

  StepOptions step_;
  DeviceOptions devices_;
  Classifier classifier_;
  std::string layer_, logits_;
  FeatureShape shape_;                 ///< of the layer's output
  std::vector<std::string> boundary_;  ///< layers below which the net is cut; the first is `layer_`
  std::unique_ptr<Net> whole_;
  std::unique_ptr<OutputReader> reader_;  ///< the boundary's outputs, then the softmax's
  std::vector<MatrixInfo> matrices_;      ///< of the upper part: the provider's, then the boundary's outputs
  std::unique_ptr<const Provider> upper_provider_;
  std::unique_ptr<Net> upper_;
  std::unique_ptr<OutputReader> upper_reader_;  ///< the scores
};

/// Returns the number of a class that is given by its name, or by its number where no class has that name.
/// Throws InputError with the nearest name.
std::int64_t class_of(const Classifier& classifier, const std::string& text);

/// Returns the picture with the map over it: places that speak for the class are red, and yellow where they
/// do most. Small pictures are enlarged.
Picture draw_cam(const Picture& picture, const CamMap& map);

/// Pictures of test images with the maps of their most probable classes.
struct CamPictures {
  std::string maps;  ///< "512 maps of 7x7 of 'layer4'"
  std::vector<Picture> pictures;
};
/// Draws the maps of the last layer with maps over `pictures`, which are those of the `chosen` images.
/// `softmax` is that of the predictions, as in find_classifier_of(). Throws as CamNet does.
CamPictures cam_pictures(const Run& run, const std::string& softmax, const ImagePredictions& predictions,
                         const std::vector<std::size_t>& chosen, const std::vector<Picture>& pictures);

}  // namespace convnet
