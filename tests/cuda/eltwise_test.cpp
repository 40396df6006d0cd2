#include <cmath>
#include <stdexcept>

#include "convnet/base/error.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/sources.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("a flat vector among the inputs keeps them all plain", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const Dims dims{2, 3, 4, 4};
  const TensorDesc plain{dims, DataType::f32, nullptr}, last = cuda::channels_last(dims);
  const auto mixed = prepared_for_test(*backend, EltwiseSum{dims, {1, 1}}, {last, plain, std::nullopt});
  for (const TensorDesc& arg : mixed->args()) CHECK(arg.plain());
  const auto alike = prepared_for_test(*backend, EltwiseMax{dims, 2}, {last, last, std::nullopt});
  for (const TensorDesc& arg : alike->args()) CHECK(same_layout(arg, last));
}

TEST_CASE("eltsum and eltmax of the CUDA backend refuse what they cannot do", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const auto prepare = [&](const OpDesc& op) {
    return prepared_for_test(*backend, op, LayoutHints(arguments(op).size()));
  };
  CHECK_THROWS_AS(prepare(EltwiseSum{{2, 3}, {}}), std::logic_error);
  CHECK_THROWS_AS(prepare(EltwiseMax{{2, 3}, 0}), std::logic_error);
  CHECK_THROWS_AS(prepare(EltwiseMaxBackward{{2, 3}, 2, 2}), std::logic_error);
  CHECK_THROWS_WITH(prepare(EltwiseMax{{2, 3}, cuda::kMostSources + 1}),
                    Catch::Contains("more than 64 inputs"));
  CHECK_THROWS_AS(prepare(EltwiseMaxBackward{{2, 3}, cuda::kMostSources + 1, 0}), DeviceError);
}
