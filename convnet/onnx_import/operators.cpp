#include "convnet/onnx_import/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "convnet/base/printable.h"

namespace convnet {
namespace {

/// Returns the function of an operator; null if there is none.
OperatorFunction find_operator(const std::string& name) {
  static const auto all = [] {
    std::map<std::string, OperatorFunction> functions;
    for (const auto& family : {window_operators(), product_operators(), norm_operators(),
                               function_operators(), arithmetic_operators(), shape_operators()})
      for (const KnownOperator& known : family) functions[known.name] = known.import;
    return functions;
  }();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

/// Returns why an operator that has no function cannot be imported.
std::string unknown_operator(const SourceNode& node) {
  if (!node.domain.empty())
    return fmt::format("it is an operator of {}, not of ONNX itself", excerpt(node.domain));
  if (node.op.ends_with("uantizeLinear") || node.op.starts_with("QLinear") || node.op.ends_with("Integer"))
    return "it is of a quantised model; import the model as it was before it was quantised";
  return "no layer computes it";
}

}  // namespace

bool OperatorCall::all_constant() const {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (has(i) && !is_constant(i)) return false;
  return true;
}

const ConstantPtr& OperatorCall::constant_pointer(std::size_t i) const {
  if (!is_constant(i)) throw CannotImport(fmt::format("its input {} is no constant", i + 1));
  return std::get<ConstantPtr>(inputs_[i]);
}

const Constant& OperatorCall::constant(std::size_t i) const { return *constant_pointer(i); }

const Activation& OperatorCall::activation(std::size_t i) const {
  if (!has(i)) throw CannotImport(fmt::format("it has no input {}", i + 1));
  if (is_constant(i)) throw CannotImport(fmt::format("its input {} is a constant", i + 1));
  return std::get<Activation>(inputs_[i]);
}

std::size_t OperatorCall::only_activation() const {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!has(i) || is_constant(i)) continue;
    if (found) throw CannotImport("it has several inputs that are no constants");
    found = i;
  }
  if (!found) throw CannotImport("all of its inputs are constants");
  return *found;
}

std::int64_t OperatorCall::integer(const std::string& name, std::int64_t otherwise) const {
  const auto found = node.attributes.find(name);
  if (found == node.attributes.end()) return otherwise;
  if (const auto* value = std::get_if<std::int64_t>(&found->second)) return *value;
  throw CannotImport("its attribute " + name + " is no integer");
}

double OperatorCall::real(const std::string& name, double otherwise) const {
  const auto found = node.attributes.find(name);
  if (found == node.attributes.end()) return otherwise;
  const auto* value = std::get_if<float>(&found->second);
  if (value != nullptr && std::isfinite(*value)) return static_cast<double>(*value);
  throw CannotImport("its attribute " + name + " is no number");
}

std::string OperatorCall::text(const std::string& name, const std::string& otherwise) const {
  const auto found = node.attributes.find(name);
  if (found == node.attributes.end()) return otherwise;
  if (const auto* value = std::get_if<std::string>(&found->second)) return *value;
  throw CannotImport("its attribute " + name + " is no text");
}

std::vector<std::int64_t> OperatorCall::integers(const std::string& name,
                                                 std::vector<std::int64_t> otherwise) const {
  const auto found = node.attributes.find(name);
  if (found == node.attributes.end()) return otherwise;
  if (const auto* value = std::get_if<std::vector<std::int64_t>>(&found->second)) return *value;
  throw CannotImport("its attribute " + name + " is no list of integers");
}

std::optional<std::vector<std::int64_t>> OperatorCall::integers_or_input(const std::string& name,
                                                                         std::size_t i) const {
  if (has_attribute(name)) return integers(name);
  if (!has(i)) return std::nullopt;
  if (constant(i).is_float()) throw CannotImport(fmt::format("its input {} holds no integers", i + 1));
  return constant(i).integers();
}

std::optional<double> OperatorCall::real_or_input(const std::string& name, std::size_t i) const {
  if (has_attribute(name)) return real(name, 0);
  if (!has(i)) return std::nullopt;
  if (constant(i).count() != 1) throw CannotImport(fmt::format("its input {} is not one number", i + 1));
  return constant(i).number(0);
}

std::size_t OperatorCall::axis(std::int64_t given, std::size_t rank) {
  const auto axes = static_cast<std::int64_t>(rank);
  const std::int64_t from_front = given < 0 ? given + axes : given;
  if (from_front < 0 || from_front >= axes)
    throw CannotImport(fmt::format("it has an axis {} of {} axes", given, axes));
  return static_cast<std::size_t>(from_front);
}

