// A slow, obvious, double-precision interpreter of whole nets. It reads what it needs from the two parsed
// files itself and shares no code with the graph, the plan or the layers: what it says is what the files
// mean.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "convnet/config/ini.h"
#include "kernels/ops.h"

namespace convnet::reference {

using Values = std::vector<double>;

/// A learned matrix and what one update needs.
struct Matrix {
  Values values, increment;
  Values gradient;  ///< d(cost)/dw summed over the images
  double epsilon = 0, momentum = 0, decay = 0;
};

class NetReference {
 public:
  /// `image`: (C,H,W) or (n) of the provider's matrix 0. Rates are those of progress 0.
  NetReference(const IniFile& definition, const IniFile& parameters, const Dims& image, std::uint64_t seed);

  /// By tensor name: "conv1.weights.data", "conv1.biases". Sized and zero; to be filled by the test.
  std::map<std::string, Matrix> matrices;

  /// `data` (N, image) with the mean subtracted; a label per image. Training masks depend on `iteration`.
  void forward(const Values& data, const std::vector<int>& labels, bool training, std::uint64_t iteration);
  /// Of the last forward. Overwrites all gradients.
  void backward();
  void update();

  /// Output of a layer, implicit ones included ("conv1_neuron").
  const Values& output(const std::string& layer) const { return layers_.at(by_name_.at(layer)).y; }
  /// All cost layers in order of the file: -log p, errors, top-k errors, summed over images.
  Values costs() const;
  /// What is minimised: coeff * -log p, summed.
  double objective() const;

 private:
  struct Shape {
    std::int64_t c = 0, h = 1, w = 1;
    bool image = false;
    std::int64_t size() const { return c * h * w; }
  };
  struct RefLayer {
    std::string name, type;
    std::vector<std::size_t> inputs;
    Shape shape;
    std::vector<ConvGeometry> conv;  ///< conv and fc: per input
    PoolGeometry pool;
    CrossMapNorm norm;
    Neuron neuron;
    bool mask = false;
    double keep = 1, train_scale = 1, test_scale = 1;  ///< dropout
    double coeff = 1;
    std::int64_t topk = 1;
    std::array<double, 3> costs{};
    Values y, dy, position;  ///< position: of the maxima of a pool
  };

  class Reader;  ///< of one layer's keys
  void add(const Reader& keys, const Dims& image);
  void add_weight_layer(RefLayer& layer, const Reader& keys);
  std::size_t add_implicit(RefLayer layer, std::size_t below, const std::string& suffix);
  Shape maps_of(std::size_t input, std::int64_t channels) const;
  const std::string& input_name(const RefLayer& layer, std::size_t i) const;

  void forward_weights(RefLayer& layer);
  void forward_dropout(RefLayer& layer);
  void forward_cost(RefLayer& layer);
  void backward_layer(const RefLayer& layer);
  void backward_weights(const RefLayer& layer);
  double mask(const RefLayer& layer, std::size_t element) const;

  std::uint64_t seed_;
  std::vector<RefLayer> layers_;
  std::map<std::string, std::size_t> by_name_;  ///< every layer under its own name
  std::map<std::string, std::size_t>
      read_as_;  ///< what `inputs=` of that name reads: its topmost implicit layer
  std::vector<std::vector<std::string>> written_inputs_;  ///< by layer, as the file names them
  std::int64_t images_ = 0;
  std::vector<int> labels_;
  bool training_ = false;
  std::uint64_t iteration_ = 0;
};

}  // namespace convnet::reference
