// A layer with one forward and one backward operation, defined by a geometry: norms, pooling across maps.
#pragma once

#include "layers/layer.h"

namespace convnet {

/// A layer whose operations have a geometry, and whose backward operation reads the input.
template <class Geometry, class Forward, class Backward>
class GeometryLayer : public Layer {
 public:
  GeometryLayer(Geometry of_one, const FeatureShape& shape)
      : Layer(shape, {.backward_reads = BackwardReads::inputs, .cheap = true}), geometry(std::move(of_one)) {}

  void forward(Lowering& l) const override { l.run(Forward{at(l)}, {l.input(0), l.output()}); }
  void backward(Lowering& l) const override {
    l.run(Backward{at(l)}, {l.input(0), l.output_gradient(), l.input_gradient(0)});
  }

 private:
  Geometry at(const Lowering& l) const {
    Geometry g = geometry;
    g.n = l.microbatch().images;
    return g;
  }

  const Geometry geometry;  ///< n is set when lowering
};

}  // namespace convnet
