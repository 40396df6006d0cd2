#include "convnet/onnx_import/net_sketch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "convnet/onnx_import/cannot_import.h"
#include "kernels/ops/elementwise.h"

namespace convnet {
namespace {

/// Returns whether two constants of a formula are meant to be equal: models hold them as f32 or f16, or as
/// 0.1667.
bool near(double a, double b) { return std::abs(a - b) <= 2e-4 * std::max(1.0, std::abs(b)); }
/// Returns whether two numbers are equal but for rounding to f32.
bool same(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(1.0, std::abs(b)); }

SketchMatrix vector_of(std::vector<float> values) {
  const Dims dims = {std::ssize(values)};
  return make_matrix(dims, std::move(values));
}

/// Maps start, start + 1, … of those that a shuffle of a layer's maps makes.
struct ShuffledRange {
  std::int64_t groups = 1;  ///< of the shuffle; 1: there is none
  std::int64_t start = 0;
};
/// Returns the range that `maps`, some of `c` maps, are; nullopt if they are none.
std::optional<ShuffledRange> shuffled_range(const std::vector<std::int64_t>& maps, std::int64_t c) {
  for (std::int64_t groups = 1; groups < c || groups == 1; ++groups) {
    if (c % groups != 0) continue;
    // A shuffle by the size of the groups undoes the one by their number.
    const MapOrder order{0, groups, c, c}, back{0, c / groups, c, c};
    const std::int64_t start = back.source(maps[0]);
    bool is_range = start + std::ssize(maps) <= c;
    for (std::size_t i = 0; i < maps.size() && is_range; ++i)
      is_range = maps[i] == order.source(start + static_cast<std::int64_t>(i));
    if (is_range) return ShuffledRange{groups, start};
  }
  return std::nullopt;
}

}  // namespace

std::string SketchNeuron::text() const {
  const auto f = [](double x) { return fmt::format("{}", static_cast<float>(x)); };
  if (name == "tanh" || name == "linear") return name + "[" + f(a) + "," + f(b) + "]";
  if (name == "brelu" || name == "leaky" || name == "elu" || name == "log") return name + "[" + f(a) + "]";
  return name;
}

bool NetSketch::is_positive(const SketchLayer& layer) const {
  static const std::set<std::string> passes_on = {"pool",    "concat", "eltmax", "cmpool",
                                                  "dropout", "slice",  "shuffle"};
  static const std::set<std::string> positive = {"relu",   "logistic", "brelu", "softrelu",
                                                 "square", "sqrt",     "abs",   "hsigmoid"};
  if (passes_on.contains(layer.type))
    return std::ranges::all_of(layer.inputs, [&](SketchId input) { return layers_[input].positive; });
  return layer.type == "softmax" || (layer.type == "neuron" && positive.contains(layer.neuron.name));
}

SketchId NetSketch::add(SketchLayer layer) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  const std::int64_t count = element_count({layer.shape.c, layer.shape.h, layer.shape.w});
  if (count > kMost) throw CannotImport("its output of " + layer.shape.str() + " is too large");
  if (count < 1) throw CannotImport("its output of " + layer.shape.str() + " holds no numbers");
  layer.positive = is_positive(layer);
  layer.node = node_;
  if (layer.names.empty()) layer.names = names_;
  layers_.push_back(std::move(layer));
  return layers_.size() - 1;
}

void NetSketch::charge(std::int64_t numbers) {
  if (numbers > numbers_left_)
    throw CannotImport("the constants and maps that the model repeats are too many");
  numbers_left_ -= numbers;
}

const SketchNeuron* NetSketch::neuron_called(SketchId id, const char* name) const {
  const SketchLayer& layer = layers_[id];
  return layer.type == "neuron" && layer.neuron.name == name ? &layer.neuron : nullptr;
}

SketchId NetSketch::add_linear(SketchId input, double a, double b) {
  return add_neuron(input, {"linear", a, b});
}

