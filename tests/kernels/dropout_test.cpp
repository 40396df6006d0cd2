#include "convnet/base/philox.h"
#include "tests/kernels/run_op.h"

namespace convnet::dropout_test {
using namespace test;

namespace {

std::vector<float> drop(const Dropout& op, int block, const std::vector<float>& x, std::uint64_t iteration,
                        int threads = 2, bool in_place = false) {
  OpRun run(cpu::prepare(op, {activations(op.dims, block)}));
  if (in_place) run.alias(1, 0);
  run.set(0, x);
  run.set_raw(2, std::vector<StepHeader>{{iteration}});
  run.run(threads);
  CHECK(run.padding_is_zero(in_place ? 0 : 1));
  return run.get(in_place ? 0 : 1);
}

}  // namespace

TEST_CASE("dropout masks by the word of each element in every layout", "[dropout]") {
  for (const Dims& dims :
       std::vector<Dims>{{2, 20, 3, 5}, {1, 1, 1, 1}, {3, 16, 2, 2}, {2, 5, 17, 31}, {3, 33, 21, 19}}) {
    const Dropout op{dims, 0.7F, 2.0F, 0x123456789abcdef, 11};
    const std::uint64_t iteration = (std::uint64_t{3} << 32) + 4;
    const auto x = random_values(element_count(dims), 1);
    const auto per_image = static_cast<std::size_t>(element_count(dims) / dims[0]);
    std::vector<float> expected;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::uint32_t word =
          element_random(op.key, iteration, static_cast<std::uint32_t>(11 + i / per_image),
                         static_cast<std::uint32_t>(i % per_image));
      expected.push_back(word < static_cast<double>(0.7F) * 0x1p32 ? x[i] * 2.0F : 0.0F);
    }
    for (int block : {1, 4, 8, 16})
      for (int threads : {1, 2, 3}) {
        INFO(to_string(dims) << " block " << block << " threads " << threads);
        CHECK(drop(op, block, x, iteration, threads) == expected);
        CHECK(drop(op, block, x, iteration, threads, true) == expected);
      }
  }
}

TEST_CASE("dropout of maps and images has a word for each of them in every layout", "[dropout]") {
  for (const Dims& dims :
       std::vector<Dims>{{2, 20, 3, 5}, {1, 1, 1, 1}, {3, 16, 2, 2}, {2, 5, 17, 31}, {4, 33}}) {
    const bool maps = dims.size() == 4;
    const std::int64_t pixels = maps ? dims[2] * dims[3] : 1;
    const auto x = random_values(element_count(dims), 1);
    const std::int64_t per_image = element_count(dims) / dims[0];
    for (const DropUnit unit : {DropUnit::map, DropUnit::image}) {
      const Dropout op{dims, 0.6F, 2.0F, 0x123456789abcdef, 11, maps ? 0 : 6, unit};
      std::vector<float> expected;
      for (std::int64_t i = 0; i < std::ssize(x); ++i) {
        const std::int64_t index = unit == DropUnit::map ? op.first_element + i % per_image / pixels : 0;
        const std::uint32_t word = element_random(op.key, 3, static_cast<std::uint32_t>(11 + i / per_image),
                                                  static_cast<std::uint32_t>(index));
        const float v = x[static_cast<std::size_t>(i)];
        expected.push_back(word < static_cast<double>(0.6F) * 0x1p32 ? v * 2.0F : 0.0F);
      }
      for (const int block : maps ? std::vector<int>{1, 4, 8, 16} : std::vector<int>{1}) {
        INFO(to_string(dims) << " block " << block);
        CHECK(drop(op, block, x, 3) == expected);
        CHECK(drop(op, block, x, 3, 1, true) == expected);
      }
    }
  }
}

