#include "layers/weights.h"

namespace convnet {

void add_weights(Layer& layer, const WeightParams& params, const std::string& input, std::size_t i,
                 Dims dims) {
  layer.weights.push_back({"weights." + input,
                           std::move(dims),
                           params.init_w[i],
                           0,
                           {params.eps_w[i], params.mom_w[i], params.wc[i]}});
}

void add_biases(Layer& layer, const WeightParams& params, std::int64_t outputs) {
  layer.weights.push_back({"biases", {outputs}, 0, params.init_b, {params.eps_b, params.mom_b, 0}});
}

}  // namespace convnet
