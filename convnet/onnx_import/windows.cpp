// Convolutions, pooling, and zeros around maps.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "convnet/base/printable.h"
#include "convnet/onnx_import/operators.h"
#include "convnet/onnx_import/stacks.h"

namespace convnet {
namespace {

/// The windows of an operator along one direction of maps, of which two are the rows and the columns.
struct Line {
  std::int64_t pixels = 0;
  std::int64_t size = 1, stride = 1, dilation = 1;
  std::int64_t before = 0, behind = 0;  ///< pixels of border before and behind the maps
  std::int64_t outputs = 0;

  std::int64_t extent() const { return (size - 1) * dilation + 1; }
  /// Returns the number of windows over maps with `end` pixels of border behind them; less than 1 if they are
  /// larger.
  std::int64_t count(std::int64_t end, bool up) const {
    const std::int64_t rest = pixels + before + end - extent();
    return rest < 0 ? 0 : (up ? rest + stride - 1 : rest) / stride + 1;
  }
};
struct Windows {
  Line rows, columns;
  bool ceil = false;

  bool bordered() const { return rows.before + rows.behind + columns.before + columns.behind > 0; }
};

/// Sets the number of windows.
void count_windows(Windows& w) {
  for (Line* line : {&w.rows, &w.columns}) {
    line->outputs = line->count(line->behind, w.ceil);
    if (line->outputs < 1) throw CannotImport("its windows are larger than the maps");
    // A window that would begin behind the maps is left out.
    if (w.ceil && (line->outputs - 1) * line->stride >= line->pixels + line->before) --line->outputs;
  }
}

constexpr std::int64_t kMostSide = 4096;

/// Sets a number of the rows and one of the columns from a list of both; `what` is for messages.
void set_sides(const std::vector<std::int64_t>& sides, const char* what, std::int64_t Line::*field,
               Windows& w) {
  if (sides.size() != 2) throw CannotImport(fmt::format("it has {} sides, not 2", sides.size()));
  if (std::ranges::any_of(sides, [](std::int64_t side) { return side < 1 || side > kMostSide; }))
    throw CannotImport(fmt::format("its {} is {}x{}", what, sides[0], sides[1]));
  w.rows.*field = sides[0];
  w.columns.*field = sides[1];
}

/// Reads the attributes that windows have in common, and counts them. `filter` is the size that a
/// convolution's weights have, rows and columns; without it, the attribute gives it alone.
Windows read_windows(const OperatorCall& call, const FeatureShape& in,
                     const std::vector<std::int64_t>& filter) {
  Windows w;
  const std::vector<std::int64_t> shape = call.integers("kernel_shape", filter);
  if (!filter.empty() && shape != filter) throw CannotImport("its kernel_shape is not that of its weights");
  set_sides(shape, "window", &Line::size, w);
  set_sides(call.integers("strides", {1, 1}), "stride", &Line::stride, w);
  set_sides(call.integers("dilations", {1, 1}), "dilation", &Line::dilation, w);
  w.rows.pixels = in.h;
  w.columns.pixels = in.w;
  for (Line* line : {&w.rows, &w.columns})
    if (line->size == 1) line->dilation = 1;
  w.ceil = call.integer("ceil_mode", 0) != 0;
  const std::string automatic = call.text("auto_pad", "NOTSET");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    for (Line* line : {&w.rows, &w.columns}) {
      const std::int64_t outputs = (line->pixels + line->stride - 1) / line->stride;
      const std::int64_t all =
          std::max<std::int64_t>(0, (outputs - 1) * line->stride + line->extent() - line->pixels);
      line->before = automatic == "SAME_UPPER" ? all / 2 : all - all / 2;
      line->behind = all - line->before;
    }
  } else if (automatic == "NOTSET") {
    const std::vector<std::int64_t> pads = call.integers("pads", {0, 0, 0, 0});
    if (pads.size() != 4) throw CannotImport("its pads are not 4 numbers");
    if (std::ranges::any_of(pads, [](std::int64_t pad) { return pad < 0 || pad > kMostSide; }))
      throw CannotImport("its pads are out of range");
    w.rows.before = pads[0];
    w.columns.before = pads[1];
    w.rows.behind = pads[2];
    w.columns.behind = pads[3];
  } else if (automatic != "VALID") {
    throw CannotImport("its auto_pad is " + excerpt(automatic));
  }
  count_windows(w);
  return w;
}

/// Takes in a border of zeros that lies below the windows, whose number stays. Returns the layer below it, or
/// `id` if there is none. `value_fits` says whether windows see the border as they see their own.
SketchId take_border(const NetSketch& net, SketchId id, Windows& w, FeatureShape& in, bool value_fits) {
  const SketchLayer& layer = net[id];
  if (layer.type != "pad" || !value_fits) return id;
  w.rows.before += layer.border.top;
  w.columns.before += layer.border.left;
  w.rows.behind += layer.border.bottom;
  w.columns.behind += layer.border.right;
  in = net.shape(layer.inputs[0]);
  w.rows.pixels = in.h;
  w.columns.pixels = in.w;
  return layer.inputs[0];
}

std::string pads_text(const Windows& w) {
  return fmt::format("{},{},{},{} (top, left, bottom, right)", w.rows.before, w.columns.before, w.rows.behind,
                     w.columns.behind);
}

using Keys = std::vector<std::pair<std::string, std::string>>;

/// Adds a key for both directions, if it is not what layers have without it, and one for the rows alone if
/// they differ. `key_y` is the latter's name.
void add_sides(Keys& keys, const char* key, const char* key_y, std::int64_t rows, std::int64_t columns,
               std::int64_t otherwise) {
  if (columns != otherwise) keys.emplace_back(key, std::to_string(columns));
  if (rows != columns) keys.emplace_back(key_y, std::to_string(rows));
}

/// Adds keys that give the outputs of `w`: a rounding, or the border behind the maps. `by_default` returns
/// the border that there is without the latter key. Returns false if there are none. Windows as large as the
/// maps with their borders fit.
template <class Default>
bool add_ends(Keys& keys, const Windows& w, const Default& by_default) {
  const auto gives = [](const Line& line, std::int64_t end, bool up) {
    return line.extent() <= line.pixels + line.before + end && line.count(end, up) == line.outputs;
  };
  for (const bool up : {true, false}) {
    if (!gives(w.rows, by_default(w.rows, up), up) || !gives(w.columns, by_default(w.columns, up), up))
      continue;
    if (!up) keys.emplace_back("rounding", "down");
    return true;
  }
  for (const bool up : {true, false}) {
    if (!gives(w.rows, w.rows.behind, up) || !gives(w.columns, w.columns.behind, up)) continue;
    const bool across = w.columns.behind != by_default(w.columns, up);
    if (across) keys.emplace_back("paddingEnd", std::to_string(w.columns.behind));
    if (w.rows.behind != (across ? w.columns.behind : by_default(w.rows, up)))
      keys.emplace_back("paddingEndY", std::to_string(w.rows.behind));
    if (!up) keys.emplace_back("rounding", "down");
    return true;
  }
  return false;
}

/// Adds the keys of a convolution's windows that give the outputs of `w`.
void add_conv_windows(Keys& keys, const Windows& w) {
  add_sides(keys, "filterSize", "filterSizeY", w.rows.size, w.columns.size, 0);
  add_sides(keys, "padding", "paddingY", w.rows.before, w.columns.before, 0);
  add_sides(keys, "stride", "strideY", w.rows.stride, w.columns.stride, 1);
  add_sides(keys, "dilation", "dilationY", w.rows.dilation, w.columns.dilation, 1);
  if (!add_ends(keys, w, [](const Line& line, bool) { return line.before; }))
    throw CannotImport("its pads are " + pads_text(w) + ", which no layer has");
}

std::vector<SourceValue> import_conv(OperatorCall& call) {
  const Constant& weights = call.constant(1);
  if (weights.dims.size() != 4 || !weights.is_float())
    throw CannotImport(
        fmt::format("its weights are {}; layers have filters of 2 sides", to_string(weights.dims)));
  FeatureShape in;
  SketchId below = as_maps(call, call.activation(0), in);
  Windows w = read_windows(call, in, {weights.dims[2], weights.dims[3]});
  below =
      take_border(call.net, below, w, in, call.net[below].type == "pad" && call.net[below].border.value == 0);
  const std::int64_t groups = call.integer("group", 1), filters = weights.dims[0];
  if (groups < 1 || in.c % groups != 0 || filters % groups != 0 || weights.dims[1] != in.c / groups ||
      filters == 0)
    throw CannotImport(fmt::format("its weights of {} do not fit {} channels in {} groups",
                                   to_string(weights.dims), in.c, groups));
  SketchLayer layer{"conv", {below}, {filters, w.rows.outputs, w.columns.outputs, true}, {}, {}, {}, {}};
  layer.keys = {{"channels", std::to_string(in.c)}, {"filters", std::to_string(filters / groups)}};
  if (groups > 1) layer.keys.emplace_back("groups", std::to_string(groups));
  add_conv_windows(layer.keys, w);
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

/// Returns whether a window shows nothing but the border.
bool has_windows_of_border(const Windows& w) {
  const auto has = [](const Line& line) {
    return line.before >= line.size || line.stride * (line.outputs - 1) - line.before >= line.pixels;
  };
  return has(w.rows) || has(w.columns);
}

/// Adds the keys of a pool layer's windows that give the outputs of `w`.
void add_pool_windows(Keys& keys, const Windows& w) {
  for (const Line& line : {w.rows, w.columns}) {
    if (line.dilation > 1)
      throw CannotImport(fmt::format("it has a dilation of {}, which no pool layer has", line.dilation));
  }
  if (has_windows_of_border(w))
    throw CannotImport("its pads are " + pads_text(w) + ": a window lies in them only");
  add_sides(keys, "sizeX", "sizeY", w.rows.size, w.columns.size, 0);
  add_sides(keys, "stride", "strideY", w.rows.stride, w.columns.stride, 0);
  add_sides(keys, "start", "startY", -w.rows.before, -w.columns.before, 0);
  if (add_ends(keys, w, [](const Line& line, bool up) { return up ? 0 : line.before; })) return;
  add_sides(keys, "outputsX", "outputsY", w.rows.outputs, w.columns.outputs, 0);
}

/// Adds a pool layer. `scale` is multiplied with what it pools.
SourceValue add_pool(OperatorCall& call, SketchId below, const char* kind, const Windows& w,
                     const FeatureShape& in, bool sum, double scale, std::int64_t images) {
  SketchLayer layer{"pool", {below}, {in.c, w.rows.outputs, w.columns.outputs, true}, {}, {}, {}, {}};
  layer.keys = {{"pool", kind}, {"channels", std::to_string(in.c)}};
  if (sum) layer.keys.emplace_back("sum", "1");
  const auto whole = [](const Line& line) {
    return line.outputs == 1 && line.before == 0 && line.dilation == 1 && line.size >= line.pixels;
  };
  if (whole(w.rows) && whole(w.columns))
    layer.keys.emplace_back("sizeX", "0");
  else
    add_pool_windows(layer.keys, w);
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
  Windows w = read_windows(call, in, {});
  bool counts_border = call.integer("count_include_pad", 0) != 0;
  if (call.net[below].type == "pad") {
    const SketchLayer& pad = call.net[below];
    const bool takes_zeros = !max && pad.border.value == 0 && !w.bordered();
    // A maximum sees zeros as it sees nothing if there is no smaller number.
    const bool unseen = pad.border.value == 0 ? call.net[pad.inputs[0]].positive
                                              : pad.border.value <= -std::numeric_limits<float>::max();
    Windows larger = w;
    FeatureShape inner = in;
    const SketchId under = take_border(call.net, below, larger, inner, max ? unseen : takes_zeros);
    if (!has_windows_of_border(larger)) {
      below = under;
      w = larger;
      in = inner;
      counts_border = counts_border || takes_zeros;
    }
  }
  const auto changes = [](const Line& line) {
    return line.size != 1 || line.stride != 1 || line.outputs != line.pixels;
  };
  if (!changes(w.rows) && !changes(w.columns)) return {a};
  if (max || !w.bordered() || !counts_border)
    return {add_pool(call, below, max ? "max" : "avg", w, in, false, 1, a.images)};
  // Each window is divided by all of its pixels, as far as they lie on the maps or their border.
  const auto ends_inside = [](const Line& line) {
    return line.stride * (line.outputs - 1) + line.extent() <= line.pixels + line.before + line.behind;
  };
  if (!ends_inside(w.rows) || !ends_inside(w.columns))
    throw CannotImport("its last windows hang over a border that counts");
  const std::int64_t area = w.rows.size * w.columns.size;
  return {add_pool(call, below, "avg", w, in, true, 1.0 / static_cast<double>(area), a.images)};
}

/// Returns one window over whole maps.
Windows windows_over(const FeatureShape& in) {
  Windows w;
  w.rows.pixels = w.rows.size = in.h;
  w.columns.pixels = w.columns.size = in.w;
  w.rows.outputs = w.columns.outputs = 1;
  return w;
}

SourceValue pooled_whole(OperatorCall& call, const char* kind) {
  FeatureShape in;
  const SketchId below = as_maps(call, call.activation(0), in);
  const Windows w = windows_over(in);
  if (in.h == 1 && in.w == 1) return call.activation(0);
  return add_pool(call, below, kind, w, in, false, 1, call.activation(0).images);
}

std::vector<SourceValue> import_global_pool(OperatorCall& call) {
  return {pooled_whole(call, call.node.op == "GlobalMaxPool" ? "max" : "avg")};
}

/// ReduceMean, ReduceMax and ReduceSum of the pixels of maps, in any order of the axes, and ReduceSum of a
/// stack.
std::vector<SourceValue> import_reduce(OperatorCall& call) {
  const Activation& a = call.activation(0);
  const FeatureShape& stored = call.net.shape(a.layer);
  const auto given = call.integers_or_input("axes", 1);
  if (!given) throw CannotImport("it reduces all axes");
  std::vector<bool> reduced(a.axes.size() + 1, false);
  for (const std::int64_t axis : *given) reduced[OperatorCall::axis(axis, reduced.size())] = true;
  const bool keeps = call.integer("keepdims", 1) != 0, sums = call.node.op == "ReduceSum";
  if (sums && given->size() == 1 && !reduced[0]) {
    const auto axis = static_cast<std::size_t>(std::ranges::find(reduced, true) - reduced.begin());
    if (const std::optional<Activation> sum = sum_of_parts(call, axis - 1, keeps)) return {*sum};
  }
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
  if (!whole_maps) {
    const bool like_layer_norm = given->size() == 1 && call.node.op == "ReduceMean";
    throw CannotImport(fmt::format("it reduces other axes than the two sides of the maps{}",
                                   like_layer_norm ? ", as layer norms do, which no layer computes" : ""));
  }
  const Windows w = windows_over(stored);
  const char* kind = call.node.op == "ReduceMax" ? "max" : "avg";
  const SourceValue pooled =
      pixels.size() == 1 ? SourceValue(a) : add_pool(call, a.layer, kind, w, stored, false, 1, a.images);
  Activation result = reshaped(std::get<Activation>(pooled), dims);
  if (sums) result.layer = call.net.add_linear(result.layer, static_cast<double>(pixels.size()), 0);
  return {result};
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
      {"ReduceSum", import_reduce},
      {"Pad", import_pad},
  };
  return all;
}

}  // namespace convnet