TEST_CASE("dropout works on flat vectors", "[dropout]") {
  const auto x = random_values(2 * 37, 1);
  CHECK(drop({{2, 37}, 0.5F, 1.0F, 5, 0}, 1, x, 0) == drop({{2, 37, 1, 1}, 0.5F, 1.0F, 5, 0}, 16, x, 0));
}

TEST_CASE("a part of a layer has the mask of the whole", "[dropout]") {
  const std::int64_t width = 37;
  const std::vector<float> ones(static_cast<std::size_t>(2 * width), 1.0F);
  const auto whole = drop({{2, width}, 0.5F, 1.0F, 5, 3, 0}, 1, ones, 1);
  for (const std::int64_t first : {0, 1, 6, 36}) {
    const std::int64_t count = std::min<std::int64_t>(11, width - first);
    const auto part = drop({{2, count}, 0.5F, 1.0F, 5, 3, first}, 1,
                           std::vector<float>(static_cast<std::size_t>(2 * count), 1.0F), 1);
    for (std::int64_t n = 0; n < 2; ++n) {
      for (std::int64_t i = 0; i < count; ++i)
        CHECK(part[static_cast<std::size_t>(n * count + i)] ==
              whole[static_cast<std::size_t>(n * width + first + i)]);
    }
  }
}

TEST_CASE("dropout keeps the fraction asked for", "[dropout]") {
  const Dims dims{10, 10007};
  const std::vector<float> ones(10 * 10007, 1.0F);
  for (float keep : {0.0F, 0.2F, 0.5F, 0.9F, 1.0F}) {
    double kept = 0;
    for (float v : drop({dims, keep, 1.0F, 99, 0}, 1, ones, 1)) kept += static_cast<double>(v);
    const double expected = static_cast<double>(keep) * static_cast<double>(ones.size());
    if (keep == 0.0F || keep == 1.0F) CHECK(kept == expected);
    CHECK(std::abs(kept - expected) < 4 * std::sqrt(static_cast<double>(ones.size()) / 4) + 1e-9);
  }
}

TEST_CASE("dropout differs between iterations, images and keys", "[dropout]") {
  const Dims dims{1, 100};
  const std::vector<float> ones(100, 1.0F);
  const auto first = drop({dims, 0.5F, 1.0F, 1, 0}, 1, ones, 0);
  CHECK(drop({dims, 0.5F, 1.0F, 1, 0}, 1, ones, 0) == first);
  CHECK(drop({dims, 0.5F, 1.0F, 1, 0}, 1, ones, 1) != first);
  CHECK(drop({dims, 0.5F, 1.0F, 1, 1}, 1, ones, 0) != first);
  CHECK(drop({dims, 0.5F, 1.0F, 2, 0}, 1, ones, 0) != first);
}

namespace {

std::vector<float> noisy_relu(const NoisyRelu& op, int block, const std::vector<float>& x,
                              std::uint64_t iteration, int threads = 2, bool in_place = false) {
  OpRun run(cpu::prepare(op, {activations(op.dims, block)}));
  if (in_place) run.alias(1, 0);
  run.set(0, x);
  run.set_raw(2, std::vector<StepHeader>{{iteration}});
  run.run(threads);
  CHECK(run.padding_is_zero(in_place ? 0 : 1));
  return run.get(in_place ? 0 : 1);
}

std::vector<float> nrelu_without_noise(const Dims& dims, int block, const std::vector<float>& x) {
  const NeuronForward op{{NeuronKind::nrelu}, dims};
  OpRun run(cpu::prepare(op, {activations(op.dims, block)}));
  run.set(0, x);
  run.run();
  CHECK(run.padding_is_zero(1));
  return run.get(1);
}

}  // namespace

