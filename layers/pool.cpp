// pool: over square windows of each map. cmpool: over windows of maps.
#include <algorithm>

#include "layers/geometry_layer.h"
#include "layers/windows.h"

namespace convnet {
namespace {

struct PoolParams {
  PoolKind kind = PoolKind::max;
  int channels = 0, size = 0, stride = 1, start = 0, outputs = 0;
  bool sum = false;
  Rounding rounding = Rounding::up;
};

class PoolLayer : public Layer {
 public:
  explicit PoolLayer(const PoolGeometry& of_one)
      : Layer({of_one.c, of_one.oh, of_one.ow, true},
              {.fuses_relu = of_one.keeps_workspace() ? FusesRelu::forward_and_gradient : FusesRelu::no,
               .cheap = true}),
        geometry(of_one) {}

  void forward(Lowering& l) const override {
    const PoolForward op{at(l), geometry.keeps_workspace() && l.microbatch().training, l.microbatch().fused};
    std::vector<Value> args = {l.input(0), l.output()};
    if (op.keep_workspace) args.push_back(workspace(l, op.g));
    l.run(op, args);
  }

  void backward(Lowering& l) const override {
    const PoolGeometry g = at(l);
    std::vector<Value> args = {l.output_gradient()};
    if (g.keeps_workspace()) args.push_back(workspace(l, g));
    args.push_back(l.input_gradient(0));
    l.run(PoolBackward{g}, args);
  }

 private:
  PoolGeometry at(const Lowering& l) const {
    PoolGeometry g = geometry;
    g.n = l.microbatch().images;
    return g;
  }
  static Value workspace(Lowering& l, const PoolGeometry& g) {
    return l.kept("argmax", g.dst(), g.workspace_type());
  }

