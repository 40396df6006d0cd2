// Sums, products, maxima and concatenations of tensors.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "convnet/onnx_import/operators.h"
#include "convnet/onnx_import/stacks.h"

namespace convnet {
namespace {

/// Adds x * factor + term on an activation, where one of the two is a constant beside it.
SourceValue with_constant(OperatorCall& call, const Activation& a, const Constant& constant, bool is_factor) {
  const FeatureShape shape = call.net.shape(a.layer);
  Broadcast b = broadcast(constant, a, shape);
  call.net.charge(std::ssize(b.numbers));
  Activation result = a;
  if (b.kind == Broadcast::Kind::number) {
    const double number = b.numbers[0];
    result.layer = call.net.add_linear(a.layer, is_factor ? number : 1, is_factor ? 0 : number);
    return result;
  }
  std::vector<float> other(b.numbers.size(), is_factor ? 0.0F : 1.0F);
  if (b.kind == Broadcast::Kind::maps) {
    result.layer = is_factor ? call.net.add_affine(a.layer, std::move(b.numbers), std::move(other))
                             : call.net.add_affine(a.layer, std::move(other), std::move(b.numbers));
    return result;
  }
  if (is_factor)
    throw CannotImport("its constant has a factor for each element; layers have one for each map");
  SketchLayer layer{"shift", {a.layer}, shape, {}, {}, {}, {}};
  layer.matrices["biases"] = make_matrix({shape.c, shape.h, shape.w}, std::move(b.numbers));
  result.layer = call.net.add(std::move(layer));
  return result;
}

/// Returns a constant with `f` of each number.
Constant mapped(const Constant& constant, const std::function<double(double)>& f) {
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < constant.count(); ++i)
    numbers.push_back(static_cast<float>(f(constant.number(i))));
  return {constant.dims, std::move(numbers)};
}

/// Returns whether element i of one activation belongs to element i of the other, where their layers store
/// them.
bool alike(const NetSketch& net, const Activation& a, const Activation& b) {
  return a.axes == b.axes && net.shape(a.layer).size() == net.shape(b.layer).size();
}

/// Makes two or more activations of equal dims alike, with new layers that put maps into order if need be.
void make_alike(OperatorCall& call, std::vector<Activation>& all) {
  for (const Activation& a : all) {
    if (a.dims() != all[0].dims())
      throw CannotImport(fmt::format("its inputs are {} and {}; layers take inputs of one size",
                                     to_string(all[0].dims()), to_string(a.dims())));
  }
  const auto is_like_first = [&](const Activation& a) { return alike(call.net, a, all[0]); };
  if (std::ranges::all_of(all, is_like_first)) return;
  for (Activation& a : all) {
    FeatureShape shape;
    const SketchId maps = as_maps(call, a, shape);
    a = stored_activation(maps, shape, a.images);
  }
}

std::vector<Activation> all_activations(OperatorCall& call) {
  std::vector<Activation> all;
  for (std::size_t i = 0; i < call.inputs(); ++i) all.push_back(call.activation(i));
  if (all.empty()) throw CannotImport("it has no inputs");
  constexpr std::size_t kMost = 64;  // LayerType::max_inputs
  if (all.size() > kMost)
    throw CannotImport(fmt::format("it has {} inputs; layers have {}", all.size(), kMost));
  return all;
}

SourceValue sum(OperatorCall& call, std::vector<Activation> all, std::vector<double> coeffs) {
  make_alike(call, all);
  std::vector<SketchId> inputs;
  for (const Activation& a : all) inputs.push_back(a.layer);
  Activation result = all[0];
  result.layer = call.net.add_sum(std::move(inputs), std::move(coeffs));
  return result;
}

std::vector<SourceValue> import_add(OperatorCall& call) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (call.is_constant(i)) return {with_constant(call, call.activation(1 - i), call.constant(i), false)};
  }
  return {sum(call, {call.activation(0), call.activation(1)}, {1, 1})};
}

std::vector<SourceValue> import_sub(OperatorCall& call) {
  const auto minus = [](double x) { return -x; };
  if (call.is_constant(1))
    return {with_constant(call, call.activation(0), mapped(call.constant(1), minus), false)};
  if (call.is_constant(0)) {
    Activation negative = call.activation(1);
    negative.layer = call.net.add_linear(negative.layer, -1, 0);
    return {with_constant(call, negative, call.constant(0), false)};
  }
  return {sum(call, {call.activation(0), call.activation(1)}, {1, -1})};
}