TEST_CASE("noisy relu adds each element's normal number in every layout", "[dropout]") {
  for (const Dims& dims : std::vector<Dims>{{2, 20, 3, 5}, {1, 1, 1, 1}, {3, 16, 2, 2}, {3, 17, 17, 31}}) {
    const NoisyRelu op{dims, 0x123456789abcdef, 11};
    const std::uint64_t iteration = (std::uint64_t{3} << 32) + 4;
    const auto x = random_values(element_count(dims), 1, -3, 3);
    const auto per_image = static_cast<std::size_t>(element_count(dims) / dims[0]);
    std::vector<double> expected;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto normal = static_cast<double>(element_normal(op.key, iteration,
                                                             static_cast<std::uint32_t>(11 + i / per_image),
                                                             static_cast<std::uint32_t>(i % per_image)));
      const auto v = static_cast<double>(x[i]);
      expected.push_back(std::max(0.0, v + normal / std::sqrt(1 + std::exp(-v))));
    }
    const auto first = noisy_relu(op, 1, x, iteration);
    CHECK(worst_difference(first, expected) < 1e-6);
    for (int block : {1, 4, 8, 16}) {
      const auto alone = noisy_relu(op, block, x, iteration, 1);
      CHECK(worst_difference(alone, first) < 1e-6);
      for (int threads : {1, 2, 3}) {
        INFO(to_string(dims) << " block " << block << " threads " << threads);
        CHECK(noisy_relu(op, block, x, iteration, threads) == alone);
        CHECK(noisy_relu(op, block, x, iteration, threads, true) == alone);
      }
    }
  }
  CHECK(noisy_relu({{0, 5}, 1, 0}, 1, {}, 0).empty());
}

TEST_CASE("noisy relu differs between iterations, images and keys", "[dropout]") {
  const Dims dims{1, 100};
  const std::vector<float> ones(100, 1.0F);
  const auto first = noisy_relu({dims, 1, 0}, 1, ones, 0);
  CHECK(noisy_relu({dims, 1, 0}, 1, ones, 0) == first);
  CHECK(noisy_relu({dims, 1, 0}, 1, ones, 1) != first);
  CHECK(noisy_relu({dims, 1, 1}, 1, ones, 0) != first);
  CHECK(noisy_relu({dims, 2, 0}, 1, ones, 0) != first);
}

TEST_CASE("noisy relu without noise is relu", "[dropout]") {
  const auto x = random_values(2 * 20 * 15, 1, -3, 3);
  std::vector<float> expected;
  for (float v : x) expected.push_back(std::max(0.0F, v));
  for (int block : {1, 16}) CHECK(nrelu_without_noise({2, 20, 3, 5}, block, x) == expected);
}

TEST_CASE("noisy relu takes extreme values", "[dropout]") {
  const float inf = std::numeric_limits<float>::infinity();
  for (bool noisy : {true, false}) {
    const std::vector<float> x = {-inf, -1000, 1e30F, inf, NAN};
    const auto y = noisy ? noisy_relu({{1, 5}, 5, 0}, 1, x, 0) : nrelu_without_noise({1, 5}, 1, x);
    CHECK((y[0] == 0 && y[1] == 0 && y[2] == 1e30F && y[3] == inf && std::isnan(y[4])));
  }
}

TEST_CASE("the noise is normal with variance logistic(x)", "[dropout]") {
  for (float x : {8.0F, 5.5F}) {  // so far from 0 that nothing is cut off
    const std::int64_t count = 200000;
    double sum = 0, squares = 0, fourth = 0;
    for (float y : noisy_relu({{20, count / 20}, 7, 0}, 1, std::vector<float>(count, x), 3)) {
      const double noise = static_cast<double>(y) - static_cast<double>(x);
      sum += noise;
      squares += noise * noise;
      fourth += noise * noise * noise * noise;
    }
    const double variance = squares / count;
    CHECK(std::abs(sum / count) < 0.01);
    CHECK(variance == Approx(1 / (1 + std::exp(-static_cast<double>(x)))).margin(0.015));
    CHECK(fourth / count / (variance * variance) == Approx(3).margin(0.1));
  }
}

}  // namespace convnet::dropout_test