  const PoolGeometry geometry;  ///< n is set when lowering
};

/// Returns (img - start - size) / stride + 1, rounded up or down. If it is rounded down, there is as much
/// border behind the image as a negative start puts before it.
std::int64_t pooled_side(std::int64_t img, std::int64_t start, std::int64_t size, std::int64_t stride,
                         Rounding rounding = Rounding::up) {
  const bool down = rounding == Rounding::down;
  const std::int64_t rest = img - start - size - (down ? std::min<std::int64_t>(start, 0) : 0);
  if (rest <= 0) return 1;
  return (down ? rest : rest + stride - 1) / stride + 1;
}

std::shared_ptr<const Layer> create(const LayerType& type, const LayerSource& source) {
  PoolParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::optional<FeatureShape> in = as_maps(source, 0, p.channels, "channels");
  if (!in) return nullptr;
  const bool global = p.size == 0;
  if (global && (p.start != 0 || p.outputs > 1)) {
    source.error("sizeX", "sizeX=0 pools the whole map: start and outputsX must be left out");
    return nullptr;
  }
  if (!global && p.stride == 0) {
    source.error("stride", source.definition->find("stride") == nullptr
                               ? "'stride' is missing; it is the step between neighbouring windows, in pixels"
                               : "stride expects an integer of at least 1, not '0'");
    return nullptr;
  }
  if (p.rounding == Rounding::down && (global || p.outputs > 0)) {
    source.error("rounding", std::string(global ? "sizeX=0 pools the whole map"
                                                : "outputsX gives the side of the output") +
                                 ": leave rounding out");
    return nullptr;
  }
  if (p.sum && p.kind != PoolKind::average) {
    source.error("sum", "sum=1 goes with pool=avg");
    return nullptr;
  }
  PoolGeometry g;
  g.kind = p.kind;
  g.c = in->c;
  g.h = in->h;
  g.w = in->w;
  // One window that is clipped to the map.
  g.size = global ? std::max(in->h, in->w) : p.size;
  g.stride = global ? 1 : p.stride;
  g.start = p.start;
  g.sum = p.sum;
  if (!global && (g.size > g.h || g.size > g.w)) {
    source.error("sizeX", "sizeX=" + std::to_string(g.size) + " is larger than the input '" +
                              source.inputs[0].name + "' (" + in->str() + ")");
    return nullptr;
  }
  g.oh = p.outputs > 0 ? p.outputs : pooled_side(g.h, g.start, g.size, g.stride, p.rounding);
  g.ow = p.outputs > 0 ? p.outputs : pooled_side(g.w, g.start, g.size, g.stride, p.rounding);
  for (const auto& [side, outputs] : {std::pair{g.h, g.oh}, std::pair{g.w, g.ow}}) {
    if (g.start + g.size <= 0 || g.start + g.stride * (outputs - 1) >= side) {
      source.error(p.outputs > 0 ? "outputsX" : "start",
                   "a window lies wholly outside the " + std::to_string(side) +
                       "-pixel image (start=" + std::to_string(g.start) +
                       ", stride=" + std::to_string(g.stride) + ", " + std::to_string(outputs) + " outputs)");
      return nullptr;
    }
  }
  if (!global && g.stride > g.size)
    source.warning("stride", "stride=" + std::to_string(g.stride) + " is larger than sizeX=" +
                                 std::to_string(g.size) + ": pixels between the windows are not used");
  return std::make_shared<PoolLayer>(g);
}

struct CmpoolParams {
  int pool = 0;  ///< one choice
  int channels = 0, size = 0, stride = 0, start = 0, outputs = 0;
};

/// Number of maps that lie in no window.
std::int64_t uncovered(std::int64_t maps, std::int64_t outputs, const CmpoolParams& p) {
  std::int64_t covered = 0, end = 0;  // `end`: one past the last map looked at so far
  for (std::int64_t i = 0; i < outputs; ++i) {
    const std::int64_t begin = std::max(end, p.start + p.stride * i);
    end = std::min(maps, std::max(end, p.start + p.stride * i + p.size));
    covered += std::max<std::int64_t>(0, end - begin);
  }
  return maps - covered;
}

std::shared_ptr<const Layer> create_cmpool(const LayerType& type, const LayerSource& source) {
  CmpoolParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::optional<FeatureShape> in = as_maps(source, 0, p.channels, "channels");
  if (!in) return nullptr;
  if (p.size > in->c) {
    source.error("size", "size=" + std::to_string(p.size) + " is larger than the " + std::to_string(in->c) +
                             " channels of input '" + source.inputs[0].name + "'");
    return nullptr;
  }
  const std::int64_t outputs = p.outputs > 0 ? p.outputs : pooled_side(in->c, p.start, p.size, p.stride);
  if (p.start + p.size <= 0 || p.start + p.stride * (outputs - 1) >= in->c) {
    source.error(p.outputs > 0 ? "outputs" : "start",
                 "a window lies wholly outside the " + std::to_string(in->c) +
                     " maps (start=" + std::to_string(p.start) + ", stride=" + std::to_string(p.stride) +
                     ", " + std::to_string(outputs) + " outputs)");
    return nullptr;
  }
  if (const std::int64_t unused = uncovered(in->c, outputs, p); unused > 0)
    source.warning("size", std::to_string(unused) + " of the " + std::to_string(in->c) + " maps of input '" +
                               source.inputs[0].name + "' lie in no window (size=" + std::to_string(p.size) +
                               ", stride=" + std::to_string(p.stride) + ", start=" + std::to_string(p.start) +
                               ", " + std::to_string(outputs) + " outputs) and are not used");
  return std::make_shared<GeometryLayer<CrossMapPool, CrossMapPoolForward, CrossMapPoolBackward>>(
      CrossMapPool{0, in->c, in->h, in->w, outputs, p.size, p.stride, p.start},
      FeatureShape{outputs, in->h, in->w, true});
}

}  // namespace

LayerType cmpool_type() {
  LayerType type;
  type.name = "cmpool";
  type.doc = "Pooling across maps: the maximum of windows of neighbouring maps at every pixel.";
  type.formula = "output: ceil((channels - start - size)/stride) + 1 maps";
  type.example = "[cmpool1]\ntype=cmpool\npool=max\ninputs=conv1\nchannels=32\nsize=2\nstride=2";
  type.params = {
      param_choice("pool", &CmpoolParams::pool, {{"max", 0}}, {.doc = "what is taken of a window"}),
      param("channels", &CmpoolParams::channels,
            {.fallback = "0", .min = 0, .max = 1 << 20, .unit = "maps", .doc = kChannelsDoc}),
      param("size", &CmpoolParams::size,
            {.min = 1, .max = 1 << 20, .unit = "maps", .doc = "maps of a window"}),
      param("stride", &CmpoolParams::stride,
            {.min = 1, .max = 1 << 20, .unit = "maps", .doc = "step between neighbouring windows"}),
      param("start", &CmpoolParams::start,
            {.fallback = "0",
             .min = -(1 << 20),
             .max = 1 << 20,
             .unit = "maps",
             .doc = "where the first window begins; may be negative"}),
      param("outputs", &CmpoolParams::outputs,
            {.fallback = "0",
             .min = 0,
             .max = 1 << 20,
             .unit = "maps",
             .doc = "output maps; 0 covers the input",
             .aliases = {"outputChannels"}}),
  };
  type.create = create_cmpool;
  return type;
}

LayerType pool_type() {
  LayerType type;
  type.name = "pool";
  type.doc =
      "Pooling: the maximum, the average or the value of largest magnitude "
      "of each window of each map. Windows are clipped at the border.";
  type.formula =
      "output: maps of side ceil((side - start - sizeX)/stride) + 1; with rounding=down floor of the same, "
      "where a negative start counts twice, as a border on both sides";
  type.example = "[pool1]\ntype=pool\npool=max\ninputs=conv1\nchannels=32\nsizeX=3\nstride=2\nneuron=relu";
  type.params = {
      param_choice("pool", &PoolParams::kind,
                   {{"max", PoolKind::max}, {"avg", PoolKind::average}, {"maxabs", PoolKind::max_abs}},
                   {.doc = "what is taken of a window"}),
      param("channels", &PoolParams::channels,
            {.fallback = "0", .min = 0, .max = 1 << 20, .unit = "maps", .doc = kChannelsDoc}),
      param("sizeX", &PoolParams::size,
            {.min = 0,
             .max = 4096,
             .unit = "pixels",
             .doc = "side of the square windows; 0 pools the whole map"}),
      param("stride", &PoolParams::stride,
            {.fallback = "0",
             .min = 0,
             .max = 4096,
             .unit = "pixels",
             .doc = "step between neighbouring windows, at least 1; required unless sizeX=0"}),
      param("start", &PoolParams::start,
            {.fallback = "0",
             .min = -4096,
             .max = 4096,
             .unit = "pixels",
             .doc = "where the first window begins; may be negative"}),
      param("outputsX", &PoolParams::outputs,
            {.fallback = "0",
             .min = 0,
             .max = 4096,
             .unit = "windows",
             .doc = "side of the output; 0: as the other keys say"}),
      rounding_spec<PoolParams>(),
      param("sum", &PoolParams::sum, {.fallback = "0", .doc = "pool=avg only: sum instead of average"}),
  };
  type.create = create;
  return type;
}

}  // namespace convnet
