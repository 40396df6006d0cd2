#include "layers/windows.h"

#include <algorithm>
#include <optional>

namespace convnet {
namespace {

/// Returns the number of windows along a side: 1 + (2*pad + img - filter) / stride, rounded. It is less than
/// 1 if not even one fits.
std::int64_t conv_side(std::int64_t img, std::int64_t filter, std::int64_t pad, std::int64_t stride,
                       Rounding rounding) {
  const std::int64_t rest = 2 * pad + img - filter;
  if (rounding == Rounding::down) return rest < 0 ? 0 : 1 + rest / stride;
  return 1 + (rest >= 0 ? (rest + stride - 1) / stride : -(-rest / stride));
}

/// Returns the number of filters of input i for messages, like "192 filters" or "96 filters in each of 2
/// groups".
std::string maps(const WindowParams& p, std::size_t i, const ConvGeometry& g) {
  const std::string filters = std::to_string(g.k / g.groups) + " filters";
  return p.groups[i] == 1 ? filters : filters + " in each of " + std::to_string(p.groups[i]) + " groups";
}

/// Returns the geometry of input i, with n = 0; nullopt after reporting errors.
std::optional<ConvGeometry> window_geometry(const LayerSource& source, const WindowParams& p, std::size_t i) {
  const std::optional<FeatureShape> in = as_maps(source, i, p.channels[i], "channels");
  const std::optional<std::int64_t> filters = p.filters[i].of(source, "filters");
  if (!in || !filters) return std::nullopt;
  ConvGeometry g;
  g.c = in->c;
  g.h = in->h;
  g.w = in->w;
  g.filter = p.filter_size[i];
  g.stride = p.stride[i];
  g.pad = p.padding[i];
  g.groups = p.groups[i];
  g.k = *filters * g.groups;
  if (g.c % g.groups != 0) {
    source.error("groups", "groups=" + std::to_string(g.groups) + " does not divide the " +
                               std::to_string(g.c) + " channels of input '" + source.inputs[i].name + "'");
    return std::nullopt;
  }
  for (std::int64_t side : {g.h, g.w}) {
    if (conv_side(side, g.filter, g.pad, g.stride, p.rounding) < 1) {
      source.error("filterSize", "filterSize=" + std::to_string(g.filter) + " is larger than the input '" +
                                     source.inputs[i].name + "' (" + in->str() + ") with its padding of " +
                                     std::to_string(g.pad));
      return std::nullopt;
    }
  }
  g.oh = conv_side(g.h, g.filter, g.pad, g.stride, p.rounding);
  g.ow = conv_side(g.w, g.filter, g.pad, g.stride, p.rounding);
  if (p.modules > 0 && p.rounding == Rounding::down) {
    source.error("rounding", "modulesX gives the side of the output; leave rounding out");
    return std::nullopt;
  }
  if (p.modules > 0) {
    for (std::int64_t side : {g.h, g.w}) {
      // -pad + stride*(side-1) + filterSize >= img: the windows must cover the image. They may leave out as
      // many pixels at the far edge as there are in the gaps between them.
      if (g.stride * (p.modules - 1) + std::max(g.filter, g.stride) - g.pad < side) {
        source.error(
            "modulesX",
            "modulesX=" + std::to_string(p.modules) + " windows of " + std::to_string(g.filter) +
                " pixels do not cover the " + std::to_string(side) + " pixels of input '" +
                source.inputs[i].name + "'; it takes at least " +
                std::to_string(conv_side(side, std::max(g.filter, g.stride), g.pad, g.stride, Rounding::up)));
        return std::nullopt;
      }
      // The last of the windows that there are without the key may lie outside, too.
      const std::int64_t most = std::max(conv_side(side, g.filter, g.pad, g.stride, Rounding::up),
                                         (side + g.pad - 1) / g.stride + 1);
      if (p.modules > most) {
        source.error("modulesX", "modulesX=" + std::to_string(p.modules) +
                                     " puts whole windows outside the image; use at most " +
                                     std::to_string(most));
        return std::nullopt;
      }
    }
    g.oh = g.ow = p.modules;
  }
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