SketchId NetSketch::add_neuron(SketchId input, const SketchNeuron& neuron) {
  SketchId below = input;
  SketchNeuron f = neuron;
  if (f.is_linear()) {
    if (const SketchNeuron* inner = neuron_called(input, "linear")) {
      below = layers_[input].inputs[0];
      f = {"linear", f.a * inner->a, f.a * inner->b + f.b};
    } else if (const SketchNeuron* tanh = neuron_called(input, "tanh"); tanh != nullptr && f.b == 0) {
      return add(
          {"neuron", layers_[input].inputs, shape(input), {}, {}, {"tanh", tanh->a * f.a, tanh->b}, {}});
    } else if (const SketchNeuron* erf = neuron_called(input, "erf");
               erf != nullptr && f.a == 1 && f.b == 1) {
      return add({"neuron", layers_[input].inputs, shape(input), {}, {}, {"erf1", erf->a, 0}, {}});
    }
    // Two joined functions may undo each other but for what rounding leaves.
    if (same(f.a, 1) && (f.b == 0 || (below != input && std::abs(f.b) < 1e-7))) return below;
    // hsigmoid is brelu[6](x + 3) / 6.
    if (const SketchNeuron* clip = neuron_called(below, "brelu");
        clip != nullptr && near(clip->a, 6) && near(f.a, 1.0 / 6) && f.b == 0) {
      const SketchId shifted = layers_[below].inputs[0];
      if (const SketchNeuron* s = neuron_called(shifted, "linear");
          s != nullptr && s->a == 1 && near(s->b, 3))
        return add({"neuron", layers_[shifted].inputs, shape(below), {}, {}, {"hsigmoid", 1, 0}, {}});
    }
    return add({"neuron", {below}, shape(below), {}, {}, f, {}});
  }
  const SketchNeuron* inner = neuron_called(input, "linear");
  if (inner != nullptr && inner->b == 0 && (f.name == "tanh" || f.name == "erf")) {
    below = layers_[input].inputs[0];
    (f.name == "tanh" ? f.b : f.a) *= inner->a;
  }
  // hsigmoid as brelu[1](x/6 + 1/2).
  if (inner != nullptr && f.name == "brelu" && f.a == 1 && near(inner->a, 1.0 / 6) && near(inner->b, 0.5))
    return add({"neuron", layers_[input].inputs, shape(input), {}, {}, {"hsigmoid", 1, 0}, {}});
  if (f.name == "relu" && neuron_called(input, "relu") != nullptr) return input;
  return add({"neuron", {below}, shape(below), {}, {}, f, {}});
}

SketchId NetSketch::add_affine(SketchId input, std::vector<float> scale, std::vector<float> shift) {
  SketchLayer layer{"affine", {input}, shape(input), {}, {}, {}, {}};
  layer.matrices = {{"weights", vector_of(std::move(scale))}, {"biases", vector_of(std::move(shift))}};
  return add(std::move(layer));
}

SketchId NetSketch::add_sum(std::vector<SketchId> inputs, std::vector<double> coeffs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const SketchNeuron* scaled = neuron_called(inputs[i], "linear");
    if (scaled == nullptr || scaled->b != 0) continue;
    coeffs[i] *= scaled->a;
    inputs[i] = layers_[inputs[i]].inputs[0];
  }
  FeatureShape of_sum = shape(inputs[0]);
  for (const SketchId input : inputs)
    if (shape(input).image) of_sum = shape(input);
  SketchLayer layer{"eltsum", std::move(inputs), of_sum, {}, {}, {}, {}};
  layer.coeffs = std::move(coeffs);
  return add(std::move(layer));
}

std::optional<SketchId> NetSketch::gated(SketchId x, SketchId gate) {
  const SketchLayer& layer = layers_[gate];
  const auto made = [&](const char* name) {
    return add({"neuron", {x}, shape(x), {}, {}, {name, 1, 0}, {}});
  };
  if (layer.type != "neuron") return std::nullopt;
  const SketchNeuron f = layer.neuron;
  const SketchId below = layer.inputs[0];
  if (below == x) {
    if (f.name == "logistic") return made("silu");
    if (f.name == "hsigmoid") return made("hswish");
    if (f.name == "erf1" && near(f.a, 1 / std::numbers::sqrt2)) return add_linear(made("gelu"), 2, 0);
    return std::nullopt;
  }
  // 0.5*x*(1 + erf(...)), where 0.5*x was made first.
  if (const SketchNeuron* half = neuron_called(x, "linear");
      half != nullptr && half->b == 0 && f.name == "erf1" && below == layers_[x].inputs[0] &&
      near(f.a, 1 / std::numbers::sqrt2)) {
    const double factor = 2 * half->a;
    const SketchId gelu = add({"neuron", {below}, shape(below), {}, {}, {"gelu", 1, 0}, {}});
    return add_linear(gelu, factor, 0);
  }
  // x * tanh(softrelu(x)).
  if (f.name == "tanh" && f.a == 1 && f.b == 1 && neuron_called(below, "softrelu") != nullptr &&
      layers_[below].inputs[0] == x)
    return made("mish");
  // x * brelu[6](x + 3), which a division by 6 follows.
  if (f.name == "brelu" && near(f.a, 6)) {
    const SketchNeuron* shifted = neuron_called(below, "linear");
    if (shifted != nullptr && shifted->a == 1 && near(shifted->b, 3) && layers_[below].inputs[0] == x)
      return add_linear(made("hswish"), 6, 0);
  }
  // x * (0.5 * (1 + erf(...))).
  if (f.is_linear() && f.b == 0) {
    const SketchNeuron* erf = neuron_called(below, "erf1");
    if (erf != nullptr && layers_[below].inputs[0] == x && near(erf->a, 1 / std::numbers::sqrt2))
      return add_linear(made("gelu"), 2 * f.a, 0);
  }
  return std::nullopt;
}

