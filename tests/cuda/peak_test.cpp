#include "kernels/cuda/peak.h"

#include <cmath>

#include "kernels/cuda/runtime.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"
#include "tests/kernels/values.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("the speed of products is measured with random numbers", "[cuda]") {
  constexpr std::int64_t kSide = 48;
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    INFO(to_string(precision));
    const auto queue = cuda::make_stream_queue(test_device());
    const cuda::PeakProduct product(*queue, test_device(), precision, kSide);
    product.run();
    cuda::wait_for(*queue->mark());
    const std::int64_t bytes = kSide * kSide * size_of(product.type());
    const auto values = [&](const std::byte* memory) {
      std::vector<std::byte> held(static_cast<std::size_t>(bytes));
      cuda::copy_memory(held.data(), memory, bytes);
      return unpacked(held, product.type());
    };
    const Values a = values(product.a()), b = values(product.b()), c = values(product.c());
    for (const Values& factor : {a, b}) {
      int negative = 0;
      for (const double value : factor) {
        CHECK(std::abs(value) >= 0.5);
        CHECK(std::abs(value) < 1);
        negative += value < 0 ? 1 : 0;
      }
      CHECK(negative > kSide * kSide / 4);
      CHECK(negative < kSide * kSide * 3 / 4);
    }
    CHECK(a != b);
    double expected = 0;
    for (std::size_t k = 0; k < kSide; ++k) expected += a[k] * b[k * kSide];
    CHECK(std::abs(c[0] - expected) < 0.05);
  }
}
