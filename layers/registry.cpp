#include "layers/layer.h"

namespace convnet {

const std::vector<LayerType>& layer_types() {
  static const std::vector<LayerType> types = {data_type(),    conv_type(),   fc_type(),      pool_type(),
                                               cmrnorm_type(), neuron_type(), dropout_type(), dropout2_type(),
                                               softmax_type(), logreg_type()};
  return types;
}

const LayerType* find_layer_type(std::string_view name) {
  for (const LayerType& type : layer_types()) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

}  // namespace convnet
