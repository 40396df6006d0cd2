// A sequence of random nets in which every layer type and every neuron comes up.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/layers/small_net.h"

namespace convnet::test {

const Dims kRandomNetImage = {3, 8, 8};
constexpr int kRandomNetClasses = 4;
/// What the nets read beside images and labels: one-hot labels, and tags of 5 kinds.
const std::vector<ExtraMatrix>& random_net_matrices();

/// The layers of random nets: all kinds, or those that plans join with their neighbours, as in residual nets
/// and nets for phones, whose outputs several layers read.
enum class LayerKinds { all, joined };

/// Makes nets of random layers, the same for the same seed. Layers and neurons are dealt like cards, so each
/// kind comes up before any comes a second time. Outputs of layers stay about 1, where nothing saturates.
class RandomNets {
 public:
  explicit RandomNets(std::uint32_t seed, LayerKinds kinds = LayerKinds::all)
      : random_(seed), kinds_(kinds) {}

  NetTexts next();

 private:
  /// The cards of one kind that have not been dealt.
  using Deck = std::vector<std::string>;
  /// Maps, or a vector if `side` is 0.
  struct Tensor {
    std::string name;
    int channels = 0, side = 0;
    int size() const { return side == 0 ? channels : channels * side * side; }
  };

  std::size_t below(std::size_t n) { return random_() % n; }
  std::string deal(Deck& deck, const std::vector<std::string>& cards);
  Tensor add(const std::string& type, const std::string& keys, Tensor output,
             const std::string& parameters = "");
  std::string keys_of_weights(int inputs);
  std::string channels_of(const Tensor& in) const;
  Tensor bent(Tensor in);
  Tensor with_neuron(const std::string& type, const std::string& keys, Tensor output);
  Tensor convolved(const Tensor& in, int filters);
  Tensor on_data();
  Tensor above_maps(const Tensor& in);
  Tensor batch_norm(const Tensor& in);
  Tensor normalised(const Tensor& in);
  Tensor joined(const Tensor& in);
  Tensor above_vector(Tensor in);
  void add_cost(const Tensor& in);

  std::mt19937 random_;
  LayerKinds kinds_;
  Deck data_layers_, map_layers_, vector_layers_, costs_, neurons_;
  int count_ = 0;                    ///< of the layers of the present net
  std::string layers_, parameters_;  ///< of the present net
};

}  // namespace convnet::test
