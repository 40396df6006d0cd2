// Operators that see the same elements in another form, or take some of them.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "convnet/onnx_import/operators.h"

namespace convnet {
namespace {

Dims reshaped_dims(const OperatorCall& call, const Dims& before) {
  const auto given = call.integers_or_input("shape", 1);
  if (!given) throw CannotImport("it has no shape");
  Dims dims = *given;
  const bool keeps_zero = call.integer("allowzero", 0) != 0;
  const std::int64_t all = element_count(before);
  std::int64_t known = 1;
  std::optional<std::size_t> open;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 && !keeps_zero && i < before.size()) dims[i] = before[i];
    if (dims[i] == -1 && !open) {
      open = i;
      continue;
    }
    if (dims[i] < 0 || dims[i] > all) throw CannotImport("its shape is " + to_string(*given));
    known = std::min(known * dims[i], all + 1);
  }
  if (open) {
    if (known != 0 && all % known != 0) throw CannotImport("its shape is " + to_string(*given));
    dims[*open] = known == 0 ? 0 : all / known;
  }
  return dims;
}

Dims flattened_dims(const OperatorCall& call, const Dims& before) {
  const std::int64_t given = call.integer("axis", 1), rank = std::ssize(before);
  if (given < -rank || given > rank) throw CannotImport("its axis is out of range");
  const auto at = before.begin() + (given < 0 ? given + rank : given);
  return {element_count(Dims(before.begin(), at)), element_count(Dims(at, before.end()))};
}

Dims squeezed_dims(const OperatorCall& call, const Dims& before) {
  std::vector<bool> removed(before.size(), false);
  if (const auto axes = call.integers_or_input("axes", 1)) {
    for (const std::int64_t axis : *axes) removed[OperatorCall::axis(axis, before.size())] = true;
  } else {
    // The axis of the images stays, also where a model reads one image.
    for (std::size_t i = call.is_constant(0) ? 0 : 1; i < before.size(); ++i) removed[i] = before[i] == 1;
  }
  Dims rest;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (removed[i] && before[i] != 1) throw CannotImport("it removes an axis that is not 1");
    if (!removed[i]) rest.push_back(before[i]);
  }
  return rest;
}

Dims unsqueezed_dims(const OperatorCall& call, const Dims& before) {
  const auto axes = call.integers_or_input("axes", 1);
  if (!axes || axes->size() > 16) throw CannotImport("it has no axes");
  std::vector<bool> added(before.size() + axes->size(), false);
  for (const std::int64_t axis : *axes) added[OperatorCall::axis(axis, added.size())] = true;
  Dims dims;
  auto next = before.begin();
  for (const bool is_new : added) {
    if (!is_new && next == before.end()) throw CannotImport("it adds an axis twice");
    dims.push_back(is_new ? 1 : *next++);
  }
  return dims;
}

}  // namespace

Dims dims_after(const OperatorCall& call, const Dims& before) {
  const std::string& op = call.node.op;
  if (op == "Reshape") return reshaped_dims(call, before);
  if (op == "Flatten") return flattened_dims(call, before);
  return op == "Squeeze" ? squeezed_dims(call, before) : unsqueezed_dims(call, before);
}

ConstantPtr shape_of(const OperatorCall& call, const Dims& dims) {
  if (call.node.op == "Size") return make_constant({}, std::vector<std::int64_t>{element_count(dims)});
  const auto rank = std::ssize(dims);
  const auto place = [&](const char* name, std::int64_t otherwise) {
    const std::int64_t given = call.integer(name, otherwise);
    return std::clamp<std::int64_t>(given < 0 ? given + rank : given, 0, rank);
  };
  const std::int64_t start = place("start", 0), end = std::max(start, place("end", rank));
  const Dims some(dims.begin() + start, dims.begin() + end);
  return make_constant({std::ssize(some)}, some);
}

