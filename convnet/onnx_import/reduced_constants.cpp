#include "convnet/onnx_import/reduced_constants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace convnet {
namespace {

/// A reduction of the elements of a constant.
struct Reduction {
  Dims dims;                           ///< of the result
  std::vector<std::size_t> to;         ///< for each element of the constant, that of the result
  std::size_t count = 1, of_each = 1;  ///< elements of the result, and of the constant for each of them
};

Reduction reduction_of(const OperatorCall& call, const Dims& from) {
  if (element_count(from) == 0) throw CannotImport("it reduces a constant without elements");
  const auto axes = call.integers_or_input("axes", 1);
  const bool all = !axes || axes->empty();
  if (all && call.integer("noop_with_empty_axes", 0) != 0) throw CannotImport("it has no axes");
  std::vector<bool> reduced(from.size(), all);
  if (!all)
    for (const std::int64_t axis : *axes) reduced[OperatorCall::axis(axis, from.size())] = true;
  Reduction result;
  const bool keeps = call.integer("keepdims", 1) != 0;
  Dims strides(from.size(), 0);  // of the result; 0 along reduced axes
  std::int64_t stride = 1;
  for (std::size_t i = from.size(); i-- > 0;) {
    if (reduced[i]) {
      result.of_each *= static_cast<std::size_t>(from[i]);
      if (keeps) result.dims.push_back(1);
    } else {
      strides[i] = stride;
      stride *= from[i];
      result.dims.push_back(from[i]);
    }
  }
  std::ranges::reverse(result.dims);
  result.count = static_cast<std::size_t>(stride);
  const std::int64_t elements = element_count(from);
  result.to.reserve(static_cast<std::size_t>(elements));
  Dims index(from.size(), 0);
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    result.to.push_back(static_cast<std::size_t>(at));
    for (std::size_t axis = from.size(); axis-- > 0;) {
      at += strides[axis];
      if (++index[axis] < from[axis]) break;
      at -= strides[axis] * from[axis];
      index[axis] = 0;
    }
  }
  return result;
}

/// Returns the sums, or the products, of the elements of a constant.
template <class Sum, class Element>
std::vector<Sum> reduced(const Reduction& r, const std::vector<Element>& elements, bool is_product) {
  std::vector<Sum> sums(r.count, is_product ? 1 : 0);
  for (std::size_t i = 0; i < r.to.size(); ++i) {
    const auto x = static_cast<Sum>(elements[i]);
    Sum& sum = sums[r.to[i]];
    sum = is_product ? sum * x : sum + x;
  }
  return sums;
}

}  // namespace

ConstantPtr folded_reduce(const OperatorCall& call) {
  const Constant& c = call.constant(0);
  const Reduction r = reduction_of(call, c.dims);
  const bool is_product = call.node.op == "ReduceProd", is_mean = call.node.op == "ReduceMean";
  if (!c.is_float()) {
    if (is_mean) throw CannotImport("it has a mean of integers");
    // Unsigned numbers wrap around, as ONNX's do.
    const auto sums = reduced<std::uint64_t>(r, c.integers(), is_product);
    return make_constant(r.dims, std::vector<std::int64_t>(sums.begin(), sums.end()));
  }
  std::vector<float> result;
  for (const double sum : reduced<double>(r, c.floats(), is_product))
    result.push_back(static_cast<float>(is_mean ? sum / static_cast<double>(r.of_each) : sum));
  return make_constant(r.dims, std::move(result));
}

ConstantPtr folded_batch_norm(const OperatorCall& call) {
  const Constant& c = call.constant(0);
  if (c.dims.size() < 2 || !c.is_float() || c.count() == 0)
    throw CannotImport("it computes constants in a way that is not known");
  for (std::size_t i = 1; i < 5; ++i)
    if (!call.constant(i).is_float() || call.constant(i).count() != c.dims[1])
      throw CannotImport(fmt::format("its input {} has not a number for each of {} maps", i + 1, c.dims[1]));
  const auto maps = static_cast<std::size_t>(c.dims[1]);
  std::size_t pixels = 1;
  for (std::size_t i = 2; i < c.dims.size(); ++i) pixels *= static_cast<std::size_t>(c.dims[i]);
  const auto map_of = [&](std::size_t i) { return i / pixels % maps; };
  const std::vector<float>& x = c.floats();
  std::vector<double> means(maps), variances(maps);
  for (std::size_t map = 0; map < maps; ++map) {
    means[map] = call.constant(3).number(static_cast<std::int64_t>(map));
    variances[map] = call.constant(4).number(static_cast<std::int64_t>(map));
  }
  // Before opset 14, an operator in training mode is one with outputs for the statistics.
  constexpr std::int64_t kHasMode = 14;
  if (call.integer("training_mode", 0) != 0 || (call.opset < kHasMode && call.node.outputs.size() > 1)) {
    const std::size_t of_each = x.size() / maps;
    const auto count = static_cast<double>(of_each);
    std::ranges::fill(means, 0);
    std::ranges::fill(variances, 0);
    for (std::size_t i = 0; i < x.size(); ++i) means[map_of(i)] += static_cast<double>(x[i]) / count;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double difference = static_cast<double>(x[i]) - means[map_of(i)];
      variances[map_of(i)] += difference * difference / count;
    }
  }
  const double epsilon = call.real("epsilon", 1e-5);
  std::vector<float> result;
  result.reserve(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t map = map_of(i);
    const double scale = call.constant(1).number(static_cast<std::int64_t>(map)),
                 shift = call.constant(2).number(static_cast<std::int64_t>(map));
    result.push_back(static_cast<float>(
        (static_cast<double>(x[i]) - means[map]) / std::sqrt(variances[map] + epsilon) * scale + shift));
  }
  return make_constant(c.dims, std::move(result));
}

}  // namespace convnet
