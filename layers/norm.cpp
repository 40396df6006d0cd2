// cmrnorm: local response normalisation across maps. rnorm, cnorm: within each map.
#include "layers/layer.h"

namespace convnet {
namespace {

struct CmrnormParams {
  int channels = 0, size = 0;
  bool blocked = false;
  double scale = 0, power = 0, min_div = 1;
};

class CmrnormLayer : public Layer {
 public:
  CrossMapNorm norm;  ///< n is set when lowering

  void forward(Lowering& l) const override { l.run(CrossMapNormForward{at(l)}, {l.input(0), l.output()}); }
  void backward(Lowering& l) const override {
    l.run(CrossMapNormBackward{at(l)}, {l.input(0), l.output_gradient(), l.input_gradient(0)});
  }

 private:
  CrossMapNorm at(const Lowering& l) const {
    CrossMapNorm p = norm;
    p.n = l.images();
    return p;
  }
};

std::shared_ptr<const Layer> create(const LayerType& type, const LayerSource& source) {
  CmrnormParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::optional<FeatureShape> in = as_maps(source, 0, p.channels, "channels");
  if (!in) return nullptr;
  auto layer = std::make_shared<CmrnormLayer>();
  layer->cheap = true;
  layer->norm = {0,
                 in->c,
                 in->h,
                 in->w,
                 p.size,
                 p.blocked,
                 static_cast<float>(p.scale),
                 static_cast<float>(p.power),
                 static_cast<float>(p.min_div)};
  layer->output = *in;
  layer->backward_reads_input = true;
  return layer;
}

struct WindowNormParams {
  int channels = 0, size = 0;
  double scale = 0, power = 0, min_div = 1;
};

class WindowNormLayer : public Layer {
 public:
  WindowNorm norm;  ///< n is set when lowering

  void forward(Lowering& l) const override { l.run(WindowNormForward{at(l)}, {l.input(0), l.output()}); }
  void backward(Lowering& l) const override {
    l.run(WindowNormBackward{at(l)}, {l.input(0), l.output_gradient(), l.input_gradient(0)});
  }

 private:
  WindowNorm at(const Lowering& l) const {
    WindowNorm p = norm;
    p.n = l.images();
    return p;
  }
};

std::shared_ptr<const Layer> create_window_norm(const LayerType& type, const LayerSource& source) {
  WindowNormParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::optional<FeatureShape> in = as_maps(source, 0, p.channels, "channels");
  if (!in) return nullptr;
  auto layer = std::make_shared<WindowNormLayer>();
  layer->cheap = true;
  layer->norm = {0,
                 in->c,
                 in->h,
                 in->w,
                 p.size,
                 type.name == "cnorm",
                 static_cast<float>(p.scale),
                 static_cast<float>(p.power),
                 static_cast<float>(p.min_div)};
  layer->output = *in;
  layer->backward_reads_input = true;
  return layer;
}

LayerType window_norm_type(const std::string& name, std::string doc, std::string formula) {
  LayerType type;
  type.name = name;
  type.doc = std::move(doc);
  type.formula = std::move(formula);
  type.example = "[norm1]\ntype=" + name +
                 "\ninputs=pool1\nchannels=32\nsize=9\n\n; parameter file\n[norm1]\nscale=0.001\npow=0.75";
  type.params = {
      param("channels", &WindowNormParams::channels,
            {.min = 1, .max = 1 << 20, .unit = "maps", .doc = "maps of the input"}),
      param("size", &WindowNormParams::size,
            {.min = 1, .max = 4096, .unit = "pixels", .doc = "side of the square windows; may be even"}),
      param("scale", &WindowNormParams::scale,
            {.min = 0, .doc = "weight of the squares", .file = CfgFile::parameters}),
      param("pow", &WindowNormParams::power,
            {.doc = "exponent of the denominator", .file = CfgFile::parameters}),
      param("minDiv", &WindowNormParams::min_div,
            {.fallback = "1", .min = 1e-9, .doc = "constant part of the denominator", .file = CfgFile::both}),
  };
  type.create = create_window_norm;
  return type;
}

}  // namespace

LayerType rnorm_type() {
  return window_norm_type("rnorm", "Local response normalisation within each map.",
                          "y = x * (minDiv + scale/size^2 * sum x_i^2)^-pow over the window from p - "
                          "floor(size/2), size wide, clipped");
}

LayerType cnorm_type() {
  return window_norm_type("cnorm", "Local contrast normalisation within each map.",
                          "as rnorm, with the squares of x_j - m_j, m_j the mean of j's own clipped window");
}

LayerType cmrnorm_type() {
  LayerType type;
  type.name = "cmrnorm";
  type.doc =
      "Local response normalisation across maps: each value is divided by a power of the squares around it.";
  type.formula =
      "y_c = x_c * (minDiv + scale/size * sum x_i^2)^-pow over maps i from c - floor(size/2), size of them, "
      "clipped";
  type.example =
      "[rnorm1]\ntype=cmrnorm\ninputs=conv1\nchannels=64\nsize=5\n\n; parameter "
      "file\n[rnorm1]\nscale=0.0001\npow=0.75";
  type.params = {
      param("channels", &CmrnormParams::channels,
            {.min = 1, .max = 1 << 20, .unit = "maps", .doc = "maps of the input"}),
      param("size", &CmrnormParams::size,
            {.min = 1, .max = 1 << 20, .unit = "maps", .doc = "maps in a window; may be even"}),
      param("blocked", &CmrnormParams::blocked,
            {.fallback = "0", .doc = "1: windows are the aligned groups of size maps"}),
      param("scale", &CmrnormParams::scale,
            {.min = 0, .doc = "weight of the squares", .file = CfgFile::parameters}),
      param("pow", &CmrnormParams::power,
            {.doc = "exponent of the denominator", .file = CfgFile::parameters}),
      param("minDiv", &CmrnormParams::min_div,
            {.fallback = "1", .min = 1e-9, .doc = "constant part of the denominator", .file = CfgFile::both}),
  };
  type.create = create;
  return type;
}

}  // namespace convnet
