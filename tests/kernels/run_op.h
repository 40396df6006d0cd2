// Runs a prepared operation in a layout, in place and with a number of threads of the test's choice.
#pragma once

#include <omp.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/prepare.h"
#include "tests/kernels/op_runner.h"
#include "tests/larger.h"

namespace convnet::test {

using Floats = std::vector<float>;

/// The layouts of `dims` that tests try, as activations() names them: (N,C) is always plain.
inline std::vector<int> blocks_of(const Dims& dims) {
  return dims.size() == 4 ? std::vector<int>{1, 8, 16} : std::vector<int>{1};
}

/// Returns an activation in blocks of `block` channels; block 1 is plain.
inline TensorDesc activations(const Dims& dims, int block) {
  return block == 1 ? TensorDesc{dims, DataType::f32, nullptr} : cpu::blocked_activations(dims, block);
}

/// Returns the offset in memory of canonical element (n, c, s).
inline std::size_t offset_of(const cpu::ActivationView& v, std::int64_t n, std::int64_t c, std::int64_t s) {
  return static_cast<std::size_t>(((n * (v.padded_c / v.block) + c / v.block) * v.spatial + s) * v.block +
                                  c % v.block);
}

/// Returns the numbers as memory holds them in bf16.
inline std::vector<std::uint16_t> bf16_bits(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (const float v : values) bits.push_back(to_bf16(v).bits);
  return bits;
}

/// A prepared operation and its arguments' memory. Values go in and out in canonical (N,C,H,W) order.
class OpRun {
 public:
  /// `unsized` are the bytes of arguments that the operation does not size (step block, costs).
  explicit OpRun(cpu::Prepared op, std::int64_t unsized = 64) : op_(std::move(op)) {
    for (const TensorDesc& arg : op_->args()) buffers_.emplace_back(arg.bytes() > 0 ? arg.bytes() : unsized);
  }

  template <class T>
  void set_raw(std::size_t arg, const std::vector<T>& values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    std::copy_n(bytes, values.size() * sizeof(T), buffers_.at(arg).data());
  }
  template <class T>
  std::vector<T> raw(std::size_t arg, std::size_t count) const {
    std::vector<T> values(count);
    std::copy_n(buffers_.at(arg).data(), count * sizeof(T), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

  /// Canonical values; the padding becomes zero, as layouts promise.
  void set(std::size_t arg, const std::vector<float>& values) {
    const cpu::ActivationView v = view(arg);
    std::vector<float> stored(static_cast<std::size_t>(v.size()));
    std::size_t i = 0;
    for_each(v, v.c, [&](std::size_t at) { stored[at] = values.at(i++); });
    set_raw(arg, stored);
  }
  std::vector<float> get(std::size_t arg) const {
    const cpu::ActivationView v = view(arg);
    const auto stored = raw<float>(arg, static_cast<std::size_t>(v.size()));
    std::vector<float> values;
    for_each(v, v.c, [&](std::size_t at) { values.push_back(stored[at]); });
    return values;
  }
  bool padding_is_zero(std::size_t arg) const {
    const cpu::ActivationView v = view(arg);
    const auto stored = raw<float>(arg, static_cast<std::size_t>(v.size()));
    for (std::int64_t n = 0; n < v.n; ++n)
      for (std::int64_t c = v.c; c < v.padded_c; ++c)
        for (std::int64_t s = 0; s < v.spatial; ++s)
          if (stored[offset_of(v, n, c, s)] != 0) return false;
    return true;
  }

  /// Makes argument `arg` the same memory as argument `of`.
  void alias(std::size_t arg, std::size_t of) { aliases_.emplace_back(arg, of); }

  /// Runs with that many threads and checks that nothing wrote outside of the arguments.
  void run(int threads = 2) {
    std::vector<std::byte*> pointers;
    for (GuardedBuffer& buffer : buffers_) pointers.push_back(buffer.data());
    for (const auto& [arg, of] : aliases_) pointers[arg] = pointers[of];
    const int before = omp_get_max_threads();
    omp_set_num_threads(std::min(threads, omp_get_thread_limit()));
    op_->run(pointers, nullptr, nullptr);
    omp_set_num_threads(before);
    for (const GuardedBuffer& buffer : buffers_) CHECK(buffer.intact());
  }

 private:
  cpu::ActivationView view(std::size_t arg) const {
    const TensorDesc& tensor = op_->args().at(arg);
    const std::int64_t count = element_count(tensor.dims);
    if (tensor.plain()) return {1, count, 1, 1, count};
    return cpu::activation_view(tensor).value();
  }

  template <class Body>
  static void for_each(const cpu::ActivationView& v, std::int64_t channels, const Body& body) {
    for (std::int64_t n = 0; n < v.n; ++n)
      for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t s = 0; s < v.spatial; ++s) body(offset_of(v, n, c, s));
  }

  cpu::Prepared op_;
  std::vector<GuardedBuffer> buffers_;
  std::vector<std::pair<std::size_t, std::size_t>> aliases_;
};

/// Equality that takes a NaN for equal to itself.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Runs `op` on the values of its first arguments, and returns those of the others, which it writes. Checks
/// that it changes no input, that padding stays zero and that 1, 2 and 3 threads give the same bits.
/// `in_place`: the input whose memory the last argument shares.
inline std::vector<Floats> results_of(const cpu::Prepared& op, const std::vector<Floats>& inputs,
                                      std::optional<std::size_t> in_place = std::nullopt) {
  std::vector<Floats> results;
  for (const int threads : {1, 2, 3}) {
    OpRun run(op);
    const std::size_t count = op->args().size();
    if (in_place) run.alias(count - 1, *in_place);
    for (std::size_t i = 0; i < inputs.size(); ++i) run.set(i, inputs[i]);
    run.run(threads);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (i != in_place) CHECK(same_bits(run.get(i), inputs[i]));
    for (std::size_t i = inputs.size(); i < count; ++i) {
      const std::size_t at = in_place && i == count - 1 ? *in_place : i;
      CHECK(run.padding_is_zero(at));
      if (threads == 1)
        results.push_back(run.get(at));
      else
        CHECK(same_bits(run.get(at), results[i - inputs.size()]));
    }
  }
  return results;
}

/// Uniform in [low, high).
inline std::vector<float> random_values(std::int64_t count, unsigned seed, float low = -1, float high = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = uniform(engine);
  return values;
}

/// The largest difference, relative to the larger of 1 and the expected value; infinite for unequal sizes or
/// NaN.
template <class Expected>
double worst_difference(const std::vector<float>& actual, const std::vector<Expected>& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double want = static_cast<double>(expected[i]);
    worst = larger(worst, std::abs(static_cast<double>(actual[i]) - want) / std::max(1.0, std::abs(want)));
  }
  return worst;
}

}  // namespace convnet::test
