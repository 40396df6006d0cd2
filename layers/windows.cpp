#include "layers/windows.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

namespace convnet {
namespace {

/// The windows of a layer along one direction of an input, and the keys that a message about them names.
struct FilterLine {
  WindowLine windows;  ///< their number is set by fit()
  std::int64_t padding_end;
  std::int64_t modules;  ///< number of windows that the file gives; 0: none
  const char *filter_key, *dilation_key, *end_key, *modules_key;

  std::int64_t padding() const { return -windows.start; }
  /// Returns the number of windows, of at least `extent` pixels each: 1 + (padding + pixels + padding_end -
  /// extent) / stride, rounded. It is less than 1 if not even one fits.
  std::int64_t count(std::int64_t extent, Rounding rounding) const {
    const std::int64_t rest = padding() + windows.pixels + padding_end - extent;
    const std::int64_t stride = windows.stride;
    if (rounding == Rounding::down) return rest < 0 ? 0 : 1 + rest / stride;
    return 1 + (rest >= 0 ? (rest + stride - 1) / stride : -(-rest / stride));
  }
};

/// Returns the number of filters of input i for messages, like "192 filters" or "96 filters in each of 2
/// groups".
std::string maps(const WindowParams& p, std::size_t i, const ConvGeometry& g) {
  const std::string filters = std::to_string(g.k / g.groups) + " filters";
  return p.groups[i] == 1 ? filters : filters + " in each of " + std::to_string(p.groups[i]) + " groups";
}

/// Returns the windows of input i along both directions: down, then across.
std::array<FilterLine, 2> lines_of(const WindowParams& p, std::size_t i, const FeatureShape& in) {
  const bool tall = p.filter_size_y[i].has_value(), spread = p.dilation_y[i].has_value();
  const int padding_y = p.padding_y[i].value_or(p.padding[i]);
  const int padding_end = p.padding_end[i].value_or(p.padding[i]);
  const int below = p.padding_end[i] ? padding_end : padding_y;
  return {
      FilterLine{{in.h, 0, p.filter_size_y[i].value_or(p.filter_size[i]), p.stride_y[i].value_or(p.stride[i]),
                  -padding_y, p.dilation_y[i].value_or(p.dilation[i])},
                 p.padding_end_y[i].value_or(below),
                 p.modules_y.value_or(p.modules),
                 tall ? "filterSizeY" : "filterSize",
                 spread ? "dilationY" : "dilation",
                 p.padding_end_y[i] ? "paddingEndY" : "paddingEnd",
                 p.modules_y ? "modulesY" : "modulesX"},
      FilterLine{{in.w, 0, p.filter_size[i], p.stride[i], -p.padding[i], p.dilation[i]},
                 padding_end,
                 p.modules,
                 "filterSize",
                 "dilation",
                 "paddingEnd",
                 "modulesX"}};
}

/// Sets the number of windows. Returns false after reporting errors. `input` is for messages.
bool fit(const LayerSource& source, const WindowParams& p, FilterLine& line, const std::string& input,
         const FeatureShape& in) {
  WindowLine& w = line.windows;
  const std::int64_t extent = w.extent();
  w.windows = line.count(extent, p.rounding);
  if (w.windows < 1) {
    const std::string dilated = w.dilation == 1 ? ""
                                                : " with " + std::string(line.dilation_key) + "=" +
                                                      std::to_string(w.dilation) + " spans " +
                                                      std::to_string(extent) + " pixels, which";
    const std::string behind =
        line.padding_end == line.padding() ? "" : " and " + std::to_string(line.padding_end) + " behind it";
    source.error(line.filter_key, line.filter_key + ("=" + std::to_string(w.size)) + dilated +
                                      " is larger than the input " + input + " (" + in.str() +
                                      ") with its padding of " + std::to_string(line.padding()) + behind);
    return false;
  }
  if (line.modules == 0) return true;
  const std::string modules = line.modules_key + ("=" + std::to_string(line.modules));
  if (p.rounding == Rounding::down) {
    source.error("rounding",
                 std::string(line.modules_key) + " gives the side of the output; leave rounding out");
    return false;
  }
  if (line.padding_end != line.padding()) {
    source.error(line.end_key, std::string(line.modules_key) + " gives the side of the output; leave " +
                                   line.end_key + " out");
    return false;
  }
  // -pad + stride*(side-1) + filterSize >= img: the windows must cover the image. They may leave out as many
  // pixels at the far edge as there are in the gaps between them.
  const std::int64_t covered = std::max(extent, w.stride);
  if (w.origin(line.modules - 1) + covered < w.pixels) {
    const std::int64_t steps = (w.pixels + line.padding() - covered + w.stride - 1) / w.stride;
    source.error(line.modules_key, modules + " windows of " + std::to_string(extent) +
                                       " pixels do not cover the " + std::to_string(w.pixels) +
                                       " pixels of input " + input + "; it takes at least " +
                                       std::to_string(steps + 1));
    return false;
  }
  // The last of the windows that there are without the key may lie outside, too.
  const std::int64_t most =
      std::max(line.count(extent, Rounding::up), (w.pixels + line.padding() - 1) / w.stride + 1);
  if (line.modules > most) {
    source.error(line.modules_key,
                 modules + " puts whole windows outside the image; use at most " + std::to_string(most));
    return false;
  }
  w.windows = line.modules;
  return true;
}

/// Returns the geometry of input i, with n = 0; nullopt after reporting errors.
std::optional<ConvGeometry> window_geometry(const LayerSource& source, const WindowParams& p, std::size_t i) {
  const std::optional<FeatureShape> in = as_maps(source, i, p.channels[i], "channels");
  const std::optional<std::int64_t> filters = p.filters[i].of(source, "filters");
  if (!in || !filters) return std::nullopt;
  const std::string input = "'" + source.inputs[i].name + "'";
  ConvGeometry g;
  g.c = in->c;
  g.h = in->h;
  g.w = in->w;
  g.groups = p.groups[i];
  g.k = *filters * g.groups;
  if (g.c % g.groups != 0) {
    source.error("groups", "groups=" + std::to_string(g.groups) + " does not divide the " +
                               std::to_string(g.c) + " channels of input " + input);
    return std::nullopt;
  }
  std::array<FilterLine, 2> lines = lines_of(p, i, *in);
  for (FilterLine& line : lines)
    if (!fit(source, p, line, input, *in)) return std::nullopt;
  const auto& [down, across] = lines;
  g.filter = {down.windows.size, across.windows.size};
  g.stride = {down.windows.stride, across.windows.stride};
  g.pad = {down.padding(), across.padding()};
  g.dilation = {down.windows.dilation, across.windows.dilation};
  g.oh = down.windows.windows;
  g.ow = across.windows.windows;
  return g;
}

}  // namespace

std::vector<ConvGeometry> window_geometries(const LayerSource& source, const WindowParams& p) {
  std::vector<ConvGeometry> all;
  for (std::size_t i = 0; i < source.inputs.size(); ++i) {
    const std::optional<ConvGeometry> g = window_geometry(source, p, i);
    if (!g) return {};
    if (i > 0 && g->k != all[0].k) {
      source.error("filters",
                   "input '" + source.inputs[i].name + "' gives " + maps(p, i, *g) + ", but '" +
                       source.inputs[0].name + "' gives " + maps(p, 0, all[0]) +
                       "; the outputs of all inputs are added up, so filters*groups must be equal");
      return {};
    }
    if (i > 0 && (g->oh != all[0].oh || g->ow != all[0].ow)) {
      source.error("inputs", "input '" + source.inputs[i].name + "' gives an output of " +
                                 to_string(Dims{g->k, g->oh, g->ow}) + ", but '" + source.inputs[0].name +
                                 "' gives " + to_string(Dims{all[0].k, all[0].oh, all[0].ow}));
      return {};
    }
    all.push_back(*g);
  }
  return all;
}

}  // namespace convnet
