#include "tests/reference/taps.h"

#include <algorithm>
#include <cmath>

namespace convnet::reference {
namespace {

/// Returns for each output of a row the (source, weight) pairs that it reads.
using Axis = std::vector<std::vector<std::pair<std::int64_t, double>>>;

/// Output i reads [start + i*stride, + size), as far as it lies within [0, in).
Axis clipped(std::int64_t in, std::int64_t out, std::int64_t start, std::int64_t stride, std::int64_t size) {
  Axis axis(static_cast<std::size_t>(out));
  for (std::int64_t i = 0; i < out; ++i)
    for (std::int64_t k = 0; k < size; ++k) {
      const std::int64_t at = start + i * stride + k;
      if (at >= 0 && at < in) axis[static_cast<std::size_t>(i)].emplace_back(at, 1.0);
    }
  return axis;
}

Axis gaussian(std::int64_t side, std::int64_t size, double stdev) {
  const auto bell = [&](std::int64_t d) {
    return std::exp(-static_cast<double>(d * d) / (2 * stdev * stdev));
  };
  double sum = 0;
  for (std::int64_t d = -(size / 2); d <= size / 2; ++d) sum += bell(d);
  Axis axis = clipped(side, side, -(size / 2), 1, size);
  for (std::int64_t i = 0; i < side; ++i)
    for (auto& [at, weight] : axis[static_cast<std::size_t>(i)]) weight = bell(at - i) / sum;
  return axis;
}

/// nailbed: every stride-th pixel, as near to the middle as it goes.
Axis nails(std::int64_t side, std::int64_t stride) {
  const std::int64_t out = (side + stride - 1) / stride;
  return clipped(side, out, (side - stride * (out - 1)) / 2, stride, 1);
}

/// Bilinear, around the middle.
Axis resized(std::int64_t in, std::int64_t out, double scale) {
  const double middle = (static_cast<double>(in) - static_cast<double>(out) * scale) / 2;
  return bilinear(in, out, scale, middle);
}

TapLayer maps(const Shape& in, Rule rule, const Axis& rows, const Axis& cols) {
  return {rule,
          {in.c, static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(cols.size()), true},
          separable(in, rows, cols)};
}

/// Output map o at a pixel reads that pixel of the maps axis[o].
TapLayer across_maps(const Shape& in, Rule rule, const Axis& axis) {
  TapLayer layer{rule, {static_cast<std::int64_t>(axis.size()), in.h, in.w, true}, {}};
  for (const auto& sources : axis)
    for (std::int64_t s = 0; s < in.h * in.w; ++s) {
      std::vector<Tap>& taps = layer.taps.emplace_back();
      for (const auto& [map, weight] : sources)
        taps.push_back({0, static_cast<std::size_t>(map * in.h * in.w + s), weight});
    }
  return layer;
}

TapLayer pool(const Shape& in, const Keys& keys) {
  const auto of = [&](const std::string& key, bool down, std::int64_t otherwise) {
    const std::int64_t across = keys.integer(key, otherwise);
    return down ? keys.integer(key + "Y", across) : across;
  };
  const auto axis = [&](std::int64_t side, bool down) {
    const std::int64_t size = keys.integer("sizeX", 0), height = down ? keys.integer("sizeY", size) : size;
    if (size == 0) return clipped(side, 1, 0, 1, side);  // the whole map
    const std::int64_t stride = of("stride", down, 1), start = of("start", down, 0);
    const std::int64_t across = keys.integer("outputsX", 0);
    const std::int64_t outputs = down ? keys.integer("outputsY", across) : across;
    const bool floor = keys.text("rounding") == "down";
    const std::int64_t end = of("paddingEnd", down, floor && start < 0 ? -start : 0);
    const std::int64_t rest = side + end - start - height;
    const std::int64_t count = outputs > 0 ? outputs : floor ? rest / stride + 1 : windows(rest, stride);
    return clipped(side, count, start, stride, height);
  };
  const std::string kind = keys.text("pool");
  TapLayer layer = maps(in,
                        kind == "max"      ? Rule::largest
                        : kind == "maxabs" ? Rule::largest_abs
                                           : Rule::sum,
                        axis(in.h, true), axis(in.w, false));
  if (layer.rule != Rule::sum || keys.flag("sum", false)) return layer;
  for (std::vector<Tap>& window : layer.taps)
    for (Tap& tap : window) tap.weight = 1 / static_cast<double>(window.size());
  return layer;
}

TapLayer cmpool(const Shape& in, const Keys& keys) {
  const std::int64_t size = keys.integer("size", 0), stride = keys.integer("stride", 1);
  const std::int64_t start = keys.integer("start", 0), outputs = keys.integer("outputs", 0);
  return across_maps(
      in, Rule::largest,
      clipped(in.c, outputs > 0 ? outputs : windows(in.c - start - size, stride), start, stride, size));
}

TapLayer cmrnorm(const Shape& in, const Keys& keys) {
  const std::int64_t size = keys.integer("size", 0);
  Axis axis = clipped(in.c, in.c, -(size / 2), 1, size);
  if (keys.flag("blocked", false)) {
    for (std::int64_t c = 0; c < in.c; ++c)
      axis[static_cast<std::size_t>(c)] = clipped(in.c, 1, c / size * size, 1, size)[0];
  }
  return across_maps(in, Rule::normalise, axis);
}

TapLayer concat(const std::vector<Shape>& inputs) {
  TapLayer layer{Rule::sum, inputs[0], {}};
  layer.shape.c = 0;
  const auto fits = [&](const Shape& s) { return s.image && s.h == inputs[0].h && s.w == inputs[0].w; };
  const bool image = std::all_of(inputs.begin(), inputs.end(), fits);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    layer.shape.c += image ? inputs[i].c : inputs[i].size();
    for (std::int64_t e = 0; e < inputs[i].size(); ++e)
      layer.taps.push_back({{i, static_cast<std::size_t>(e)}});
  }
  if (!image) layer.shape = {layer.shape.c, 1, 1, false};
  return layer;
}

/// The maps of the input at `order`.
TapLayer maps_at(const Shape& in, const std::vector<std::int64_t>& order) {
  TapLayer layer{Rule::sum, in, {}};
  layer.shape.c = static_cast<std::int64_t>(order.size());
  const std::int64_t pixels = in.h * in.w;
  for (const std::int64_t map : order)
    for (std::int64_t s = 0; s < pixels; ++s)
      layer.taps.push_back({{0, static_cast<std::size_t>(map * pixels + s)}});
  return layer;
}

TapLayer slice(const Shape& in, const Keys& keys) {
  const std::int64_t start = keys.integer("start", 0), maps = keys.integer("maps", in.c - start);
  std::vector<std::int64_t> order;
  for (std::int64_t k = 0; k < maps; ++k) order.push_back(start + k);
  return maps_at(in, order);
}

TapLayer shuffle(const Shape& in, std::int64_t groups) {
  std::vector<std::int64_t> order;
  for (std::int64_t k = 0; k < in.c / groups; ++k)
    for (std::int64_t g = 0; g < groups; ++g) order.push_back(g * (in.c / groups) + k);
  return maps_at(in, order);
}

TapLayer element_wise(Rule rule, const std::vector<Shape>& inputs, const Keys& keys) {
  TapLayer layer{rule, inputs[0], {}};
  for (std::int64_t e = 0; e < inputs[0].size(); ++e) {
    std::vector<Tap>& taps = layer.taps.emplace_back();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      // A product may have a factor for each map.
      const std::int64_t element = inputs[i].size() < inputs[0].size() ? e / (inputs[0].h * inputs[0].w) : e;
      taps.push_back(
          {i, static_cast<std::size_t>(element), rule == Rule::sum ? keys.number_of("coeffs", i, "1") : 1});
    }
  }
  return layer;
}