namespace {

std::vector<SourceValue> import_identity(OperatorCall& call) { return {call.activation(0)}; }

/// A cast between kinds of floats changes nothing; one to integers or truth values rounds.
std::vector<SourceValue> import_cast(OperatorCall& call) {
  const bool rounds = call.node.op == "Cast" ? !is_float_type(call.integer("to", 0))
                                             : call.is_constant(1) && !call.constant(1).is_float();
  if (rounds)
    throw CannotImport(
        "it turns numbers into integers or truth values, and layers have floating-point numbers");
  return import_identity(call);
}

/// Returns the activation with these dims, of which the first must count the images.
SourceValue with_dims(const Activation& a, Dims dims) {
  if (dims.empty() || dims[0] != a.images)
    throw CannotImport(fmt::format("it makes {} of {}, and the first axis must stay that of the images",
                                   to_string(dims), to_string(a.dims())));
  return reshaped(a, dims);
}

/// Reshape, Flatten, Squeeze and Unsqueeze.
std::vector<SourceValue> import_form(OperatorCall& call) {
  const Activation& a = call.activation(0);
  return {with_dims(a, dims_after(call, a.dims()))};
}

std::vector<SourceValue> import_transpose(OperatorCall& call) {
  const Activation& a = call.activation(0);
  std::vector<std::int64_t> reversed(a.axes.size() + 1);
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return {transposed(a, call.integers("perm", reversed))};
}

std::vector<SourceValue> import_shape(OperatorCall& call) {
  return {shape_of(call, call.activation(0).dims())};
}

/// Returns some of the elements along an axis, which must be that of the maps: all of its elements lie in
/// maps of their own.
Activation selected(OperatorCall& call, const Activation& a, std::size_t axis, std::int64_t first,
                    std::int64_t step, std::int64_t count) {
  const AxisDigits& digits = a.axes[axis - 1];
  const FeatureShape stored = call.net.shape(a.layer);
  if (first == 0 && step == 1 && count == size_of(digits)) return a;
  if (count < 1) throw CannotImport("nothing is left");
  const std::int64_t pixels = stored.h * stored.w;
  if (!counts_maps(digits, stored) || size_of(digits) != stored.c)
    throw CannotImport("it takes elements along another axis than that of the maps");
  call.net.charge(stored.c);
  const std::vector<std::int64_t> all = maps_along(digits, pixels);
  std::vector<std::int64_t> maps;
  for (std::int64_t i = 0; i < count; ++i) maps.push_back(all[static_cast<std::size_t>(first + i * step)]);
  Activation result = a;
  result.layer = call.net.add_selection(a.layer, maps);
  result.axes[axis - 1] = joined(AxisDigits{{count, pixels}});
  return result;
}

/// Every `step`-th element of an axis, from `first` on.
struct Part {
  std::int64_t first = 0, step = 1, count = 0;
  bool operator==(const Part&) const = default;
};

/// Returns a rectangle of the pixels of maps: a pool layer of single pixels.
Activation cropped(OperatorCall& call, const Activation& a, const Part& rows, const Part& columns) {
  FeatureShape in;
  const SketchId below = as_maps(call, a, in);
  SketchLayer layer{"pool", {below}, {in.c, rows.count, columns.count, true}, {}, {}, {}, {}};
  layer.keys = {{"pool", "max"}, {"channels", std::to_string(in.c)}, {"sizeX", "1"}};
  const auto add = [&](const char* key, const char* key_y, std::int64_t Part::*field) {
    layer.keys.emplace_back(key, std::to_string(columns.*field));
    if (rows.*field != columns.*field) layer.keys.emplace_back(key_y, std::to_string(rows.*field));
  };
  add("stride", "strideY", &Part::step);
  if (rows.first > 0 || columns.first > 0) add("start", "startY", &Part::first);
  add("outputsX", "outputsY", &Part::count);
  layer.comment = "a part of the pixels";
  const FeatureShape out = layer.shape;
  return stored_activation(call.net.add(std::move(layer)), out, a.images);
}

std::vector<SourceValue> import_slice(OperatorCall& call) {
  Activation a = call.activation(0);
  const auto starts = call.integers_or_input("starts", 1), ends = call.integers_or_input("ends", 2);
  if (!starts || !ends || starts->size() != ends->size()) throw CannotImport("it has no starts and ends");
  std::vector<std::int64_t> usual(starts->size());
  std::iota(usual.begin(), usual.end(), 0);
  const auto axes = call.integers_or_input("axes", 3).value_or(usual);
  const auto steps =
      call.integers_or_input("steps", 4).value_or(std::vector<std::int64_t>(starts->size(), 1));
  if (axes.size() != starts->size() || steps.size() != starts->size())
    throw CannotImport("its starts, ends, axes and steps are not as many");
  std::vector<std::pair<std::size_t, Part>> parts;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = OperatorCall::axis(axes[i], a.axes.size() + 1);
    const std::int64_t side = a.dims()[axis], step = steps[i];
    if (std::ranges::any_of(parts, [&](const auto& part) { return part.first == axis; }))
      throw CannotImport(fmt::format("it names the axis {} twice", axis));
    if (step < 1 || step > side) throw CannotImport(fmt::format("its step is {}", step));
    const auto place = [&](std::int64_t given) {
      return std::clamp<std::int64_t>(given < 0 ? std::max(given, -side) + side : given, 0, side);
    };
    const std::int64_t first = place((*starts)[i]), end = place((*ends)[i]);
    const Part part{first, step, end <= first ? 0 : (end - first + step - 1) / step};
    if (part == Part{0, 1, side}) continue;
    if (axis == 0) throw CannotImport("it takes some of the images");
    parts.emplace_back(axis, part);
  }
  // Maps first, whose axis has the number 1; the other two are those of pixels.
  const auto of_pixels = [&](const auto& part) {
    return part.first > 1 && part.second.count > 0 && a.axes.size() == 3 && call.net.shape(a.layer).image;
  };
  for (const auto& [axis, p] : parts)
    if (!of_pixels(std::pair(axis, p))) a = selected(call, a, axis, p.first, p.step, p.count);
  if (std::ranges::none_of(parts, of_pixels)) return {a};
  Part rows{0, 1, a.dims()[2]}, columns{0, 1, a.dims()[3]};
  for (const auto& part : parts)
    if (of_pixels(part)) (part.first == 2 ? rows : columns) = part.second;
  return {cropped(call, a, rows, columns)};
}

