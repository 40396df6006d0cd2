// cmrnorm: local response normalisation across maps. rnorm, cnorm: within each map.
#include <algorithm>

#include "layers/geometry_layer.h"

namespace convnet {
namespace {

struct NormParams {
  int channels = 0, size = 0;
  bool blocked = false;    ///< cmrnorm only
  bool cross_map = false;  ///< refused by the others
  double scale = 0, power = 0, min_div = 1;
};

std::shared_ptr<const Layer> create_norm(const LayerType& type, const LayerSource& source) {
  NormParams p;
  if (!parse_own_keys(type, source, p)) return nullptr;
  const bool across = type.name == "cmrnorm";
  if (p.cross_map) {
    source.error("crossMap", "crossMap=1 normalises across maps, which layers of type " + type.name +
                                 " do not; write type=cmrnorm, without crossMap");
    return nullptr;
  }
  if (!source.inputs_are_right) return nullptr;
  const std::optional<FeatureShape> in = as_maps(source, 0, p.channels, "channels");
  if (!in) return nullptr;
  if (p.size > (across ? in->c : std::min(in->h, in->w)))
    source.warning("size", "size=" + std::to_string(p.size) + " is larger than the " +
                               (across ? "maps" : "image") + " of input '" + source.inputs[0].name + "' (" +
                               in->str() + "): windows are clipped, but " +
                               (across ? "scale/size" : "scale/size^2") + " is not");
  const auto scale = static_cast<float>(p.scale), power = static_cast<float>(p.power);
  const auto min_div = static_cast<float>(p.min_div);
  if (across)
    return std::make_shared<GeometryLayer<CrossMapNorm, CrossMapNormForward, CrossMapNormBackward>>(
        CrossMapNorm{0, in->c, in->h, in->w, p.size, p.blocked, scale, power, min_div}, *in);
  return std::make_shared<GeometryLayer<WindowNorm, WindowNormForward, WindowNormBackward>>(
      WindowNorm{0, in->c, in->h, in->w, p.size, type.name == "cnorm", scale, power, min_div}, *in);
}

LayerType window_norm_type(const std::string& name, std::string doc, std::string formula) {
  LayerType type;
  type.name = name;
  type.doc = std::move(doc);
  type.formula = std::move(formula);
  type.example = "[norm1]\ntype=" + name +
                 "\ninputs=pool1\nchannels=32\nsize=9\n\n; parameter file\n[norm1]\nscale=0.001\npow=0.75";
  type.params = {
      param("channels", &NormParams::channels,
            {.fallback = "0", .min = 0, .max = 1 << 20, .unit = "maps", .doc = kChannelsDoc}),
      param("size", &NormParams::size,
            {.min = 1, .max = 4096, .unit = "pixels", .doc = "side of the square windows; may be even"}),
      param("scale", &NormParams::scale,
            {.min = 0, .doc = "weight of the squares", .file = CfgFile::parameters}),
      param("pow", &NormParams::power, {.doc = "exponent of the denominator", .file = CfgFile::parameters}),
      param("minDiv", &NormParams::min_div,
            {.fallback = "1", .min = 1e-9, .doc = "constant part of the denominator", .file = CfgFile::both}),
      param("crossMap", &NormParams::cross_map,
            {.fallback = "0", .doc = "0; an older spelling of type=cmrnorm has 1 here, which is an error"}),
  };
  type.create = create_norm;
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
      "y_c = x_c * (minDiv + scale/size * sum x_i^2)^-pow over "
      "maps i from c - floor(size/2), size of them, clipped";
  type.example =
      "[rnorm1]\ntype=cmrnorm\ninputs=conv1\nchannels=64\nsize=5\n\n"
      "; parameter file\n[rnorm1]\nscale=0.0001\npow=0.75";
  type.params = {
      param("channels", &NormParams::channels,
            {.fallback = "0", .min = 0, .max = 1 << 20, .unit = "maps", .doc = kChannelsDoc}),
      param("size", &NormParams::size,
            {.min = 1, .max = 1 << 20, .unit = "maps", .doc = "maps in a window; may be even"}),
      param("blocked", &NormParams::blocked,
            {.fallback = "0", .doc = "1: windows are the aligned groups of size maps"}),
      param("scale", &NormParams::scale,
            {.min = 0, .doc = "weight of the squares", .file = CfgFile::parameters}),
      param("pow", &NormParams::power, {.doc = "exponent of the denominator", .file = CfgFile::parameters}),
      param("minDiv", &NormParams::min_div,
            {.fallback = "1", .min = 1e-9, .doc = "constant part of the denominator", .file = CfgFile::both}),
  };
  type.create = create_norm;
  return type;
}

}  // namespace convnet