TapLayer group_sum(const Shape& in, std::int64_t stride) {
  TapLayer layer{Rule::sum, {in.size() / stride, 1, 1, false}, {}};
  for (std::int64_t j = 0; j < layer.shape.c; ++j) {
    std::vector<Tap>& taps = layer.taps.emplace_back();
    for (std::int64_t k = 0; k < stride; ++k) taps.push_back({0, static_cast<std::size_t>(j * stride + k)});
  }
  return layer;
}

TapLayer yuv(const Shape& in) {
  const Axis rows = {{{0, .2126}, {1, .7152}, {2, .0722}},
                     {{0, -.09991}, {1, -.33609}, {2, .436}},
                     {{0, .615}, {1, -.55861}, {2, -.05639}}};
  return across_maps(in, Rule::sum, rows);
}

}  // namespace

std::int64_t windows(std::int64_t rest, std::int64_t stride) {
  std::int64_t count = 1;
  while (stride * (count - 1) < rest) ++count;
  return count;
}

Shape as_maps(const Shape& shape, std::int64_t channels) {
  if (shape.image) return shape;
  const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(shape.c / channels)));
  return {channels, side, side, true};
}

Axis bilinear(std::int64_t in, std::int64_t out, double scale, double start) {
  Axis axis;
  for (std::int64_t i = 0; i < out; ++i) {
    const double at =
        std::max(0.0, std::min(start + static_cast<double>(i) * scale, static_cast<double>(in) - 1.01));
    const auto left = static_cast<std::int64_t>(at);
    const double part = at - static_cast<double>(left);
    axis.push_back({{left, 1 - part}});
    if (part > 0) axis.back().emplace_back(left + 1, part);
  }
  return axis;
}

