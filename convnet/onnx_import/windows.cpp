// Convolutions, pooling, and zeros around maps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "convnet/base/printable.h"
#include "convnet/onnx_import/operators.h"

namespace convnet {
namespace {

/// The windows of an operator along both sides of maps.
struct Windows {
  std::int64_t size = 1, stride = 1;
  /// Pixels of border before and behind the maps.
  std::int64_t top = 0, left = 0, bottom = 0, right = 0;
  bool ceil = false;
  std::int64_t oh = 0, ow = 0;
};

/// The number of windows along a side.
std::int64_t windows_along(std::int64_t side, std::int64_t before, std::int64_t behind, const Windows& w) {
  const std::int64_t rest = side + before + behind - w.size;
  if (rest < 0) throw CannotImport("its windows are larger than the maps");
  if (!w.ceil) return rest / w.stride + 1;
  const std::int64_t count = (rest + w.stride - 1) / w.stride + 1;
  // A window that would begin behind the maps is left out.
  return (count - 1) * w.stride >= side + before ? count - 1 : count;
}

/// Returns the only number of a list, which has one for each side; `what` is for messages.
std::int64_t equal_sides(const std::vector<std::int64_t>& sides, const char* what, std::int64_t most) {
  if (sides.size() != 2) throw CannotImport(fmt::format("it has {} sides, not 2", sides.size()));
  if (sides[0] != sides[1])
    throw CannotImport(fmt::format("its {} is {}x{}; layers have square ones", what, sides[0], sides[1]));
  if (sides[0] < 1 || sides[0] > most) throw CannotImport(fmt::format("its {} is {}", what, sides[0]));
  return sides[0];
}

constexpr std::int64_t kMostSide = 4096;

/// Reads the attributes that windows have in common. `filter` is the size that a convolution's weights have.
Windows read_windows(const OperatorCall& call, const FeatureShape& in, std::int64_t filter_h,
                     std::int64_t filter_w) {
  Windows w;
  const std::vector<std::int64_t> shape = call.integers("kernel_shape", {filter_h, filter_w});
  if (filter_h > 0 && shape != std::vector{filter_h, filter_w})
    throw CannotImport("its kernel_shape is not that of its weights");
  w.size = equal_sides(shape, "window", kMostSide);
  w.stride = equal_sides(call.integers("strides", {1, 1}), "stride", kMostSide);
  const std::int64_t dilation = equal_sides(call.integers("dilations", {1, 1}), "dilation", kMostSide);
  if (dilation != 1 && w.size > 1)
    throw CannotImport(fmt::format("it has a dilation of {}, which no layer has", dilation));
  w.ceil = call.integer("ceil_mode", 0) != 0;
  const std::string automatic = call.text("auto_pad", "NOTSET");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    const auto pad = [&](std::int64_t side, std::int64_t& before, std::int64_t& behind) {
      const std::int64_t outputs = (side + w.stride - 1) / w.stride;
      const std::int64_t all = std::max<std::int64_t>(0, (outputs - 1) * w.stride + w.size - side);
      (automatic == "SAME_UPPER" ? before : behind) = all / 2;
      (automatic == "SAME_UPPER" ? behind : before) = all - all / 2;
    };
    pad(in.h, w.top, w.bottom);
    pad(in.w, w.left, w.right);
  } else if (automatic == "NOTSET") {
    const std::vector<std::int64_t> pads = call.integers("pads", {0, 0, 0, 0});
    if (pads.size() != 4) throw CannotImport("its pads are not 4 numbers");
    if (std::ranges::any_of(pads, [](std::int64_t pad) { return pad < 0 || pad > kMostSide; }))
      throw CannotImport("its pads are out of range");
    w.top = pads[0];
    w.left = pads[1];
    w.bottom = pads[2];
    w.right = pads[3];
  } else if (automatic != "VALID") {
    throw CannotImport("its auto_pad is " + excerpt(automatic));
  }
  return w;
}

void count_windows(Windows& w, const FeatureShape& in) {
  w.oh = windows_along(in.h, w.top, w.bottom, w);
  w.ow = windows_along(in.w, w.left, w.right, w);
}

/// Takes in a border of zeros that lies below the windows. Returns the layer below it, or `id` if there is
/// none. `value_fits` says whether windows see the border as they see their own.
SketchId take_border(const NetSketch& net, SketchId id, Windows& w, FeatureShape& in, bool value_fits) {
  const SketchLayer& layer = net[id];
  if (layer.type != "pad" || !value_fits) return id;
  w.top += layer.border.top;
  w.left += layer.border.left;
  w.bottom += layer.border.bottom;
  w.right += layer.border.right;
  in = net.shape(layer.inputs[0]);
  return layer.inputs[0];
}

std::string pads_text(const Windows& w) {
  return fmt::format("{},{},{},{} (top, left, bottom, right)", w.top, w.left, w.bottom, w.right);
}

using Keys = std::vector<std::pair<std::string, std::string>>;

/// Adds the keys of a convolution's windows that give the outputs of `w`.
void add_conv_windows(Keys& keys, const Windows& w, const FeatureShape& in) {
  const auto outputs = [&](bool up) {
    const auto along = [&](std::int64_t side) {
      const std::int64_t rest = side + 2 * w.top - w.size;
      return rest < 0 ? 0 : 1 + (up ? rest + w.stride - 1 : rest) / w.stride;
    };
    return std::pair{along(in.h), along(in.w)};
  };
  if (w.top != w.left)
    throw CannotImport("its pads are " + pads_text(w) + "; layers have as many above as to the left");
  keys.emplace_back("filterSize", std::to_string(w.size));
  if (w.top > 0) keys.emplace_back("padding", std::to_string(w.top));
  if (w.stride > 1) keys.emplace_back("stride", std::to_string(w.stride));
  const std::pair wanted{w.oh, w.ow};
  if (outputs(true) == wanted) return;
  if (outputs(false) == wanted) {
    keys.emplace_back("rounding", "down");
    return;
  }
  const auto covers = [&](std::int64_t side, std::int64_t count) {
    const std::int64_t end = w.stride * (count - 1) + std::max(w.size, w.stride) - w.top;
    return end >= side && count <= (side + w.top - 1) / w.stride + 1;
  };
  if (w.oh != w.ow || !covers(in.h, w.oh) || !covers(in.w, w.ow))
    throw CannotImport("its pads are " + pads_text(w) + ", which no layer has");
  keys.emplace_back("modulesX", std::to_string(w.oh));
}

std::vector<SourceValue> import_conv(OperatorCall& call) {
  const Constant& weights = call.constant(1);
  if (weights.dims.size() != 4 || !weights.is_float())
    throw CannotImport(
        fmt::format("its weights are {}; layers have filters of 2 sides", to_string(weights.dims)));
  FeatureShape in;
  SketchId below = as_maps(call, call.activation(0), in);
  Windows w = read_windows(call, in, weights.dims[2], weights.dims[3]);
  below =
      take_border(call.net, below, w, in, call.net[below].type == "pad" && call.net[below].border.value == 0);
  count_windows(w, in);
  const std::int64_t groups = call.integer("group", 1), filters = weights.dims[0];
  if (groups < 1 || in.c % groups != 0 || filters % groups != 0 || weights.dims[1] != in.c / groups ||
      filters == 0)
    throw CannotImport(fmt::format("its weights of {} do not fit {} channels in {} groups",
                                   to_string(weights.dims), in.c, groups));
  SketchLayer layer{"conv", {below}, {filters, w.oh, w.ow, true}, {}, {}, {}, {}};
  layer.keys = {{"channels", std::to_string(in.c)}, {"filters", std::to_string(filters / groups)}};
  if (groups > 1) layer.keys.emplace_back("groups", std::to_string(groups));
  add_conv_windows(layer.keys, w, in);
  layer.matrices["weights"] = as_matrix(call.constant_pointer(1), weights.dims);
  if (call.has(2)) {
    const Constant& biases = call.constant(2);
    if (!biases.is_float() || biases.count() != filters)
      throw CannotImport("its biases are not as many as its filters");
    layer.matrices["biases"] = as_matrix(call.constant_pointer(2), {filters});
  }
  const FeatureShape out = layer.shape;
  return {stored_activation(call.net.add(std::move(layer)), out, call.activation(0).images)};
}

/// Adds the keys of a pool layer's windows that give the outputs of `w`.
void add_pool_windows(Keys& keys, const Windows& w, const FeatureShape& in) {
  if (w.top != w.left)
    throw CannotImport("its pads are " + pads_text(w) + "; layers have as many above as to the left");
  if (w.size > in.h || w.size > in.w)
    throw CannotImport(
        fmt::format("its windows of {} pixels are larger than the maps of {}x{}", w.size, in.h, in.w));
  keys.emplace_back("sizeX", std::to_string(w.size));
  keys.emplace_back("stride", std::to_string(w.stride));
  if (w.top > 0) keys.emplace_back("start", std::to_string(-w.top));
  const bool inside = w.stride * (w.oh - 1) - w.top < in.h && w.stride * (w.ow - 1) - w.left < in.w;
  if (w.top >= w.size || !inside)
    throw CannotImport("its pads are " + pads_text(w) + ": a window lies in them only");
  const auto outputs = [&](std::int64_t side, bool up) {
    const std::int64_t rest = side - w.size + (up ? w.top : 2 * w.top);
    return rest <= 0 ? 1 : (up ? rest + w.stride - 1 : rest) / w.stride + 1;
  };
  const auto gives = [&](bool up) { return outputs(in.h, up) == w.oh && outputs(in.w, up) == w.ow; };
  if (gives(true)) return;
  if (gives(false)) {
    keys.emplace_back("rounding", "down");
  } else if (w.oh == w.ow) {
    keys.emplace_back("outputsX", std::to_string(w.oh));
  } else {
    throw CannotImport("its pads are " + pads_text(w) + ", which no layer has");
  }
}

/// Adds a pool layer. `scale` is multiplied with what it pools.
SourceValue add_pool(OperatorCall& call, SketchId below, const char* kind, const Windows& w,
                     const FeatureShape& in, bool sum, double scale, std::int64_t images) {
  SketchLayer layer{"pool", {below}, {in.c, w.oh, w.ow, true}, {}, {}, {}, {}};
  layer.keys = {{"pool", kind}, {"channels", std::to_string(in.c)}};
  if (sum) layer.keys.emplace_back("sum", "1");
  if (w.oh == 1 && w.ow == 1 && w.top == 0 && w.left == 0 && w.size >= in.h && w.size >= in.w)
    layer.keys.emplace_back("sizeX", "0");
  else
    add_pool_windows(layer.keys, w, in);
  const FeatureShape out = layer.shape;
  const SketchId pool = call.net.add_linear(call.net.add(std::move(layer)), scale, 0);
  return stored_activation(pool, out, images);
}

std::vector<SourceValue> import_pool(OperatorCall& call) {
  const bool max = call.node.op == "MaxPool";
  FeatureShape in;
  const Activation& a = call.activation(0);
  SketchId below = as_maps(call, a, in);
  if (!call.has_attribute("kernel_shape")) throw CannotImport("it has no kernel_shape");
  Windows w = read_windows(call, in, 0, 0);
  bool counts_border = call.integer("count_include_pad", 0) != 0;
  if (call.net[below].type == "pad") {
    const SketchLayer& pad = call.net[below];
    const bool no_own = w.top + w.left + w.bottom + w.right == 0;
    // A maximum sees zeros as it sees nothing if there is no smaller number.
    const bool unseen = pad.border.value == 0 ? call.net[pad.inputs[0]].positive
                                              : pad.border.value <= -std::numeric_limits<float>::max();
    below = take_border(call.net, below, w, in, max ? unseen : pad.border.value == 0 && no_own);
    counts_border = counts_border || !max;
  }
  count_windows(w, in);
  if (w.size == 1 && w.stride == 1 && w.oh == in.h && w.ow == in.w) return {a};
  const bool border = w.top + w.left + w.bottom + w.right > 0;
  if (max || !border || !counts_border)
    return {add_pool(call, below, max ? "max" : "avg", w, in, false, 1, a.images)};
  // Each window is divided by all of its pixels, as far as they lie on the maps or their border.
  const auto ends_inside = [&](std::int64_t side, std::int64_t before, std::int64_t behind, std::int64_t o) {
    return w.stride * (o - 1) + w.size <= side + before + behind;
  };
  if (!ends_inside(in.h, w.top, w.bottom, w.oh) || !ends_inside(in.w, w.left, w.right, w.ow))
    throw CannotImport("its last windows hang over a border that counts");
  return {add_pool(call, below, "avg", w, in, true, 1.0 / static_cast<double>(w.size * w.size), a.images)};
}

SourceValue pooled_whole(OperatorCall& call, const char* kind) {
  FeatureShape in;
  const SketchId below = as_maps(call, call.activation(0), in);
  Windows w;
  w.size = std::max(in.h, in.w);
  w.oh = w.ow = 1;
  if (in.h == 1 && in.w == 1) return call.activation(0);
  return add_pool(call, below, kind, w, in, false, 1, call.activation(0).images);
}

std::vector<SourceValue> import_global_pool(OperatorCall& call) {
  return {pooled_whole(call, call.node.op == "GlobalMaxPool" ? "max" : "avg")};
}

/// ReduceMean and ReduceMax of the pixels of maps, in any order of the axes.
std::vector<SourceValue> import_reduce(OperatorCall& call) {
  const Activation& a = call.activation(0);
  const FeatureShape& stored = call.net.shape(a.layer);
  const auto given = call.integers_or_input("axes", 1);
  if (!given) throw CannotImport("it reduces all axes");
  std::vector<bool> reduced(a.axes.size() + 1, false);
  for (const std::int64_t axis : *given) reduced[OperatorCall::axis(axis, reduced.size())] = true;
  const bool keeps = call.integer("keepdims", 1) != 0;
  Activation rest{a.layer, a.images, {}}, pixels = rest;
  Dims dims = {a.images};
  for (std::size_t i = 0; i < a.axes.size(); ++i) {
    if (!reduced[i + 1]) {
      rest.axes.push_back(a.axes[i]);
      dims.push_back(size_of(a.axes[i]));
      continue;
    }
    if (!a.axes[i].empty()) pixels.axes.push_back(a.axes[i]);
    if (keeps) dims.push_back(1);
  }
  const AxisDigits maps = joined(rest.axes), all{{stored.c, stored.h * stored.w}};
  const bool whole_maps = !reduced[0] && pixels.in_order() && pixels.size() == stored.h * stored.w &&
                          (stored.c == 1 ? maps.empty() : maps == all) && stored.image;
  if (!whole_maps) throw CannotImport("it reduces other axes than the two sides of the maps");
  Windows w;
  w.size = std::max(stored.h, stored.w);
  w.oh = w.ow = 1;
  const char* kind = call.node.op == "ReduceMax" ? "max" : "avg";
  const SourceValue pooled =
      pixels.size() == 1 ? SourceValue(a) : add_pool(call, a.layer, kind, w, stored, false, 1, a.images);
  return {reshaped(std::get<Activation>(pooled), dims)};
}

std::vector<SourceValue> import_pad(OperatorCall& call) {
  const Activation& a = call.activation(0);
  const auto given = call.integers_or_input("pads", 1);
  if (!given) throw CannotImport("it has no pads");
  if (const std::string mode = call.text("mode", "constant"); mode != "constant")
    throw CannotImport("its mode is " + excerpt(mode) + "; layers put zeros around maps");
  std::vector<std::int64_t> pads(2 * (a.axes.size() + 1), 0);
  if (call.has(3)) {  // only these axes
    const std::vector<std::int64_t> axes = call.integers_or_input("axes", 3).value();
    if (given->size() != 2 * axes.size()) throw CannotImport("its pads and axes do not fit");
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const std::size_t axis = OperatorCall::axis(axes[i], a.axes.size() + 1);
      pads[axis] = (*given)[i];
      pads[axis + a.axes.size() + 1] = (*given)[i + axes.size()];
    }
  } else if (given->size() == pads.size()) {
    pads = *given;
  } else {
    throw CannotImport("its pads and axes do not fit");
  }
  if (std::ranges::all_of(pads, [](std::int64_t pad) { return pad == 0; })) return {a};
  if (std::ranges::any_of(pads, [](std::int64_t pad) { return pad < 0 || pad > kMostSide; }))
    throw CannotImport("its pads are out of range");
  const FeatureShape stored = call.net.shape(a.layer);
  SketchLayer layer{"pad", {a.layer}, stored, {}, {}, {}, {}};
  layer.border.value = static_cast<float>(call.real_or_input("value", 2).value_or(0));
  Activation result{0, a.images, {}};
  for (std::size_t i = 0; i <= a.axes.size(); ++i) {
    const std::int64_t before = pads[i], behind = pads[i + a.axes.size() + 1];
    const AxisDigits axis = i == 0 ? AxisDigits{} : a.axes[i - 1];
    const bool rows = axis == AxisDigits{{stored.h, stored.w}}, columns = axis == AxisDigits{{stored.w, 1}};
    if (before + behind > 0 && (i == 0 || !stored.image || !(rows || columns)))
      throw CannotImport("it pads another axis than the two sides of maps");
    if (rows) {
      layer.border.top = before;
      layer.border.bottom = behind;
    } else if (columns) {
      layer.border.left = before;
      layer.border.right = behind;
    }
  }
  layer.shape.h += layer.border.top + layer.border.bottom;
  layer.shape.w += layer.border.left + layer.border.right;
  result.layer = call.net.add(std::move(layer));
  const FeatureShape& padded = call.net.shape(result.layer);
  // The axes count the elements of the larger maps.
  for (const AxisDigits& axis : a.axes) {
    AxisDigits larger;
    for (const Digit& digit : axis) {
      if (digit == Digit{stored.h, stored.w})
        larger.push_back({padded.h, padded.w});
      else if (digit == Digit{stored.w, 1})
        larger.push_back({padded.w, 1});
      else if (digit.stride % (stored.h * stored.w) == 0)
        larger.push_back({digit.size, digit.stride / (stored.h * stored.w) * padded.h * padded.w});
      else
        throw CannotImport("it pads maps whose axes are cut");
    }
    result.axes.push_back(joined(larger));
  }
  return {result};
}

}  // namespace

const std::vector<KnownOperator>& window_operators() {
  static const std::vector<KnownOperator> all = {
      {"Conv", import_conv},
      {"MaxPool", import_pool},
      {"AveragePool", import_pool},
      {"GlobalAveragePool", import_global_pool},
      {"GlobalMaxPool", import_global_pool},
      {"ReduceMean", import_reduce},
      {"ReduceMax", import_reduce},
      {"Pad", import_pad},
  };
  return all;
}

}  // namespace convnet
