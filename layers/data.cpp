// data: a matrix of the data provider.
#include "layers/layer.h"

namespace convnet {
namespace {

struct DataParams {
  int data_idx = 0;
};

class DataLayer : public Layer {
 public:
  bool labels = false;
  DataType source_type = DataType::u8;

  void forward(Lowering& l) const override {
    const Value src = l.source(static_cast<std::size_t>(data_matrix));
    if (labels) {
      l.run(LoadLabels{l.images()}, {src, l.output()});
      return;
    }
    const Value mean = l.mean_image();
    std::vector<Value> args = {src};
    if (mean.exists()) args.push_back(mean);
    args.push_back(l.output());
    l.run(LoadImages{output.dims(l.images()), source_type, mean.exists()}, args);
  }
  void backward(Lowering&) const override {}
};

std::shared_ptr<const Layer> create(const LayerType& type, const LayerSource& source) {
  DataParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const auto index = static_cast<std::size_t>(p.data_idx);
  if (index >= source.matrices.size()) {
    source.error("dataIdx", "dataIdx=" + std::to_string(p.data_idx) +
                                ", but the data provider has matrices 0-" +
                                std::to_string(source.matrices.size() - 1) + " (0 images, 1 labels)");
    return nullptr;
  }
  auto layer = std::make_shared<DataLayer>();
  layer->output = source.matrices[index].shape;
  layer->labels = source.matrices[index].classes > 0;
  layer->source_type = source.matrices[index].type;
  layer->data_matrix = p.data_idx;
  return layer;
}

}  // namespace

LayerType data_type() {
  LayerType type;
  type.name = "data";
  type.role = LayerRole::data;
  type.doc = "The images or labels of the data provider.";
  type.formula = "dataIdx 0: images minus the mean image; 1: labels";
  type.example = "[data]\ntype=data\ndataIdx=0";
  type.min_inputs = type.max_inputs = 0;
  type.params = {param("dataIdx", &DataParams::data_idx,
                       {.min = 0, .max = 1024, .doc = "the provider's matrix: 0 images, 1 labels"})};
  type.create = create;
  return type;
}

}  // namespace convnet