std::vector<SourceValue> import_split(OperatorCall& call) {
  const Activation& a = call.activation(0);
  const std::size_t axis = OperatorCall::axis(call.integer("axis", 0), a.axes.size() + 1);
  if (axis == 0) throw CannotImport("it splits images");
  const std::int64_t side = a.dims()[axis], outputs = std::ssize(call.node.outputs);
  const std::int64_t each = (side + outputs - 1) / outputs;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(outputs), each);
  sizes.back() = side - each * (outputs - 1);
  if (const auto given = call.integers_or_input("split", 1)) sizes = *given;
  std::int64_t first = 0;
  std::vector<SourceValue> parts;
  for (const std::int64_t size : sizes) {
    if (size < 1 || size > side - first) throw CannotImport("its sizes do not fit");
    parts.emplace_back(selected(call, a, axis, first, 1, size));
    first += size;
  }
  if (first != side || std::ssize(parts) != outputs) throw CannotImport("its sizes do not fit");
  return parts;
}

/// Gather of one map or of several.
std::vector<SourceValue> import_gather(OperatorCall& call) {
  const Activation& a = call.activation(0);
  const std::size_t axis = OperatorCall::axis(call.integer("axis", 0), a.axes.size() + 1);
  const Constant& indices = call.constant(1);
  if (axis == 0 || indices.is_float() || indices.count() != 1)
    throw CannotImport("it takes other elements than one map");
  const auto at = static_cast<std::int64_t>(
      OperatorCall::axis(indices.integers()[0], static_cast<std::size_t>(a.dims()[axis])));
  const Activation one = selected(call, a, axis, at, 1, 1);
  Dims dims = one.dims();
  if (indices.dims.empty()) dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
  return {reshaped(one, dims)};
}

/// Expand to the dims that the input has.
std::vector<SourceValue> import_expand(OperatorCall& call) {
  const Activation& a = call.activation(0);
  const Constant& shape = call.constant(1);
  const Dims dims = a.dims();
  const bool same =
      !shape.is_float() && shape.count() <= std::ssize(dims) &&
      std::equal(shape.integers().rbegin(), shape.integers().rend(), dims.rbegin(),
                 [](std::int64_t wanted, std::int64_t there) { return wanted == 1 || wanted == there; });
  if (!same) throw CannotImport("it makes its input larger");
  return {a};
}

}  // namespace

const std::vector<KnownOperator>& shape_operators() {
  static const std::vector<KnownOperator> all = {
      {"Identity", import_identity}, {"Cast", import_cast},      {"CastLike", import_cast},
      {"Reshape", import_form},      {"Flatten", import_form},   {"Transpose", import_transpose},
      {"Squeeze", import_form},      {"Unsqueeze", import_form}, {"Shape", import_shape},
      {"Size", import_shape},        {"Slice", import_slice},    {"Split", import_split},
      {"Gather", import_gather},     {"Expand", import_expand},
  };
  return all;
}

}  // namespace convnet