std::vector<std::vector<Tap>> separable(const Shape& in, const Axis& rows, const Axis& cols) {
  std::vector<std::vector<Tap>> all;
  for (std::int64_t c = 0; c < in.c; ++c)
    for (const auto& row : rows)
      for (const auto& col : cols) {
        std::vector<Tap>& taps = all.emplace_back();
        for (const auto& [y, wy] : row)
          for (const auto& [x, wx] : col)
            taps.push_back({0, static_cast<std::size_t>((c * in.h + y) * in.w + x), wy * wx});
      }
  return all;
}

TapLayer tap_layer(const std::string& type, const std::vector<Shape>& inputs, const Keys& keys) {
  if (type == "concat" || type == "pass") return concat(inputs);
  if (type == "eltsum") return element_wise(Rule::sum, inputs, keys);
  if (type == "eltmul") return element_wise(Rule::product, inputs, keys);
  if (type == "eltmax") return element_wise(Rule::largest, inputs, keys);
  if (type == "sum") return group_sum(inputs[0], keys.integer("stride", 1));
  const auto flat_or_maps = [&] {
    return keys.has("channels") ? as_maps(inputs[0], keys.integer("channels", 0)) : inputs[0];
  };
  if (type == "slice") return slice(flat_or_maps(), keys);
  if (type == "shuffle") return shuffle(flat_or_maps(), keys.integer("groups", 1));
  if (type == "rgb2yuv") return yuv(as_maps(inputs[0], 3));
  if (!keys.has("channels")) return {};
  const Shape in = as_maps(inputs[0], keys.integer("channels", 0));
  if (type == "pool") return pool(in, keys);
  if (type == "cmpool") return cmpool(in, keys);
  if (type == "cmrnorm") return cmrnorm(in, keys);
  if (type == "rnorm" || type == "cnorm") {
    const std::int64_t size = keys.integer("size", 0);
    return maps(in, type == "rnorm" ? Rule::normalise : Rule::normalise_sd,
                clipped(in.h, in.h, -(size / 2), 1, size), clipped(in.w, in.w, -(size / 2), 1, size));
  }
  if (type == "nailbed") {
    const std::int64_t stride = keys.integer("stride", 1);
    return maps(in, Rule::sum, nails(in.h, stride), nails(in.w, stride));
  }
  if (type == "blur") {
    const std::int64_t size = keys.integer("filterSize", 0);
    const double stdev = keys.number("stdev", 1);
    return maps(in, Rule::sum, gaussian(in.h, size, stdev), gaussian(in.w, size, stdev));
  }
  if (type == "href")
    return maps(in, Rule::sum, clipped(in.h, in.h, 0, 1, 1), clipped(in.w, in.w, in.w - 1, -1, 1));
  if (type == "crop") {
    const std::int64_t x = keys.integer("startX", 0), side = keys.integer("sizeX", 0);
    return maps(in, Rule::sum, clipped(in.h, side, keys.integer("startY", x), 1, 1),
                clipped(in.w, side, x, 1, 1));
  }
  if (type == "resize" || type == "rscale") {
    const double scale = keys.number(type == "resize" ? "scale" : "maxScale", 1);
    const auto out = [&](std::int64_t side) {
      return type == "resize" ? static_cast<std::int64_t>(std::floor(static_cast<double>(side) / scale))
                              : keys.integer("tgtSize", side);
    };
    return maps(in, Rule::sum, resized(in.h, out(in.h), scale), resized(in.w, out(in.w), scale));
  }
  return {};
}

}  // namespace convnet::reference
