// The exponential function and its relatives, beside those of the standard library in double precision.
#include "kernels/exponentials.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/catch.h"
#include "tests/larger.h"

namespace convnet {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Returns the largest relative error of f at numbers from `low` to `high`, which lie as densely near 0 as
/// floats do.
template <class F, class Exact>
double worst_error(float low, float high, const F& f, const Exact& exact) {
  double worst = 0;
  const auto add = [&](float x) {
    const double expected = exact(static_cast<double>(x));
    const double error = std::abs(static_cast<double>(f(x)) - expected) / std::abs(expected);
    worst = test::larger(worst, expected == 0 ? std::abs(static_cast<double>(f(x))) : error);
  };
  constexpr int kSteps = 20'000;
  for (int i = 0; i <= kSteps; ++i) add(low + (high - low) * static_cast<float>(i) / kSteps);
  for (const float end : {low, high})
    for (float x = end; std::abs(x) > 1e-30F; x *= 0.97F) add(x);
  return worst;
}

double normal_below(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }

}  // namespace

TEST_CASE("exponential functions have the digits of floats", "[exponentials]") {
  CHECK(worst_error(-87, 88.3F, math::exp<float>, [](double x) { return std::exp(x); }) < 2e-7);
  CHECK(worst_error(-30, 88, math::expm1<float>, [](double x) { return std::expm1(x); }) < 3e-7);
  CHECK(worst_error(-12, 12, math::tanh<float>, [](double x) { return std::tanh(x); }) < 3e-7);
  CHECK(worst_error(-80, 20, math::logistic<float>, [](double x) { return 1 / (1 + std::exp(-x)); }) < 3e-7);
  CHECK(worst_error(0, 1, math::log1p_of_unit<float>, [](double x) { return std::log1p(x); }) < 3e-7);
  const auto below = [](float x) { return math::Normal<float>(x).below; };
  CHECK(worst_error(-1, 8, below, normal_below) < 5e-7);
  CHECK(worst_error(-4, -1, below, normal_below) < 1e-6);
  CHECK(worst_error(-12, -4, below, normal_below) < 1e-5);
  CHECK(worst_error(
            -5, 5, [](float x) { return math::Normal<float>(x).density; },
            [](double x) { return std::exp(-x * x / 2); }) < 1e-6);
}

TEST_CASE("exponential functions of numbers at the ends of their range", "[exponentials]") {
  CHECK(math::exp(0.0F) == 1);
  CHECK(math::exp(kInfinity) == kInfinity);
  CHECK(math::exp(89.0F) == kInfinity);
  CHECK(math::exp(-kInfinity) == 0);
  CHECK(math::exp(-88.0F) == 0);
  CHECK(math::expm1(-kInfinity) == -1);
  CHECK(math::expm1(-100.0F) == -1);
  CHECK(math::expm1(kInfinity) == math::expm1(88.0F));
  CHECK(math::tanh(kInfinity) == 1);
  CHECK(math::tanh(-kInfinity) == -1);
  CHECK(math::logistic(kInfinity) == 1);
  CHECK(math::logistic(-kInfinity) == 0);
  CHECK(math::log1p_of_unit(0.0F) == 0);
  CHECK(math::Normal(kInfinity).below == 1);
  CHECK(math::Normal(-kInfinity).below == 0);
  CHECK(math::Normal(0.0F).below == Approx(0.5));
  for (const float nan : {std::nanf(""), -std::nanf("")}) {
    CHECK(std::isnan(math::exp(nan)));
    CHECK(std::isnan(math::expm1(nan)));
    CHECK(std::isnan(math::tanh(nan)));
    CHECK(std::isnan(math::logistic(nan)));
    CHECK(std::isnan(math::log1p_of_unit(nan)));
    CHECK(std::isnan(math::Normal(nan).below));
    CHECK(std::isnan(math::Normal(nan).density));
  }
}

TEST_CASE("exponential functions of vectors are those of their numbers", "[exponentials]") {
  using Four [[gnu::vector_size(16)]] = float;
  for (const Four x : {Four{-200, -90, -1, -0.1F}, Four{0, 1e-20F, 0.3F, 1}, Four{5, 50, 90, kInfinity}}) {
    const Four y = math::exp(x), t = math::tanh(x), s = math::logistic(x);
    for (int i = 0; i < 4; ++i) {
      CHECK(y[i] == Approx(math::exp(x[i])));
      CHECK(t[i] == Approx(math::tanh(x[i])));
      CHECK(s[i] == Approx(math::logistic(x[i])));
    }
  }
}

}  // namespace convnet
