#include <algorithm>

#include "convnet/base/names.h"
#include "convnet/base/printable.h"
#include "layers/layer.h"

namespace convnet {

const std::vector<LayerType>& layer_types() {
  static const std::vector<LayerType> types = {
      data_type(),    fc_type(),     sfc_type(),      conv_type(),    local_type(),    pool_type(),
      cmpool_type(),  rnorm_type(),  cmrnorm_type(),  cnorm_type(),   bnorm_type(),    softmax_type(),
      concat_type(),  pass_type(),   slice_type(),    shuffle_type(), eltsum_type(),   eltmax_type(),
      eltmul_type(),  sum_type(),    neuron_type(),   dropout_type(), dropout2_type(), nailbed_type(),
      blur_type(),    href_type(),   crop_type(),     resize_type(),  rscale_type(),   rgb2yuv_type(),
      rgb2lab_type(), logreg_type(), crossent_type(), bce_type(),     dce_type(),      sum2_type()};
  return types;
}

const LayerType* find_layer_type(std::string_view name) {
  for (const LayerType& type : layer_types()) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

std::string nearest_layer_type(const std::string& name, int max_edits) {
  std::vector<std::string> words, types;  // what is compared, and the type that it stands for
  for (const LayerType& type : layer_types()) {
    words.push_back(type.name);
    types.push_back(type.name);
  }
  for (const LayerType& type : layer_types()) {
    const std::size_t dot = type.name.find('.');
    if (dot == std::string::npos) continue;
    words.push_back(type.name.substr(dot + 1));
    types.push_back(type.name);
  }
  const std::string close = nearest(name, words, max_edits);
  const auto found = std::find(words.begin(), words.end(), close);
  return found == words.end() ? "" : types[static_cast<std::size_t>(found - words.begin())];
}

std::string unknown_layer_type(const std::string& name) {
  std::vector<std::string> names;
  for (const LayerType& type : layer_types()) names.push_back(type.name);
  const std::string close = nearest_layer_type(name);
  return "unknown layer type " + excerpt(name) + "; " +
         (close.empty() ? "" : "did you mean '" + close + "'? ") + "known: " + join(names);
}

}  // namespace convnet
