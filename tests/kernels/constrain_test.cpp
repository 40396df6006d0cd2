#include <dnnl.hpp>

#include <cmath>
#include <limits>

#include "kernels/cpu/layout.h"
#include "tests/catch.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_runner.h"

namespace convnet::constrain_test {
namespace {

using test::Values;

/// A matrix with a row for each of `groups`, without a rule.
Constrain matrix(std::int64_t groups, std::int64_t inner) {
  Constrain op;
  op.what = {{groups, inner}, DataType::f32, nullptr};
  op.groups = groups, op.inner = inner;
  return op;
}

/// The indices of the weights of one row.
std::vector<std::size_t> row(const Constrain& op, std::int64_t group) {
  std::vector<std::size_t> indices;
  for (std::int64_t o = 0; o < op.outer; ++o)
    for (std::int64_t i = 0; i < op.inner; ++i)
      indices.push_back(static_cast<std::size_t>((o * op.groups + group) * op.inner + i));
  return indices;
}

double length(const Values& w, const std::vector<std::size_t>& indices, double from) {
  double sum = 0;
  for (std::size_t i : indices) sum += (w[i] - from) * (w[i] - from);
  return std::sqrt(sum);
}
/// The norms that norm_min and norm_max bound.
double deviation(const Values& w, const std::vector<std::size_t>& indices) {
  double mean = 0;
  for (std::size_t i : indices) mean += w[i] / static_cast<double>(indices.size());
  return length(w, indices, mean) / static_cast<double>(indices.size());
}

Values reference(const Constrain& op, Values w) {
  for (std::int64_t group = 0; group < op.groups; ++group) {
    const auto indices = row(op, group);
    const auto scale = [&](double factor) {
      for (std::size_t i : indices) w[i] *= factor;
    };
    const double spread = deviation(w, indices);
    if (op.norm_max > 0 && spread > 0) {
      if (spread > static_cast<double>(op.norm_max)) scale(static_cast<double>(op.norm_max) / spread);
      if (spread < static_cast<double>(op.norm_min)) scale(static_cast<double>(op.norm_min) / spread);
    }
    const double norm = length(w, indices, 0);
    const bool acts = op.ball > 0 && norm > 0 && (!op.shrink || norm > static_cast<double>(op.ball));
    if (acts) scale(static_cast<double>(op.ball) / norm);
  }
  return w;
}

Values run(const Constrain& op, const Values& weights) {
  return test::run_plain(OpDesc(op), *cpu::prepare(op, {op.what}), {weights})[0];
}

/// Weights whose rows differ in length by far.
Values uneven_weights(const Constrain& op) {
  Values w = test::test_values(op.what.dims, 3);
  for (std::int64_t group = 0; group < op.groups; ++group)
    for (std::size_t i : row(op, group)) w[i] *= static_cast<double>(group % 5);  // some rows are zero
  return w;
}

std::vector<TensorDesc> layouts(const Dims& dims) {
  using tag = dnnl::memory::format_tag;
  std::vector<tag> tags;
  if (dims.size() == 2) tags = {tag::ba, tag::AB16b64a};
  if (dims.size() == 4) tags = {tag::OIhw16i16o, tag::ohwi};
  if (dims.size() == 6) tags = {tag::abcdef};
  std::vector<TensorDesc> all = {{dims, DataType::f32, nullptr}};
  for (tag t : tags) all.push_back(cpu::from_dnnl({dims, dnnl::memory::data_type::f32, t}, dims));
  if (dims.size() == 6) {
    LocalGeometry g;
    g.n = 1, g.c = dims[3], g.k = dims[2], g.filter = dims[4], g.oh = dims[0], g.ow = dims[1];
    g.h = g.oh + g.filter.y - 1, g.w = g.ow + g.filter.x - 1;
    all.push_back(cpu::prepare(LocalForward{g}, {})->args()[1]);
  }
  return all;
}

TEST_CASE("constraints match the reference", "[constrain]") {
  for (Constrain op : test::constraints()) {
    const Values weights = uneven_weights(op);
    for (const TensorDesc& layout : op.outer == 1 ? layouts(op.what.dims) : std::vector{op.what}) {
      op.what = layout;
      for (const float ball : {0.0F, 0.75F})
        for (const bool shrink : {false, true})
          for (const float norm_max : {0.0F, 0.02F}) {
            op.ball = ball, op.shrink = shrink, op.norm_max = norm_max, op.norm_min = 0.01F;
            INFO(to_string(layout.dims) << " " << layout.layout_name() << " ball " << ball << " shrink "
                                        << shrink << " norm_max " << norm_max);
            CHECK(test::relative_error(run(op, weights), reference(op, weights)) <= 2e-7);
          }
    }
  }
}

TEST_CASE("a constraint bounds the spread of a row, then its length", "[constrain]") {
  Constrain op = matrix(1, 4);
  op.norm_min = 0.5F, op.norm_max = 1;
  CHECK(run(op, {-3, 3, -3, 3}) == Values{-2, 2, -2, 2});          // 6/4 to 1
  CHECK(run(op, {-0.5, 0.5, -0.5, 0.5}) == Values{-1, 1, -1, 1});  // 1/4 to 1/2
  CHECK(run(op, {-1.5, 1.5, -1.5, 1.5}) == Values{-1.5, 1.5, -1.5, 1.5});
  op.ball = 3, op.shrink = true;
  CHECK(run(op, {-3, 3, -3, 3}) == Values{-1.5, 1.5, -1.5, 1.5});
  CHECK(run(op, {-0.5, 0.5, -0.5, 0.5}) == Values{-1, 1, -1, 1});
}

TEST_CASE("rows that no scaling can bring into bounds stay", "[constrain]") {
  Constrain op = matrix(2, 3);
  op.norm_min = 0.5F, op.norm_max = 1;
  CHECK(run(op, {0, 0, 0, 4, 4, 4}) == Values{0, 0, 0, 4, 4, 4});
  op.norm_max = 0, op.ball = 1;
  CHECK(run(op, {0, 0, 0, 4, 0, 0}) == Values{0, 0, 0, 1, 0, 0});
  const Values broken = run(op, {0, std::numeric_limits<double>::quiet_NaN(), 2, 4, 0, 0});
  CHECK(std::isnan(broken[1]));
  CHECK(broken[3] == 1);
}

}  // namespace
}  // namespace convnet::constrain_test