/// Sum and Mean of several tensors.
std::vector<SourceValue> import_sum(OperatorCall& call) {
  std::vector<Activation> all = all_activations(call);
  const double factor = call.node.op == "Mean" ? 1.0 / static_cast<double>(all.size()) : 1;
  if (all.size() == 1) return {all[0]};
  std::vector<double> coeffs(all.size(), factor);
  return {sum(call, std::move(all), std::move(coeffs))};
}

/// Returns whether `b` has a number for each map of `a`: the axes that count maps, and 1 for the others.
bool has_factors(const NetSketch& net, const Activation& a, const Activation& b) {
  const FeatureShape &maps = net.shape(a.layer), &factors = net.shape(b.layer);
  if (!maps.image || factors.size() != maps.c || a.axes.size() != b.axes.size()) return false;
  if (maps.c == 1) return true;  // then no axis counts maps
  for (std::size_t i = 0; i < a.axes.size(); ++i) {
    AxisDigits of_factors;
    if (counts_maps(a.axes[i], maps)) of_factors = a.axes[i];
    for (Digit& digit : of_factors) digit.stride /= maps.h * maps.w;
    if (joined(b.axes[i]) != joined(of_factors)) return false;
  }
  return true;
}

std::vector<SourceValue> import_mul(OperatorCall& call) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (call.is_constant(i)) return {with_constant(call, call.activation(1 - i), call.constant(i), true)};
  }
  std::vector<Activation> all = {call.activation(0), call.activation(1)};
  if (all[0].dims() != all[1].dims()) {
    for (const auto& [maps, factors] : {std::pair{all[0], all[1]}, std::pair{all[1], all[0]}}) {
      if (!has_factors(call.net, maps, factors)) continue;
      Activation result = maps;
      result.layer = call.net.add_product(maps.layer, factors.layer);
      return {result};
    }
  }
  make_alike(call, all);
  Activation result = call.net.shape(all[0].layer).image ? all[0] : all[1];
  result.layer = call.net.add_product(all[0].layer, all[1].layer);
  return {result};
}

std::vector<SourceValue> import_div(OperatorCall& call) {
  if (!call.is_constant(1)) throw CannotImport("it divides by something that is no constant");
  return {with_constant(call, call.activation(0), mapped(call.constant(1), [](double x) { return 1 / x; }),
                        true)};
}

std::vector<SourceValue> import_max(OperatorCall& call) {
  if (call.inputs() == 2 && (call.is_constant(0) || call.is_constant(1))) {
    const std::size_t at = call.is_constant(0) ? 0 : 1;
    Activation a = call.activation(1 - at);
    const Broadcast bound = broadcast(call.constant(at), a, call.net.shape(a.layer));
    if (bound.kind != Broadcast::Kind::number) throw CannotImport("its bound is not one number");
    const double b = bound.numbers[0], sign = call.node.op == "Max" ? 1 : -1;
    const SketchLayer& below = call.net[a.layer];
    if (sign < 0 && b > 0 && below.type == "neuron" && below.neuron.name == "relu") {
      a.layer = call.net.add_neuron(below.inputs[0], {"brelu", b, 0});
      return {a};
    }
    // max(x, b) is relu(x - b) + b; min(x, b) is b - relu(b - x).
    const SketchId rest = call.net.add_neuron(call.net.add_linear(a.layer, sign, -sign * b), {"relu", 1, 0});
    a.layer = call.net.add_linear(rest, sign, b);
    return {a};
  }
  if (call.node.op == "Min") throw CannotImport("layers have no minimum of two tensors");
  std::vector<Activation> all = all_activations(call);
  if (all.size() == 1) return {all[0]};
  make_alike(call, all);
  SketchLayer layer{"eltmax", {}, call.net.shape(all[0].layer), {}, {}, {}, {}};
  for (const Activation& a : all) {
    layer.inputs.push_back(a.layer);
    if (call.net.shape(a.layer).image) layer.shape = call.net.shape(a.layer);
  }
  Activation result = all[0];
  result.layer = call.net.add(std::move(layer));
  return {result};
}

