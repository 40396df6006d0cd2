// pool: over windows of each map. cmpool: over windows of maps.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "layers/geometry_layer.h"
#include "layers/windows.h"

namespace convnet {
namespace {

struct PoolParams {
  PoolKind kind = PoolKind::max;
  int channels = 0, size = 0, stride = 1, start = 0, outputs = 0;
  // Without values for what is the same in both directions.
  std::optional<int> size_y, stride_y, start_y, outputs_y;
  std::optional<int> padding_end, padding_end_y;
  bool sum = false;
  Rounding rounding = Rounding::up;
};

class PoolLayer : public Layer {
 public:
  explicit PoolLayer(const PoolGeometry& of_one)
      : Layer({of_one.c, of_one.oh, of_one.ow, true},
              {.fuses_neuron = of_one.keeps_workspace() ? FusesNeuron::relu_and_gradient : FusesNeuron::no,
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

/// Returns (side - start - size) / stride + 1, rounded up or down.
std::int64_t pooled_side(std::int64_t side, std::int64_t start, std::int64_t size, std::int64_t stride,
                         Rounding rounding = Rounding::up) {
  const std::int64_t rest = side - start - size;
  if (rest <= 0) return 1;
  return (rounding == Rounding::down ? rest : rest + stride - 1) / stride + 1;
}

/// The windows along one direction of the map, and the keys that a message about them names.
struct PoolLine {
  WindowLine windows;                      ///< their number is set by fit()
  std::optional<std::int64_t> border_end;  ///< border behind the map that the file gives
  std::int64_t outputs;                    ///< number of windows that the file gives; 0: none
  const char *size_key, *stride_key, *start_key, *end_key, *outputs_key;

  std::int64_t border() const { return std::max<std::int64_t>(-windows.start, 0); }
};

/// Returns the windows along both directions: down, then across.
std::array<PoolLine, 2> lines_of(const PoolParams& p, const FeatureShape& in) {
  // A key with the suffix Y is as the one without it if it is not given.
  const std::optional<int> end_y = p.padding_end_y ? p.padding_end_y : p.padding_end;
  return {PoolLine{{in.h, 0, p.size_y.value_or(p.size), p.stride_y.value_or(p.stride),
                    p.start_y.value_or(p.start)},
                   end_y,
                   p.outputs_y.value_or(p.outputs),
                   p.size_y ? "sizeY" : "sizeX",
                   p.stride_y ? "strideY" : "stride",
                   p.start_y ? "startY" : "start",
                   p.padding_end_y ? "paddingEndY" : "paddingEnd",
                   p.outputs_y ? "outputsY" : "outputsX"},
          PoolLine{{in.w, 0, p.size, p.stride, p.start},
                   p.padding_end,
                   p.outputs,
                   "sizeX",
                   "stride",
                   "start",
                   "paddingEnd",
                   "outputsX"}};
}

/// Sets the number of windows. Returns false after reporting errors.
bool fit(const LayerSource& source, const PoolParams& p, PoolLine& line, const FeatureShape& in) {
  WindowLine& w = line.windows;
  if (line.outputs > 0 && p.rounding == Rounding::down) {
    source.error("rounding",
                 std::string(line.outputs_key) + " gives the side of the output: leave rounding out");
    return false;
  }
  if (line.outputs > 0 && line.border_end) {
    source.error(line.end_key, std::string(line.outputs_key) + " gives the side of the output: leave " +
                                   line.end_key + " out");
    return false;
  }
  // If the number is rounded down, there is as much border behind the map as a negative start puts before it.
  const std::int64_t behind = line.border_end.value_or(p.rounding == Rounding::down ? line.border() : 0);
  if (w.size > w.pixels + line.border() + behind) {
    const bool bordered = line.border() + behind > 0;
    source.error(line.size_key, line.size_key + ("=" + std::to_string(w.size)) +
                                    " is larger than the input '" + source.inputs[0].name + "' (" + in.str() +
                                    ")" +
                                    (bordered ? " with its border of " + std::to_string(line.border()) +
                                                    " before and " + std::to_string(behind) + " behind it"
                                              : ""));
    return false;
  }
  w.windows =
      line.outputs > 0 ? line.outputs : pooled_side(w.pixels + behind, w.start, w.size, w.stride, p.rounding);
  if (w.origin(0) + w.size <= 0 || w.origin(w.windows - 1) >= w.pixels) {
    // Without a border behind the map, only strides beyond the size of a window lead there.
    const bool strides = line.outputs == 0 && !line.border_end && w.origin(w.windows - 1) >= w.pixels &&
                         w.start + w.size > 0 && w.stride > w.size && w.windows > 1;
    source.error(line.outputs > 0  ? line.outputs_key
                 : line.border_end ? line.end_key
                 : strides         ? line.stride_key
                                   : line.start_key,
                 "a window lies wholly outside the " + std::to_string(w.pixels) + "-pixel image (" +
                     line.start_key + "=" + std::to_string(w.start) + ", " + line.stride_key + "=" +
                     std::to_string(w.stride) + ", " + std::to_string(w.windows) +
                     (w.windows == 1 ? " output)" : " outputs)") +
                     (strides ? "; rounding=down leaves it out" : ""));
    return false;
  }
  return true;
}

/// Warns of pixels between the windows, for each direction that has a stride or size of its own.
void warn_of_gaps(const LayerSource& source, const std::array<PoolLine, 2>& lines) {
  const auto& [down, across] = lines;
  const bool same_keys = down.stride_key == across.stride_key && down.size_key == across.size_key;
  for (const PoolLine& line : lines) {
    const WindowLine& w = line.windows;
    if (w.stride <= w.size || (same_keys && &line == &lines[1])) continue;
    source.warning(line.stride_key, line.stride_key + ("=" + std::to_string(w.stride)) + " is larger than " +
                                        line.size_key + "=" + std::to_string(w.size) +
                                        ": pixels between the windows are not used");
  }
}

/// Returns the keys that a layer which pools the whole map has but must not have.
std::vector<std::string> keys_of_windows(const PoolParams& p) {
  std::vector<std::string> keys;
  const auto add = [&](bool given, const char* key) {
    if (given) keys.emplace_back(key);
  };
  add(p.size_y.has_value(), "sizeY");
  add(p.stride_y.has_value(), "strideY");
  add(p.start_y.has_value(), "startY");
  add(p.outputs_y.has_value(), "outputsY");
  add(p.padding_end.has_value(), "paddingEnd");
  add(p.padding_end_y.has_value(), "paddingEndY");
  return keys;
}

std::shared_ptr<const Layer> create_pool(const LayerType& type, const LayerSource& source) {
  PoolParams p;
  if (!parse_own_keys(type, source, p)) return nullptr;
  const bool global = p.size == 0;
  if (global && (p.start != 0 || p.outputs > 1)) {
    source.error("sizeX", "sizeX=0 pools the whole map: start and outputsX must be left out");
    return nullptr;
  }
  if (const auto keys = keys_of_windows(p); global && !keys.empty()) {
    source.error(keys[0], "sizeX=0 pools the whole map: " + join(keys) + " must be left out");
    return nullptr;
  }
  if (!global && p.stride == 0) {
    source.error("stride", source.definition->find("stride") == nullptr
                               ? "'stride' is missing; it is the step between neighbouring windows, in pixels"
                               : "stride expects an integer of at least 1, not '0'");
    return nullptr;
  }
  if (global && p.rounding == Rounding::down) {
    source.error("rounding", "sizeX=0 pools the whole map: leave rounding out");
    return nullptr;
  }
  if (p.sum && p.kind != PoolKind::average) {
    source.error("sum", "sum=1 goes with pool=avg");
    return nullptr;
  }
  if (!source.inputs_are_right) return nullptr;
  const std::optional<FeatureShape> in = as_maps(source, 0, p.channels, "channels");
  if (!in) return nullptr;
  PoolGeometry g;
  g.kind = p.kind;
  g.c = in->c;
  g.h = in->h;
  g.w = in->w;
  g.sum = p.sum;
  if (global) {
    g.size = {in->h, in->w};
    g.oh = g.ow = 1;
    return std::make_shared<PoolLayer>(g);
  }
  std::array<PoolLine, 2> lines = lines_of(p, *in);
  for (PoolLine& line : lines)
    if (!fit(source, p, line, *in)) return nullptr;
  warn_of_gaps(source, lines);
  const auto& [down, across] = lines;
  g.size = {down.windows.size, across.windows.size};
  g.stride = {down.windows.stride, across.windows.stride};
  g.start = {down.windows.start, across.windows.start};
  g.oh = down.windows.windows;
  g.ow = across.windows.windows;
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
      "output: maps of side ceil((side + paddingEnd - start - sizeX)/stride) + 1; with rounding=down floor "
      "of the same, where paddingEnd is -start if start is negative: a border on both "
      "sides; keys that end in Y are for the vertical direction";
  type.example = "[pool1]\ntype=pool\npool=max\ninputs=conv1\nchannels=32\nsizeX=3\nstride=2\nneuron=relu";
  const auto vertical = [](const char* key, std::optional<int> PoolParams::*field, double least,
                           const char* unit, const char* doc) {
    return param(key, field, {.fallback = "", .min = least, .max = 4096, .unit = unit, .doc = doc});
  };
  type.params = {
      param_choice("pool", &PoolParams::kind,
                   {{"max", PoolKind::max}, {"avg", PoolKind::average}, {"maxabs", PoolKind::max_abs}},
                   {.doc = "what is taken of a window"}),
      param("channels", &PoolParams::channels,
            {.fallback = "0", .min = 0, .max = 1 << 20, .unit = "maps", .doc = kChannelsDoc}),
      param("sizeX", &PoolParams::size,
            {.min = 0, .max = 4096, .unit = "pixels", .doc = "side of the windows; 0 pools the whole map"}),
      vertical("sizeY", &PoolParams::size_y, 1, "pixels", "height of the windows, if it is not sizeX"),
      param("stride", &PoolParams::stride,
            {.fallback = "0",
             .min = 0,
             .max = 4096,
             .unit = "pixels",
             .doc = "step between neighbouring windows, at least 1; required unless sizeX=0"}),
      vertical("strideY", &PoolParams::stride_y, 1, "pixels", "step downwards, if it is not stride"),
      param("start", &PoolParams::start,
            {.fallback = "0",
             .min = -4096,
             .max = 4096,
             .unit = "pixels",
             .doc = "where the first window begins; may be negative"}),
      vertical("startY", &PoolParams::start_y, -4096, "pixels",
               "the row where it begins, if it is not start"),
      vertical("paddingEnd", &PoolParams::padding_end, 0, "pixels",
               "border to the right of the map and below it, of which windows see nothing; without the key "
               "none, or with rounding=down as much as to the left and above"),
      vertical("paddingEndY", &PoolParams::padding_end_y, 0, "pixels",
               "border below the map, if it is not paddingEnd"),
      param("outputsX", &PoolParams::outputs,
            {.fallback = "0",
             .min = 0,
             .max = 4096,
             .unit = "windows",
             .doc = "side of the output; 0: as the other keys say"}),
      vertical("outputsY", &PoolParams::outputs_y, 1, "windows",
               "height of the output, if it is not outputsX"),
      rounding_spec<PoolParams>(),
      param("sum", &PoolParams::sum, {.fallback = "0", .doc = "pool=avg only: sum instead of average"}),
  };
  type.create = create_pool;
  return type;
}

}  // namespace convnet
