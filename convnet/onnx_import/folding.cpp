// Computes operators of constants: shapes that exporters compute, and weights that they prepare.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "convnet/onnx_import/operators.h"
#include "convnet/onnx_import/reduced_constants.h"

namespace convnet {
namespace {

/// The largest number of steps and sides.
constexpr std::int64_t kMostNumbers = std::int64_t{1} << 28;

/// Whether x is below -most or above it. (The least integer has no absolute value.)
bool is_far(std::int64_t x, std::int64_t most) { return x < -most || x > most; }

void check_size(const OperatorCall& call, const Dims& dims) {
  if (std::ranges::any_of(dims, [](std::int64_t side) { return side < 0; }) ||
      element_count(dims) > call.most_numbers || dims.size() > 16)
    throw CannotImport("it computes a constant of " + to_string(dims));
}

/// Returns the elements of a constant in another order: element i of the result, which has these dims, is
/// element from(index) of the constant.
template <class From>
ConstantPtr rearranged(const OperatorCall& call, const Constant& c, const Dims& dims, const From& from) {
  check_size(call, dims);
  return std::visit(
      [&]<class T>(const std::vector<T>& values) {
        std::vector<T> result;
        const std::int64_t count = element_count(dims);
        result.reserve(static_cast<std::size_t>(count));
        Dims index(dims.size(), 0);
        for (std::int64_t i = 0; i < count; ++i) {
          result.push_back(values[static_cast<std::size_t>(from(index))]);
          for (std::size_t axis = dims.size(); axis-- > 0 && ++index[axis] == dims[axis];) index[axis] = 0;
        }
        return make_constant(dims, std::move(result));
      },
      c.numbers);
}

/// Returns the distances of neighbours along each axis of a dense tensor.
Dims strides_of(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t axis = dims.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * dims[axis];
  return strides;
}

std::int64_t place(const Dims& index, const Dims& strides) {
  return std::inner_product(index.begin(), index.end(), strides.begin(), std::int64_t{0});
}

/// Returns the dims to which both are broadcast.
Dims common_dims(const OperatorCall& call, const Dims& a, const Dims& b) {
  Dims result(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      throw CannotImport("its constants are " + to_string(a) + " and " + to_string(b));
    result[result.size() - 1 - i] = x == 1 ? y : x;
  }
  check_size(call, result);
  return result;
}

/// Returns a constant with these dims, which it is broadcast to.
ConstantPtr expanded(const OperatorCall& call, const Constant& c, const Dims& dims) {
  const Dims strides = strides_of(c.dims);
  const std::size_t missing = dims.size() - c.dims.size();
  return rearranged(call, c, dims, [&](const Dims& index) {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < c.dims.size(); ++i)
      if (c.dims[i] != 1) at += index[i + missing] * strides[i];
    return at;
  });
}

using Integer = std::int64_t;
Integer wrapped(std::uint64_t value) { return static_cast<Integer>(value); }

/// The functions of two numbers.
struct Binary {
  Integer (*of_integers)(Integer, Integer);
  double (*of_reals)(double, double);
};
const std::map<std::string, Binary>& binary_functions() {
  static const std::map<std::string, Binary> all = {
      {"Add",
       {[](Integer a, Integer b) {
          return wrapped(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
        },
        [](double a, double b) { return a + b; }}},
      {"Sub",
       {[](Integer a, Integer b) {
          return wrapped(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
        },
        [](double a, double b) { return a - b; }}},
      {"Mul",
       {[](Integer a, Integer b) {
          return wrapped(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
        },
        [](double a, double b) { return a * b; }}},
      {"Div",
       {[](Integer a, Integer b) {
          if (b == 0) throw CannotImport("it divides by 0");
          return b == -1 ? wrapped(-static_cast<std::uint64_t>(a)) : a / b;
        },
        [](double a, double b) { return a / b; }}},
      {"Mod",
       {[](Integer a, Integer b) {
          if (b == 0) throw CannotImport("it divides by 0");
          const Integer rest = b == -1 ? 0 : a % b;
          return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
        },
        [](double a, double b) { return std::fmod(a, b); }}},
      {"Min",
       {[](Integer a, Integer b) { return std::min(a, b); },
        [](double a, double b) { return std::min(a, b); }}},
      {"Max",
       {[](Integer a, Integer b) { return std::max(a, b); },
        [](double a, double b) { return std::max(a, b); }}},
      {"Pow", {nullptr, [](double a, double b) { return std::pow(a, b); }}},
      {"Equal", {[](Integer a, Integer b) { return Integer{a == b}; }, nullptr}},
      {"And", {[](Integer a, Integer b) { return Integer{a != 0 && b != 0}; }, nullptr}},
      {"Or", {[](Integer a, Integer b) { return Integer{a != 0 || b != 0}; }, nullptr}},
      {"Less", {[](Integer a, Integer b) { return Integer{a < b}; }, nullptr}},
      {"Greater", {[](Integer a, Integer b) { return Integer{a > b}; }, nullptr}},
  };
  return all;
}

ConstantPtr folded_binary(const OperatorCall& call, const Binary& f, const Constant& a, const Constant& b) {
  const Dims dims = common_dims(call, a.dims, b.dims);
  const bool of_integers = !a.is_float() && !b.is_float() && f.of_integers != nullptr;
  if (!of_integers && f.of_reals == nullptr) throw CannotImport("it is not computed for floats");
  const ConstantPtr x = expanded(call, a, dims), y = expanded(call, b, dims);
  const std::int64_t count = x->count();
  if (of_integers) {
    std::vector<Integer> result;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      result.push_back(f.of_integers(x->integers()[i], y->integers()[i]));
    return make_constant(dims, std::move(result));
  }
  std::vector<float> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(static_cast<float>(f.of_reals(x->number(i), y->number(i))));
  return make_constant(dims, std::move(result));
}

const std::map<std::string, double (*)(double)>& unary_functions() {
  static const std::map<std::string, double (*)(double)> all = {
      {"Neg", [](double x) { return -x; }},
      {"Abs", [](double x) { return std::abs(x); }},
      {"Sqrt", [](double x) { return std::sqrt(x); }},
      {"Exp", [](double x) { return std::exp(x); }},
      {"Log", [](double x) { return std::log(x); }},
      {"Reciprocal", [](double x) { return 1 / x; }},
      {"Floor", [](double x) { return std::floor(x); }},
      {"Ceil", [](double x) { return std::ceil(x); }},
      {"Round", [](double x) { return std::nearbyint(x); }}};
  return all;
}

ConstantPtr folded_unary(double (*f)(double), const Constant& c) {
  if (!c.is_float()) {
    std::vector<Integer> integers;
    for (std::int64_t i = 0; i < c.count(); ++i) {
      const double y = f(c.number(i));
      if (!(std::abs(y) < 9e15)) throw CannotImport("its integers are too large");
      integers.push_back(static_cast<Integer>(y));
    }
    return make_constant(c.dims, std::move(integers));
  }
  std::vector<float> result;
  for (const float x : c.floats()) result.push_back(static_cast<float>(f(x)));
  return make_constant(c.dims, std::move(result));
}

ConstantPtr with_dims(const Constant& c, Dims dims) {
  if (element_count(dims) != c.count()) throw CannotImport("it changes the number of elements of a constant");
  return std::make_shared<const Constant>(Constant{std::move(dims), c.numbers});
}

ConstantPtr folded_value(const OperatorCall& call) {
  for (const auto& [name, value] : call.node.attributes) {
    if (const auto* tensor = std::get_if<StoredTensor>(&value); tensor != nullptr && name == "value") {
      if (!tensor->constant) throw CannotImport(tensor->problem);
      return tensor->constant;
    }
    if (name == "value_int") return make_constant({}, std::vector<Integer>{call.integer(name, 0)});
    if (name == "value_float")
      return make_constant({}, std::vector<float>{static_cast<float>(call.real(name, 0))});
    if (name == "value_ints") {
      const std::vector<Integer> numbers = call.integers(name);
      return make_constant({std::ssize(numbers)}, numbers);
    }
    if (const auto* floats = std::get_if<std::vector<float>>(&value);
        floats != nullptr && name == "value_floats")
      return make_constant({std::ssize(*floats)}, *floats);
  }
  throw CannotImport("its value is of a kind that is not read");
}

ConstantPtr folded_fill(const OperatorCall& call) {
  if (call.constant(0).is_float()) throw CannotImport("its shape holds no integers");
  const Dims dims = call.constant(0).integers();
  check_size(call, dims);
  const auto count = static_cast<std::size_t>(element_count(dims));
  if (!call.has_attribute("value")) return make_constant(dims, std::vector<float>(count, 0.0F));
  const ConstantPtr value = folded_value(call);
  if (value->count() != 1) throw CannotImport("its value is not one number");
  if (value->is_float()) return make_constant(dims, std::vector<float>(count, value->floats()[0]));
  return make_constant(dims, std::vector<Integer>(count, value->integers()[0]));
}

ConstantPtr folded_cast(const OperatorCall& call) {
  const Constant& c = call.constant(0);
  const std::int64_t to = call.integer("to", 0);
  const bool real = is_float_type(to);
  if (to == kBoolType) {
    std::vector<Integer> truths;
    for (std::int64_t i = 0; i < c.count(); ++i) truths.push_back(c.number(i) != 0 ? 1 : 0);
    return make_constant(c.dims, std::move(truths));
  }
  if (real == c.is_float()) return call.constant_pointer(0);
  if (real) {
    std::vector<float> floats;
    for (const Integer x : c.integers()) floats.push_back(static_cast<float>(x));
    return make_constant(c.dims, std::move(floats));
  }
  std::vector<Integer> integers;
  for (const float x : c.floats()) {
    if (!(std::abs(x) < 9e18F)) throw CannotImport("its numbers are too large for integers");
    integers.push_back(static_cast<Integer>(x));
  }
  return make_constant(c.dims, std::move(integers));
}

ConstantPtr folded_gather(const OperatorCall& call) {
  const Constant &c = call.constant(0), &indices = call.constant(1);
  if (indices.is_float()) throw CannotImport("its indices are no integers");
  const std::size_t axis = OperatorCall::axis(call.integer("axis", 0), c.dims.size());
  const auto at = static_cast<std::ptrdiff_t>(axis);
  Dims dims(c.dims.begin(), c.dims.begin() + at);
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  dims.insert(dims.end(), c.dims.begin() + at + 1, c.dims.end());
  std::vector<Integer> chosen;
  for (const Integer i : indices.integers())
    chosen.push_back(static_cast<Integer>(OperatorCall::axis(i, static_cast<std::size_t>(c.dims[axis]))));
  const Dims strides = strides_of(c.dims), of_indices = strides_of(indices.dims);
  return rearranged(call, c, dims, [&](const Dims& index) {
    const auto first = index.begin() + at;
    const Integer which = std::inner_product(of_indices.begin(), of_indices.end(), first, Integer{0});
    Integer from = chosen[static_cast<std::size_t>(which)] * strides[axis];
    for (std::size_t i = 0; i < axis; ++i) from += index[i] * strides[i];
    for (std::size_t i = axis + 1; i < c.dims.size(); ++i)
      from += index[i + indices.dims.size() - 1] * strides[i];
    return from;
  });
}

ConstantPtr folded_slice(const OperatorCall& call) {
  const Constant& c = call.constant(0);
  const auto starts = call.integers_or_input("starts", 1), ends = call.integers_or_input("ends", 2);
  if (!starts || !ends) throw CannotImport("it has no starts and ends");
  std::vector<Integer> axes(starts->size()), steps(starts->size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  axes = call.integers_or_input("axes", 3).value_or(axes);
  steps = call.integers_or_input("steps", 4).value_or(steps);
  if (ends->size() != starts->size() || axes.size() != starts->size() || steps.size() != starts->size())
    throw CannotImport("its starts, ends, axes and steps are not as many");
  Dims dims = c.dims, first(c.dims.size(), 0), step(c.dims.size(), 1);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = OperatorCall::axis(axes[i], c.dims.size());
    const Integer side = c.dims[axis];
    if (steps[i] == 0 || is_far(steps[i], kMostNumbers)) throw CannotImport("its step is out of range");
    const bool back = steps[i] < 0;
    const auto at = [&](Integer given) {
      const Integer from_front = given < 0 ? std::max(given, -side - 1) + side : given;
      return std::clamp<Integer>(from_front, back ? -1 : 0, back ? side - 1 : side);
    };
    const Integer begin = at((*starts)[i]), end = at((*ends)[i]), distance = back ? begin - end : end - begin;
    first[axis] = begin;
    step[axis] = steps[i];
    dims[axis] = distance <= 0 ? 0 : (distance - 1) / std::abs(steps[i]) + 1;
  }
  const Dims strides = strides_of(c.dims);
  return rearranged(call, c, dims, [&](const Dims& index) {
    Integer from = 0;
    for (std::size_t i = 0; i < index.size(); ++i) from += (first[i] + index[i] * step[i]) * strides[i];
    return from;
  });
}

ConstantPtr folded_concat(const OperatorCall& call) {
  const Constant& c = call.constant(0);
  const std::size_t axis = OperatorCall::axis(call.integer("axis", 0), c.dims.size());
  Dims dims = c.dims;
  dims[axis] = 0;
  for (std::size_t i = 0; i < call.inputs(); ++i) {
    const Constant& one = call.constant(i);
    if (one.dims.size() != dims.size() || one.is_float() != c.is_float())
      throw CannotImport("its constants do not fit each other");
    for (std::size_t a = 0; a < dims.size(); ++a)
      if (a != axis && one.dims[a] != dims[a]) throw CannotImport("its constants do not fit each other");
    dims[axis] += one.dims[axis];
  }
  check_size(call, dims);
  // Without numbers the loops below might still be long: other sides may be of any size.
  Integer outer = element_count(dims) == 0 ? 0 : 1;
  for (std::size_t a = 0; a < axis; ++a) outer *= dims[a];
  return std::visit(
      [&]<class T>(const std::vector<T>&) {
        std::vector<T> result;
        for (Integer o = 0; o < outer; ++o) {
          for (std::size_t i = 0; i < call.inputs(); ++i) {
            const auto& from = std::get<std::vector<T>>(call.constant(i).numbers);
            const std::ptrdiff_t row = std::ssize(from) / outer;
            result.insert(result.end(), from.begin() + o * row, from.begin() + (o + 1) * row);
          }
        }
        return make_constant(dims, std::move(result));
      },
      c.numbers);
}

ConstantPtr folded_transpose(const OperatorCall& call) {
  const Constant& c = call.constant(0);
  std::vector<Integer> perm(c.dims.size());
  std::iota(perm.rbegin(), perm.rend(), 0);
  perm = call.integers("perm", perm);
  std::vector<Integer> axes(c.dims.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (!std::ranges::is_permutation(perm, axes)) throw CannotImport("perm is no order of its axes");
  const Dims strides = strides_of(c.dims);
  Dims dims, of_result;
  for (const Integer axis : perm) {
    dims.push_back(c.dims[static_cast<std::size_t>(axis)]);
    of_result.push_back(strides[static_cast<std::size_t>(axis)]);
  }
  return rearranged(call, c, dims, [&](const Dims& index) { return place(index, of_result); });
}

ConstantPtr folded_form(const OperatorCall& call) {
  const Constant& c = call.constant(0);
  return with_dims(c, dims_after(call, c.dims));
}

ConstantPtr folded_where(const OperatorCall& call) {
  const Constant &condition = call.constant(0), &a = call.constant(1), &b = call.constant(2);
  const Dims dims = common_dims(call, common_dims(call, condition.dims, a.dims), b.dims);
  if (condition.is_float() || a.is_float() != b.is_float())
    throw CannotImport("its inputs are of unequal types");
  const ConstantPtr c = expanded(call, condition, dims), x = expanded(call, a, dims),
                    y = expanded(call, b, dims);
  return std::visit(
      [&]<class T>(const std::vector<T>& yes) {
        const auto& no = std::get<std::vector<T>>(y->numbers);
        std::vector<T> result;
        for (std::size_t i = 0; i < yes.size(); ++i) result.push_back(c->integers()[i] != 0 ? yes[i] : no[i]);
        return make_constant(dims, std::move(result));
      },
      x->numbers);
}

ConstantPtr folded_range(const OperatorCall& call) {
  for (std::size_t i = 0; i < 3; ++i)
    if (call.constant(i).is_float() || call.constant(i).count() != 1)
      throw CannotImport("its limits are no integers");
  const Integer start = call.constant(0).integers()[0], limit = call.constant(1).integers()[0],
                step = call.constant(2).integers()[0];
  constexpr Integer kMost = Integer{1} << 40;
  if (step == 0 || is_far(start, kMost) || is_far(limit, kMost) || is_far(step, kMost))
    throw CannotImport("its limits are out of range");
  const Integer count = std::max<Integer>(0, (limit - start + (step > 0 ? step - 1 : step + 1)) / step);
  check_size(call, {count});
  std::vector<Integer> numbers;
  for (Integer i = 0; i < count; ++i) numbers.push_back(start + i * step);
  return make_constant({count}, std::move(numbers));
}

ConstantPtr folded_shape(const OperatorCall& call) { return shape_of(call, call.constant(0).dims); }

ConstantPtr folded_expand(const OperatorCall& call) {
  const Constant& shape = call.constant(1);
  if (shape.is_float()) throw CannotImport("its shape holds no integers");
  check_size(call, shape.integers());
  return expanded(call, call.constant(0), common_dims(call, call.constant(0).dims, shape.integers()));
}

/// min(max(x, low), high), as exporters compute paddings.
ConstantPtr folded_clip(const OperatorCall& call) {
  ConstantPtr result = call.constant_pointer(0);
  if (call.has_attribute("min") || call.has_attribute("max"))
    throw CannotImport("it has its bounds as attributes");
  if (call.has(1)) result = folded_binary(call, binary_functions().at("Max"), *result, call.constant(1));
  if (call.has(2)) result = folded_binary(call, binary_functions().at("Min"), *result, call.constant(2));
  return result;
}

ConstantPtr folded_identity(const OperatorCall& call) { return call.constant_pointer(0); }

ConstantPtr folded_not(const OperatorCall& call) {
  std::vector<Integer> result;
  if (call.constant(0).is_float()) throw CannotImport("its input holds no truth values");
  for (const Integer x : call.constant(0).integers()) result.push_back(x == 0 ? 1 : 0);
  return make_constant(call.constant(0).dims, std::move(result));
}

const std::map<std::string, ConstantPtr (*)(const OperatorCall&)>& folding_functions() {
  static const std::map<std::string, ConstantPtr (*)(const OperatorCall&)> functions = {
      {"Constant", folded_value},
      {"ConstantOfShape", folded_fill},
      {"Cast", folded_cast},
      {"Gather", folded_gather},
      {"Slice", folded_slice},
      {"Concat", folded_concat},
      {"Transpose", folded_transpose},
      {"Reshape", folded_form},
      {"Flatten", folded_form},
      {"Squeeze", folded_form},
      {"Unsqueeze", folded_form},
      {"Where", folded_where},
      {"Range", folded_range},
      {"Shape", folded_shape},
      {"Size", folded_shape},
      {"Expand", folded_expand},
      {"ReduceProd", folded_reduce},
      {"ReduceSum", folded_reduce},
      {"ReduceMean", folded_reduce},
      {"BatchNormalization", folded_batch_norm},
      {"Identity", folded_identity},
      {"Clip", folded_clip},
      {"Not", folded_not}};
  return functions;
}

}  // namespace

bool folds(const std::string& op) {
  return folding_functions().contains(op) || binary_functions().contains(op) ||
         unary_functions().contains(op);
}

std::optional<std::vector<SourceValue>> fold_constants(OperatorCall& call) {
  const std::string& op = call.node.op;
  if (const auto found = folding_functions().find(op); found != folding_functions().end())
    return {{found->second(call)}};
  if (const auto found = binary_functions().find(op); found != binary_functions().end()) {
    // Max and Min have any number of inputs.
    const std::size_t inputs = op == "Max" || op == "Min" ? call.inputs() : 2;
    ConstantPtr result = call.constant_pointer(0);
    for (std::size_t i = 1; i < inputs; ++i)
      result = folded_binary(call, found->second, *result, call.constant(i));
    return {{result}};
  }
  if (const auto found = unary_functions().find(op); found != unary_functions().end())
    return {{folded_unary(found->second, call.constant(0))}};
  return std::nullopt;
}

}  // namespace convnet