SketchId NetSketch::add_product(SketchId a, SketchId b) {
  if (a == b) return add_neuron(a, {"square", 1, 0});
  for (const auto& [x, gate] : {std::pair{a, b}, std::pair{b, a}}) {
    if (const std::optional<SketchId> found = gated(x, gate)) return *found;
  }
  return add({"eltmul", {a, b}, shape(a), {}, {}, {}, {}});
}

std::optional<SketchId> NetSketch::part_of_concat(SketchId layer, std::int64_t start,
                                                  std::int64_t maps) const {
  if (layers_[layer].type != "concat") return std::nullopt;
  std::int64_t first = 0;
  for (const SketchId input : layers_[layer].inputs) {
    if (first == start && shape(input).c == maps) return input;
    first += shape(input).c;
  }
  return std::nullopt;
}

SketchId NetSketch::add_slice(SketchId input, std::int64_t start, std::int64_t maps) {
  const FeatureShape in = shape(input);
  if (start == 0 && maps == in.c) return input;
  if (const std::optional<SketchId> part = part_of_concat(input, start, maps)) return *part;
  if (layers_[input].type == "eltmul") {
    // Parts of a product of concatenations are products of parts.
    const auto a = part_of_concat(layers_[input].inputs[0], start, maps),
               b = part_of_concat(layers_[input].inputs[1], start, maps);
    if (a && b) return add_product(*a, *b);
  }
  SketchLayer slice{"slice", {input}, {maps, in.h, in.w, in.image}, {}, {}, {}, {}};
  if (start > 0) slice.keys.emplace_back("start", std::to_string(start));
  if (start + maps < in.c) slice.keys.emplace_back("maps", std::to_string(maps));
  slice.first_map = start;
  return add(std::move(slice));
}

SketchId NetSketch::add_convolution_of_ones(SketchId input, const std::vector<std::int64_t>& maps) {
  const FeatureShape in = shape(input);
  const auto count = std::ssize(maps);
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  if (count * in.c > kMost) throw CannotImport("it puts too many maps into another order");
  std::vector<float> ones(static_cast<std::size_t>(count * in.c), 0.0F);
  for (std::int64_t i = 0; i < count; ++i)
    ones[static_cast<std::size_t>(i * in.c + maps[static_cast<std::size_t>(i)])] = 1;
  SketchLayer shuffle{"conv", {input}, {count, in.h, in.w, true}, {}, {}, {}, {}};
  shuffle.keys = {
      {"channels", std::to_string(in.c)}, {"filters", std::to_string(count)}, {"filterSize", "1"}};
  shuffle.parameters = {{"epsW", "0"}};
  shuffle.matrices["weights"] = make_matrix({count, in.c, 1, 1}, std::move(ones));
  shuffle.comment = fmt::format("{} in another order: each filter is 1 for one map. It learns nothing.",
                                count == in.c ? "The same maps" : "Some of the maps");
  shuffle.suffix = "shuffle";
  return add(std::move(shuffle));
}

SketchId NetSketch::add_selection(SketchId input, const std::vector<std::int64_t>& maps) {
  const FeatureShape in = shape(input);
  const auto count = std::ssize(maps);
  const std::pair key{input, maps};
  if (const auto found = selections_.find(key); found != selections_.end()) return found->second;
  const std::optional<ShuffledRange> range = shuffled_range(maps, in.c);
  if (!range) return selections_[key] = add_convolution_of_ones(input, maps);
  SketchId from = input;
  if (range->groups > 1) {
    // Several parts of the shuffled maps have one shuffle.
    const auto known = shuffles_.find({input, range->groups});
    if (known != shuffles_.end()) {
      from = known->second;
    } else {
      SketchLayer shuffle{"shuffle", {input}, in, {{"groups", std::to_string(range->groups)}}, {}, {}, {}};
      shuffle.suffix = "shuffle";
      from = shuffles_[{input, range->groups}] = add(std::move(shuffle));
    }
  }
  return selections_[key] = add_slice(from, range->start, count);
}

}  // namespace convnet
