// Maps that a model stacks along an axis of their own, to weigh and sum them (SKNet, ResNeSt). A stack of
// layers is a concat layer, whose maps have the axes (parts, maps, rows, columns).
#include "convnet/onnx_import/stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace convnet {
namespace {

/// Returns how many parts an axis counts, if each part is a range of the layer's maps in order, and the other
/// axes count what is in a part; else 0.
std::int64_t parts_along(const NetSketch& net, const Activation& a, std::size_t axis) {
  const FeatureShape& stored = net.shape(a.layer);
  const AxisDigits& digits = a.axes[axis];
  if (digits.size() != 1 || a.size() != stored.size()) return 0;
  const std::int64_t parts = digits[0].size, each = stored.size() / parts;
  Activation rest = a;
  rest.axes[axis].clear();
  const bool whole = digits[0].stride == each && rest.in_order() && stored.c % parts == 0;
  return whole ? parts : 0;
}

/// Returns the layer with the maps of one part.
SketchId part_of(NetSketch& net, SketchId layer, std::int64_t parts, std::int64_t part) {
  const std::int64_t each = net.shape(layer).c / parts;
  check_maps(each);
  std::vector<std::int64_t> maps(static_cast<std::size_t>(each));
  std::iota(maps.begin(), maps.end(), part * each);
  return net.add_selection(layer, maps);
}

}  // namespace

std::optional<Activation> stacked(OperatorCall& call, const std::vector<Activation>& all, std::size_t axis) {
  const FeatureShape stored = call.net.shape(all[0].layer);
  const auto is_part = [&](const Activation& a) {
    return a.axes.size() == all[0].axes.size() && a.axes[axis].empty() && a.in_order() &&
           a.dims() == all[0].dims() && call.net.shape(a.layer) == stored && a.size() == stored.size();
  };
  if (!std::ranges::all_of(all, is_part)) return std::nullopt;
  SketchLayer layer{"concat", {}, stored, {}, {}, {}, {}};
  for (const Activation& a : all) layer.inputs.push_back(a.layer);
  layer.shape.c *= std::ssize(all);
  Activation result = all[0];
  result.axes[axis] = {{std::ssize(all), stored.size()}};
  result.layer = call.net.add(std::move(layer));
  return result;
}

std::optional<Activation> sum_of_parts(OperatorCall& call, std::size_t axis, bool keeps_axis) {
  Activation a = call.activation(0);
  const std::int64_t parts = parts_along(call.net, a, axis);
  constexpr std::int64_t kMost = 64;  // LayerType::max_inputs
  if (parts < 2 || parts > kMost) return std::nullopt;
  std::vector<SketchId> inputs;
  for (std::int64_t i = 0; i < parts; ++i) inputs.push_back(part_of(call.net, a.layer, parts, i));
  a.layer = call.net.add_sum(std::move(inputs), std::vector<double>(static_cast<std::size_t>(parts), 1));
  a.axes[axis].clear();
  if (!keeps_axis) a.axes.erase(a.axes.begin() + static_cast<std::ptrdiff_t>(axis));
  return a;
}

std::optional<Activation> softmax_of_parts(OperatorCall& call, std::size_t axis) {
  Activation a = call.activation(0);
  const std::int64_t parts = parts_along(call.net, a, axis);
  if (parts < 2) return std::nullopt;
  if (parts > 2)
    throw CannotImport(fmt::format("it is over {} parts of the maps; layers compute it over two", parts));
  // exp(x) / (exp(x) + exp(y)) is logistic(x - y).
  const SketchId difference =
      call.net.add_sum({part_of(call.net, a.layer, 2, 0), part_of(call.net, a.layer, 2, 1)}, {1, -1});
  const SketchId first = call.net.add_neuron(difference, {"logistic", 1, 0});
  const SketchId second = call.net.add_linear(first, -1, 1);
  SketchLayer layer{"concat", {first, second}, call.net.shape(a.layer), {}, {}, {}, {}};
  a.layer = call.net.add(std::move(layer));
  return a;
}

}  // namespace convnet
