#include "kernels/cuda/peak.h"

#include <algorithm>
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

TEST_CASE("numbers fill matrices that are larger than what the host copies", "[cuda]") {
  constexpr std::int64_t kSide = 1800;
  const auto queue = cuda::make_stream_queue(test_device());
  const cuda::PeakProduct product(*queue, test_device(), Precision::fp32, kSide);
  cuda::wait_for(*queue->mark());
  std::vector<std::byte> held(static_cast<std::size_t>(kSide * kSide) * sizeof(float));
  for (const std::byte* memory : {product.a(), product.b()}) {
    cuda::copy_memory(held.data(), memory, std::ssize(held));
    const Values values = unpacked(held, DataType::f32);
    CHECK(std::all_of(values.begin(), values.end(),
                      [](double v) { return std::abs(v) >= 0.5 && std::abs(v) < 1; }));
  }
}
