#include "convnet/show/net_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "convnet/show/font.h"

namespace convnet {
namespace {

constexpr double kWidth = 210, kHeight = 44, kGapX = 22, kGapY = 26, kEdge = 4;
constexpr double kNameSize = 14, kFactsSize = 12, kInset = 8;
constexpr Color kBox = {242, 244, 246};

std::string devices_of(const Node& node) {
  std::string text;
  for (const DeviceId d : node.gpus) text += (text.empty() ? "" : ",") + std::to_string(d.value());
  return text;
}

}  // namespace

NetDrawing::NetDrawing(const Graph& graph) {
  Table<NodeId, std::size_t> layer_of(graph.nodes.size(), 0);
  const bool several = graph.gpu_count() > 1;
  std::vector<std::size_t> rows;
  std::map<std::size_t, std::size_t> filled;  // boxes by row
  for (const Node& node : graph.nodes) {
    if (node.implicit && !node.division.gather && node.inputs.size() == 1) {  // drawn with its layer
      layer_of[node.id] = layer_of[node.inputs[0]];
      Layer& own = layers_[layer_of[node.id]];
      own.facts += node.type == "neuron" ? " +neuron" : " +dropout";
      continue;
    }
    Layer layer;
    layer.name = node.name;
    layer.facts = fmt::format("{} {}", node.type, node.layer->output.str());
    if (several) layer.facts += " gpu " + devices_of(node);
    std::size_t row = 0;
    for (const NodeId input : node.inputs) {
      layer.inputs.push_back(layer_of[input]);
      row = std::max(row, rows[layer_of[input]] + 1);
    }
    layer_of[node.id] = layers_.size();
    rows.push_back(row);
    const auto column = static_cast<double>(filled[row]++);
    layer.box = {kEdge + column * (kWidth + kGapX), kEdge + static_cast<double>(row) * (kHeight + kGapY),
                 kWidth, kHeight};
    layers_.push_back(std::move(layer));
  }
  for (const Layer& layer : layers_) {
    width_ = std::max(width_, layer.box.right() + kEdge);
    height_ = std::max(height_, layer.box.bottom() + kEdge);
  }
}

void NetDrawing::draw(Canvas& canvas) const {
  for (const Layer& layer : layers_) {
    for (const std::size_t input : layer.inputs) {
      const Box& from = layers_[input].box;
      const Box& to = layer.box;
      // Around the boxes between them, where there are any.
      const Point begin = {from.x + from.width / 2, from.bottom()}, end = {to.x + to.width / 2, to.y};
      const bool next = to.y - from.bottom() < 2 * kGapY;
      const double aside = from.right() + kGapX / 2;
      if (next || from.x != to.x)
        canvas.line({begin, {begin.x, begin.y + kGapY / 3}, {end.x, end.y - kGapY / 3}, end}, palette::faint,
                    1.2);
      else
        canvas.line({{from.right(), from.y + from.height / 2},
                     {aside, from.y + from.height / 2},
                     {aside, end.y - kGapY / 3},
                     {end.x, end.y - kGapY / 3},
                     end},
                    palette::faint, 1.2);
    }
  }
  for (const Layer& layer : layers_) {
    canvas.box(layer.box, kBox);
    const double room = layer.box.width - 2 * kInset;
    canvas.text({layer.box.x + kInset, layer.box.y + 18}, fitted(layer.name, kNameSize, room), palette::ink,
                kNameSize, Anchor::start);
    canvas.text({layer.box.x + kInset, layer.box.y + 36}, fitted(layer.facts, kFactsSize, room),
                palette::faint, kFactsSize, Anchor::start);
  }
}

}  // namespace convnet
