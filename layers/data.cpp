// data: a matrix of the data provider, or a slice of it.
#include "layers/layer.h"

namespace convnet {
namespace {

struct DataParams {
  int data_idx = 0, start = 0, end = 0;
};

class DataLayer : public Layer {
 public:
  /// The numbers from `first` on of matrix `index`.
  DataLayer(const FeatureShape& shape, int index, const SourceMatrix& whole, std::int64_t first)
      : Layer(shape, {.data = DataFacts{index, whole.classes}}),
        matrix(whole.shape),
        source_type(whole.type),
        start(first) {}

  void forward(Lowering& l) const override {
    const auto index = static_cast<std::size_t>(facts.data->matrix);
    const Value src = l.source(index);
    if (label_classes() > 0) {
      l.run(LoadLabels{l.microbatch().images, output.size()}, {src, l.output()});
      return;
    }
    const Value mean = l.mean_image();
    std::vector<Value> args = {src};
    if (mean.exists()) args.push_back(mean);
    args.push_back(l.output());
    const std::int64_t n = l.microbatch().images;
    l.run(LoadImages{matrix.dims(n), output.dims(n), start, source_type, mean.exists(),
                     l.uncropped_image(index)},
          args);
  }
  void backward(Lowering&) const override {}

 private:
  const FeatureShape matrix;
  const DataType source_type;
  const std::int64_t start;
};

std::shared_ptr<const Layer> create_data(const LayerType& type, const LayerSource& source) {
  DataParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const auto index = static_cast<std::size_t>(p.data_idx);
  if (index >= source.matrices.size()) {
    std::vector<std::string> matrices;
    for (const SourceMatrix& m : source.matrices)
      matrices.push_back(std::to_string(matrices.size()) + " '" + m.name + "' (" +
                         (m.classes > 0 ? std::to_string(m.classes) + " classes" : m.shape.str()) + ")");
    source.error("dataIdx", "dataIdx=" + std::to_string(p.data_idx) +
                                ", but the data provider has only matrix " + join(matrices));
    return nullptr;
  }
  const SourceMatrix& matrix = source.matrices[index];
  const std::int64_t end = p.end == 0 ? matrix.shape.size() : p.end;
  if (p.start >= end || end > matrix.shape.size()) {
    source.error(p.end == 0 ? "start" : "end", "the slice from " + std::to_string(p.start) + " to " +
                                                   std::to_string(end) + " is empty or goes beyond the " +
                                                   std::to_string(matrix.shape.size()) +
                                                   " numbers of matrix " + std::to_string(p.data_idx));
    return nullptr;
  }
  const bool whole = end - p.start == matrix.shape.size();
  if (matrix.classes > 0 && !whole) {
    source.error("start", "matrix " + std::to_string(p.data_idx) + " holds class labels, which are not cut");
    return nullptr;
  }
  return std::make_shared<DataLayer>(whole ? matrix.shape : FeatureShape{end - p.start, 1, 1, false},
                                     p.data_idx, matrix, p.start);
}

}  // namespace

LayerType data_type() {
  LayerType type;
  type.name = "data";
  type.role = LayerRole::data;
  type.doc = "The images, labels or another matrix of the data provider.";
  type.formula =
      "dataIdx 0: images minus the mean image; 1: labels; with start or end the slice is a flat vector";
  type.example = "[data]\ntype=data\ndataIdx=0";
  type.min_inputs = type.max_inputs = 0;
  type.params = {
      param("dataIdx", &DataParams::data_idx,
            {.min = 0, .max = 1024, .doc = "the provider's matrix: 0 images, 1 labels"}),
      param("start", &DataParams::start,
            {.fallback = "0", .min = 0, .max = 1 << 30, .doc = "first number of an image that is taken"}),
      param("end", &DataParams::end,
            {.fallback = "0", .min = 0, .max = 1 << 30, .doc = "one past the last number; 0: all of them"})};
  type.create = create_data;
  return type;
}

}  // namespace convnet
