#include <cmath>

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

namespace {

const std::vector<Dims> kBatchNormShapes = {
    {2, 3, 5, 7},  {1, 1, 1, 1},   {2, 1, 1, 1},    {1, 20, 4, 3},    {9, 17, 3, 3}, {17, 24, 1, 1},
    {0, 20, 3, 3}, {0, 5},         {1, 1},          {3, 5},           {20, 33},      {600, 3},
    {700, 36},     {1, 1, 70, 70}, {3, 40, 19, 21}, {2, 2, 150, 150},  // lanes of several warps
};
const Dims kLarge = {33, 64, 32, 32};  // parts have more than the fewest values

Values in_range(const Dims& dims, std::uint32_t seed, double low, double high) {
  Values values = test_values(dims, seed);
  for (double& v : values) v = low + (high - low) * (v + 1) / 2;
  return values;
}
/// Other means and deviations for other channels.
Values activations(const Dims& dims, double mean = 0.5) {
  Values x = test_values(dims, 1);
  const std::int64_t pixels = dims.size() == 4 ? dims[2] * dims[3] : 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto c = static_cast<double>(static_cast<std::int64_t>(i) / pixels % dims[1]);
    x[i] = mean + x[i] * (1 + c / 8) + std::sin(c);
  }
  return x;
}
Values positive(std::int64_t channels) { return in_range({channels}, 7, 0.1, 2); }

}  // namespace

TEST_CASE("batch norm moments on both backends", "[cuda]") {
  for (const Dims& dims : kBatchNormShapes)
    for (const double mean : {0.5, 1000.0})
      check_on_both({BatchNormMoments{dims}, {activations(dims, mean)}, {}, {}, 1e-6});
  check_on_both({BatchNormMoments{kLarge}, {activations(kLarge)}, {}, {}, 1e-6});
}

TEST_CASE("batch norm moments of equal values and of NaN on both backends", "[cuda]") {
  for (const Dims& dims : kBatchNormShapes) {
    for (const double value : {0.0, 0.5, -1e4, 0x1p-100})
      check_on_both({BatchNormMoments{dims}, {Values(test_values(dims, 1).size(), value)}});
    Values x = activations(dims);
    if (x.empty()) continue;
    x[x.size() / 2] = NAN;
    check_on_both({BatchNormMoments{dims}, {x}});
  }
}

TEST_CASE("batch norm forward on both backends", "[cuda]") {
  for (const Dims& dims : kBatchNormShapes)
    for (const bool relu : {false, true}) {
      Values x = activations(dims);
      check_on_both({BatchNormForward{dims, 1e-3F, relu}, {x, {}, positive(dims[1])}, {}, {}, 1e-6});
      if (x.size() < 3) continue;
      x[x.size() / 2] = NAN;
      x[x.size() / 3] = -INFINITY;
      check_on_both({BatchNormForward{dims, 1e-3F, relu}, {x, {}, positive(dims[1])}});
    }
}

TEST_CASE("batch norm gradients on both backends", "[cuda]") {
  for (const Dims& dims : kBatchNormShapes) {
    const Values x = activations(dims), variance = positive(dims[1]);
    check_on_both({BatchNormBackwardWeights{dims, 1e-3F}, {x, {}, {}, variance}});
    const std::int64_t values = element_count(dims) / dims[1];
    for (const std::int64_t of : {values, values + 100}) {
      const BatchNormBackwardData data{dims, of, 1e-3F};
      check_on_both({data, {x, {}, {}, variance}, {}, {}, 1e-6});
      check_on_both({data, {x, {}, {}, variance}, {}, 1, 1e-6});
    }
  }
  check_on_both({BatchNormBackwardWeights{kLarge}, {activations(kLarge), {}, {}, positive(kLarge[1])}});
}

TEST_CASE("batch norm statistics are tracked and merged on both backends", "[cuda]") {
  for (const std::int64_t channels : {1, 5, 300}) {
    for (const std::int64_t values : {0, 1, 2, 1000})
      for (const float factor : {0.0F, 0.1F, 1.0F})
        check_on_both({BatchNormTrack{channels, values, factor}, {}, {}, {}, 1e-6});
    for (const std::vector<std::int64_t>& sizes :
         {std::vector<std::int64_t>{7}, {4, 3}, {1, 0, 6, 2}, {0, 0}, std::vector<std::int64_t>(64, 3)}) {
      std::vector<Values> parts;
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        parts.push_back(in_range({channels}, static_cast<std::uint32_t>(i), 99, 101));
        parts.push_back(positive(channels));
      }
      check_on_both({BatchNormMerge{channels, sizes}, parts, {}, {}, 1e-6});
    }
  }
}

TEST_CASE("the CUDA backend says what batch norm it has not", "[cuda]") {
  const auto cuda = make_cuda_backend(Precision::fp32);
  CHECK_THROWS_AS(cuda->prepare(BatchNormMerge{3, std::vector<std::int64_t>(65, 1)}, {}), DeviceError);
  CHECK_THROWS_AS(cuda->prepare(BatchNormMoments{{2, 3, 4}}, {}), std::logic_error);
}
