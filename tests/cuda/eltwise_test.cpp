#include <cmath>
#include <stdexcept>

#include "convnet/base/error.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/sources.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

namespace {

const std::vector<Dims> kEltwiseShapes = {{2, 20, 3, 5}, {1, 1, 1, 1},    {3, 16, 2, 2}, {2, 7},
                                          {1, 1},        {3, 33, 21, 19}, {0, 20, 3, 3}};

/// Multiples of 0.25 with many equal ones among the inputs, and some NaN.
std::vector<Values> tied_inputs(const Dims& dims, std::size_t count, bool with_nan) {
  std::vector<Values> inputs;
  for (std::size_t k = 0; k < count; ++k) {
    inputs.push_back(test_values(dims, static_cast<std::uint32_t>(k + 1)));
    for (double& v : inputs[k]) v = std::floor(3 * v) / 4;
    for (std::size_t i = k; i < inputs[k].size() && with_nan; i += k + 2) inputs[k][i] = std::nan("");
  }
  return inputs;
}

/// EltwiseMax and its gradients, exactly.
void check_max(const Dims& dims, const std::vector<Values>& inputs) {
  const std::int64_t count = std::ssize(inputs);
  check_on_both({.op = EltwiseMax{dims, count}, .inputs = inputs, .tolerance = 0});
  for (std::int64_t index = 0; index < count; ++index)
    check_on_both({.op = EltwiseMaxBackward{dims, count, index}, .inputs = inputs, .tolerance = 0});
}

}  // namespace

TEST_CASE("eltsum on both backends", "[cuda]") {
  const std::vector<float> coeffs = {1, -0.5F, 2, 0, 0.3F};
  for (const Dims& dims : kEltwiseShapes)
    for (const std::ptrdiff_t count : {1, 2, 3, 5})
      check_on_both({.op = EltwiseSum{dims, {coeffs.begin(), coeffs.begin() + count}}, .tolerance = 1e-6});
}

TEST_CASE("eltsum of more inputs than one launch takes, on both backends", "[cuda]") {
  for (const std::size_t count : {cuda::kMostSources, cuda::kMostSources + 1, 2 * cuda::kMostSources + 7}) {
    EltwiseSum op{{2, 3, 2, 2}, {}};
    for (std::size_t k = 0; k < count; ++k) op.coeffs.push_back(0.1F * static_cast<float>(k % 7) - 0.2F);
    check_on_both({op});
  }
}

TEST_CASE("eltmax on both backends: the first of equal maxima, NaN before all numbers", "[cuda]") {
  for (const Dims& dims : kEltwiseShapes)
    for (const std::size_t count : {1U, 2U, 4U})
      for (const bool with_nan : {false, true}) check_max(dims, tied_inputs(dims, count, with_nan));
  const Dims dims{2, 17, 3, 3};
  for (const double value : {0.0, -1.0, HUGE_VAL, -HUGE_VAL})
    check_max(dims, std::vector(3, Values(static_cast<std::size_t>(element_count(dims)), value)));
  check_on_both({EltwiseMax{{2, 3}, cuda::kMostSources}});
}

TEST_CASE("a flat vector among the inputs keeps them all plain", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const Dims dims{2, 3, 4, 4};
  const TensorDesc plain{dims, DataType::f32, nullptr}, last = cuda::channels_last(dims);
  const auto mixed = backend->prepare(EltwiseSum{dims, {1, 1}}, {last, plain, std::nullopt});
  for (const TensorDesc& arg : mixed->args()) CHECK(arg.plain());
  const auto alike = backend->prepare(EltwiseMax{dims, 2}, {last, last, std::nullopt});
  for (const TensorDesc& arg : alike->args()) CHECK(same_layout(arg, last));
}

TEST_CASE("eltsum and eltmax of the CUDA backend refuse what they cannot do", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const auto prepare = [&](const OpDesc& op) {
    return backend->prepare(op, LayoutHints(arguments(op).size()));
  };
  CHECK_THROWS_AS(prepare(EltwiseSum{{2, 3}, {}}), std::logic_error);
  CHECK_THROWS_AS(prepare(EltwiseMax{{2, 3}, 0}), std::logic_error);
  CHECK_THROWS_AS(prepare(EltwiseMaxBackward{{2, 3}, 2, 2}), std::logic_error);
  CHECK_THROWS_WITH(prepare(EltwiseMax{{2, 3}, cuda::kMostSources + 1}),
                    Catch::Contains("more than 64 inputs"));
  CHECK_THROWS_AS(prepare(EltwiseMaxBackward{{2, 3}, cuda::kMostSources + 1, 0}), DeviceError);
}
