// The graph of a net as a drawing.
#pragma once

#include "convnet/graph/graph.h"
#include "convnet/show/canvas.h"

namespace convnet {

/// Draws a box for each layer with its type, output and devices, in rows from the data at the top to the
/// costs at the bottom: a layer is below all layers that it reads. Neurons and dropout layers that come from
/// a key of their layer are part of its box.
class NetDrawing {
 public:
  explicit NetDrawing(const Graph& graph);
  double width() const { return width_; }
  double height() const { return height_; }
  void draw(Canvas& canvas) const;

 private:
  struct Layer {
    std::string name, facts;
    std::vector<std::size_t> inputs;  ///< indices into layers_
    Box box;
  };
  std::vector<Layer> layers_;
  double width_ = 0, height_ = 0;
};

}  // namespace convnet