std::vector<SourceValue> import_operator(OperatorCall& call) {
  const bool own = call.node.domain.empty();
  if (own && call.all_constant()) {
    if (auto folded = fold_constants(call)) return *folded;
    throw CannotImport("it computes constants in a way that is not known");
  }
  const OperatorFunction function = own ? find_operator(call.node.op) : nullptr;
  if (function == nullptr) throw CannotImport(unknown_operator(call.node));
  return function(call);
}

std::string why_never_imported(const SourceNode& node) {
  const bool known = node.domain.empty() && (find_operator(node.op) != nullptr || folds(node.op));
  return known ? "" : unknown_operator(node);
}

ConstantPtr make_constant(Dims dims, std::vector<std::int64_t> numbers) {
  return std::make_shared<const Constant>(Constant{std::move(dims), std::move(numbers)});
}

ConstantPtr make_constant(Dims dims, std::vector<float> numbers) {
  return std::make_shared<const Constant>(Constant{std::move(dims), std::move(numbers)});
}

SketchMatrix as_matrix(const ConstantPtr& constant, Dims dims) {
  return {std::move(dims), {constant, &constant->floats()}};
}

SketchId as_maps(OperatorCall& call, const Activation& a, FeatureShape& shape) {
  const Dims dims = a.dims();
  if (dims.size() != 4)
    throw CannotImport(
        fmt::format("its input has {} axes, {}; layers of maps have 4", dims.size(), to_string(dims)));
  shape = {dims[1], dims[2], dims[3], true};
  const FeatureShape& stored = call.net.shape(a.layer);
  const bool square_vector = !stored.image && shape.h == shape.w && stored.size() == shape.size();
  if (a.in_order() && (stored == shape || square_vector)) return a.layer;
  const Activation pixels{a.layer, a.images, {a.axes[1], a.axes[2]}};
  const bool only_maps = stored.image && stored.h == shape.h && stored.w == shape.w && stored.c == shape.c &&
                         counts_maps(a.axes[0], stored) && pixels.in_order();
  if (!only_maps)
    throw CannotImport(fmt::format("its input is {}, seen as {} with axes exchanged or cut otherwise",
                                   stored.str(), to_string(Dims(dims.begin() + 1, dims.end()))));
  return call.net.add_selection(a.layer, maps_along(a.axes[0], stored.h * stored.w));
}

Broadcast broadcast(const Constant& constant, const Activation& a, const FeatureShape& shape) {
  if (!constant.is_float()) throw CannotImport("a constant beside the activation holds no floats");
  const std::vector<float>& values = constant.floats();
  if (values.empty()) throw CannotImport("a constant beside the activation is empty");
  const bool all_equal = std::ranges::all_of(values, [&](float v) { return v == values[0]; });
  const Dims dims = a.dims();
  // Both are aligned at their last axes; missing axes are 1.
  if (constant.dims.size() > dims.size())
    throw CannotImport(fmt::format("a constant of {} makes its input of {} larger", to_string(constant.dims),
                                   to_string(dims)));
  const std::size_t missing = dims.size() - constant.dims.size();
  std::vector<AxisDigits> varying;
  bool maps_only = true;
  for (std::size_t i = 0; i < constant.dims.size(); ++i) {
    const std::int64_t side = constant.dims[i], there = dims[i + missing];
    if (side == 1) continue;
    if (side != there || i + missing == 0)
      throw CannotImport(fmt::format("a constant of {} makes its input of {} larger",
                                     to_string(constant.dims), to_string(dims)));
    varying.push_back(a.axes[i + missing - 1]);
    maps_only = maps_only && counts_maps(varying.back(), shape);
  }
  if (all_equal) return {Broadcast::Kind::number, {values[0]}};
  const std::int64_t pixels = shape.h * shape.w;
  const bool by_map = maps_only && std::ssize(values) == shape.c;
  if (!by_map && std::ssize(values) != shape.size())
    throw CannotImport(
        fmt::format("a constant of {} beside {} has neither a number for each map nor one for "
                    "each element",
                    to_string(constant.dims), to_string(dims)));
  Broadcast result{by_map ? Broadcast::Kind::maps : Broadcast::Kind::elements, {}};
  result.numbers.resize(values.size());
  const std::vector<std::int64_t> at = places(varying);
  for (std::size_t i = 0; i < values.size(); ++i)
    result.numbers[static_cast<std::size_t>(by_map ? at[i] / pixels : at[i])] = values[i];
  return result;
}

}  // namespace convnet
