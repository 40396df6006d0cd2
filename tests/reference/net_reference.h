// A slow, obvious, double-precision interpreter of whole nets. It reads what it needs from the two parsed
// files itself and shares no code with the graph, the plan or the layers: its results are what the files
// mean.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "convnet/config/ini.h"
#include "tests/reference/formulas.h"

namespace convnet::reference {

/// A matrix of a layer with everything that one update needs.
struct Matrix {
  Values values, increment;
  Values gradient;  ///< d(cost)/dw summed over the images
  double epsilon = 0, momentum = 0, decay = 0;
  bool state = false;  ///< running statistics: not learned
  /// Constraints act on rows of the matrix: the row of every element.
  std::vector<std::size_t> row;
  double norm_min = 0, norm_max = 0, ball = 0;
  bool shrink = false;  ///< ball: only rows above it
  bool learned() const { return !state && epsilon != 0; }
};

class NetReference {
 public:
  /// `provider`: dims of one image of each of the provider's matrices. Rates are those of progress 0.
  NetReference(const IniFile& definition, const IniFile& parameters, std::vector<Dims> provider,
               std::uint64_t seed);

  /// Matrices by tensor name ("conv1.weights.data", "conv1.biases"). They have their sizes and are zero; the
  /// test fills them.
  std::map<std::string, Matrix> matrices;

  /// `data`: the provider's matrices by dataIdx, an image after the other (labels as numbers), the mean
  /// subtracted. Training masks depend on `iteration`.
  void forward(const std::vector<Values>& data, bool training, std::uint64_t iteration);
  /// Does the same with images and labels alone.
  void forward(const Values& data, const std::vector<int>& labels, bool training, std::uint64_t iteration);
  /// Computes the gradients of the last forward and overwrites all earlier ones.
  void backward();
  /// Updates the weights with the gradients of the last forward and backward.
  void update();

  /// Output of a layer, implicit ones included ("conv1_neuron").
  const Values& output(const std::string& layer) const { return layers_.at(by_name_.at(layer)).y; }
  /// Values of all cost layers in order of the file, each without its children, summed over images.
  Values costs() const;
  /// Returns what training minimises: the sum of coeff * the first value of each cost.
  double objective() const;

 private:
  struct WeightUse {
    std::string name;     ///< into matrices
    bool learns = false;  ///< whether this layer adds to the gradient
  };
  struct RefLayer {
    std::string name, type;
    std::vector<std::size_t> inputs;
    Shape shape;
    std::size_t matrix = 0, start = 0;  ///< data: the provider's, and the first feature taken of it
    TapLayer taps;
    NormParams norm;
    float max_scale = 1;  ///< rscale
    Neuron neuron;
    bool mask = false;
    double keep = 1, train_scale = 1, test_scale = 1;  ///< dropout
    std::string drops = "values";                      ///< what dropout drops together
    bool center = false;                               ///< rgb2lab
    std::vector<ConvGeometry> conv;                    ///< weight layers: per input; fc is one of 1x1 images
    std::vector<WeightUse> weights;                    ///< per input
    WeightUse biases;                                  ///< name empty: none
    std::vector<std::size_t> bias_of;                  ///< bias index by output element of an image
    double epsilon = 0, average_factor = 0;            ///< bnorm
    BatchNormResult moments;
    CostParams cost;
    double coeff = 0;
    CostResult costs;
    Values y, dy;
    std::vector<Slope> slopes;
  };

  void add(const Keys& keys);
  void describe(RefLayer& layer, const Keys& keys);
  void describe_data(RefLayer& layer, const Keys& keys) const;
  void describe_weights(RefLayer& layer, const Keys& keys);
  void describe_biases(RefLayer& layer, const Keys& keys);
  void describe_batch_norm(RefLayer& layer, const Keys& keys);
  WeightUse own_weights(const RefLayer& layer, const Keys& keys, std::size_t i, const std::string& input);
  std::size_t add_implicit(RefLayer layer, std::size_t below, const std::string& name);

  void forward_layer(RefLayer& layer);
  void forward_data(RefLayer& layer, const std::vector<Values>& data) const;
  void forward_weights(RefLayer& layer);
  void forward_batch_norm(RefLayer& layer);
  void forward_dropout(RefLayer& layer);
  void forward_random_scale(RefLayer& layer);
  Values with_noise(const RefLayer& layer, Values x) const;
  void backward_weights(const RefLayer& layer);
  void backward_batch_norm(const RefLayer& layer);
  double mask(const RefLayer& layer, std::size_t element) const;

  std::vector<Dims> provider_;
  std::uint64_t seed_;
  std::vector<RefLayer> layers_;
  std::map<std::string, std::size_t> by_name_;  ///< every layer under its own name
  std::map<std::string, std::size_t>
      read_as_;  ///< the layer that `inputs=` of that name reads: its topmost implicit layer
  std::int64_t images_ = 0;
  bool training_ = false;
  std::uint64_t iteration_ = 0;
};

/// One momentum step of a matrix from the gradient of `images` images, then its constraints.
void update_matrix(Matrix& m, std::int64_t images);

}  // namespace convnet::reference