std::vector<SourceValue> import_pow(OperatorCall& call) {
  Activation a = call.activation(0);
  const Constant& exponent = call.constant(1);
  const double power = exponent.count() == 1 ? exponent.number(0) : 0;
  if (power == 1) return {a};
  if (power != 2 && power != 0.5) throw CannotImport("its power is not 2 or 0.5");
  a.layer = call.net.add_neuron(a.layer, {power == 2 ? "square" : "sqrt", 1, 0});
  return {a};
}

/// Returns the place of a map that a concatenation takes from one layer's maps times a number plus another;
/// nullopt if the input is something else.
struct ScaledMap {
  SketchId layer = 0;
  std::int64_t map = 0;
  double a = 1, b = 0;
};
std::optional<ScaledMap> scaled_map(const NetSketch& net, SketchId id) {
  ScaledMap found;
  if (net[id].type == "neuron" && net[id].neuron.is_linear()) {
    found.a = net[id].neuron.a;
    found.b = net[id].neuron.b;
    id = net[id].inputs[0];
  }
  const SketchLayer& slice = net[id];
  if (slice.type != "slice" || slice.shape.c != 1) return std::nullopt;
  found.layer = slice.inputs[0];
  found.map = slice.first_map;
  return found;
}

/// Returns the affine function of each map that the inputs of a concatenation are together, as GoogLeNet
/// prepares its images; nullopt if they are something else.
std::optional<SketchId> as_affine(NetSketch& net, const std::vector<SketchId>& inputs) {
  std::vector<float> scale, shift;
  std::optional<SketchId> below;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::optional<ScaledMap> map = scaled_map(net, inputs[i]);
    if (!map || map->map != static_cast<std::int64_t>(i) || (below && *below != map->layer))
      return std::nullopt;
    below = map->layer;
    scale.push_back(static_cast<float>(map->a));
    shift.push_back(static_cast<float>(map->b));
  }
  if (net.shape(*below).c != std::ssize(inputs)) return std::nullopt;
  return net.add_affine(*below, std::move(scale), std::move(shift));
}

std::vector<SourceValue> import_concat(OperatorCall& call) {
  std::vector<Activation> all = all_activations(call);
  const std::size_t axis = OperatorCall::axis(call.integer("axis", 1), all[0].axes.size() + 1);
  if (axis == 0) throw CannotImport("it concatenates images");
  if (all.size() == 1) return {all[0]};
  // The axes of each input must be those of its maps, in one order.
  const auto of_maps = [&](const Activation& a) {
    const FeatureShape& shape = call.net.shape(a.layer);
    const FeatureShape& first = call.net.shape(all[0].layer);
    std::vector<AxisDigits> expected = all[0].axes;
    expected[axis - 1] = joined(AxisDigits{{shape.c, shape.h * shape.w}});
    return a.axes == expected && shape.h == first.h && shape.w == first.w && shape.image == first.image;
  };
  if (!std::ranges::all_of(all, of_maps)) {
    if (const std::optional<Activation> stack = stacked(call, all, axis - 1)) return {*stack};
    if (all[0].axes.size() != 3 || axis != 1)
      throw CannotImport("it concatenates along another axis than that of the maps");
    for (Activation& a : all) {
      FeatureShape shape;
      const SketchId maps = as_maps(call, a, shape);
      a = stored_activation(maps, shape, a.images);
    }
    if (!std::ranges::all_of(all, of_maps)) throw CannotImport("it concatenates maps of unequal sides");
  }
  SketchLayer layer{"concat", {}, call.net.shape(all[0].layer), {}, {}, {}, {}};
  layer.shape.c = 0;
  for (const Activation& a : all) {
    layer.inputs.push_back(a.layer);
    layer.shape.c += call.net.shape(a.layer).c;
  }
  Activation result = all[0];
  const FeatureShape& shape = layer.shape;
  result.axes[axis - 1] = joined(AxisDigits{{shape.c, shape.h * shape.w}});
  if (const std::optional<SketchId> affine = as_affine(call.net, layer.inputs))
    result.layer = *affine;
  else
    result.layer = call.net.add(std::move(layer));
  return {result};
}

}  // namespace

const std::vector<KnownOperator>& arithmetic_operators() {
  static const std::vector<KnownOperator> all = {
      {"Add", import_add}, {"Sub", import_sub},       {"Mul", import_mul}, {"Div", import_div},
      {"Sum", import_sum}, {"Mean", import_sum},      {"Max", import_max}, {"Min", import_max},
      {"Pow", import_pow}, {"Concat", import_concat},
  };
  return all;
}

}  // namespace convnet
