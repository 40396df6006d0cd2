#include <cmath>

#include "tests/catch.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/run_op.h"

namespace convnet::window_norm_test {
using namespace test;

namespace {

using reference::to_doubles;
using reference::Values;

std::string describe(const WindowNorm& p, int block) {
  return to_string(p.dims()) + " size " + std::to_string(p.size) + (p.contrast ? " contrast" : "") +
         " block " + std::to_string(block);
}

/// Calls visit(index) for the pixels of the clipped window of pixel (y, x) of map `map`.
template <class Visit>
void for_window(const WindowNorm& p, std::int64_t map, std::int64_t y, std::int64_t x, const Visit& visit) {
  for (std::int64_t v = y - p.size / 2; v < y - p.size / 2 + p.size; ++v)
    for (std::int64_t u = x - p.size / 2; u < x - p.size / 2 + p.size; ++u)
      if (v >= 0 && v < p.h && u >= 0 && u < p.w) visit(static_cast<std::size_t>((map * p.h + v) * p.w + u));
}
/// Calls visit(map, y, x) in the order of memory.
template <class Visit>
void for_pixels(const WindowNorm& p, const Visit& visit) {
  for (std::int64_t map = 0; map < p.n * p.c; ++map)
    for (std::int64_t y = 0; y < p.h; ++y)
      for (std::int64_t x = 0; x < p.w; ++x) visit(map, y, x);
}

Values window_norm(const WindowNorm& p, const Values& in) {
  Values z = in;
  if (p.contrast) {
    z.clear();
    for_pixels(p, [&](std::int64_t map, std::int64_t y, std::int64_t x) {
      double sum = 0, count = 0;
      for_window(p, map, y, x, [&](std::size_t i) { sum += in[i], ++count; });
      z.push_back(in[z.size()] - sum / count);
    });
  }
  Values out;
  for_pixels(p, [&](std::int64_t map, std::int64_t y, std::int64_t x) {
    double sum = 0;
    for_window(p, map, y, x, [&](std::size_t i) { sum += z[i] * z[i]; });
    const double scale = static_cast<double>(p.scale) / static_cast<double>(p.size * p.size);
    const double divisor = static_cast<double>(p.min_div) + scale * sum;
    out.push_back(in[out.size()] * std::pow(divisor, -static_cast<double>(p.power)));
  });
  return out;
}

/// d(sum of dy * window_norm(x))/dx by central differences.
Values reference_gradient(const WindowNorm& p, const Values& x, const Values& dy) {
  return reference::central_differences([&](const Values& at) { return window_norm(p, at); }, x, dy);
}

}  // namespace

TEST_CASE("rnorm and cnorm forward match the reference", "[norm]") {
  for (const WindowNorm& p : window_norms())
    for (int block : {1, 4, 8, 16}) {
      INFO(describe(p, block));
      const auto x = random_values(element_count(p.dims()), 1, -1, 3);
      const auto op = cpu::prepare(WindowNormForward{p}, {activations(p.dims(), block)});
      CHECK(same_layout(op->args()[1], activations(p.dims(), block)));
      OpRun run(op);
      run.set(0, x);
      run.run();
      CHECK(worst_difference(run.get(1), window_norm(p, to_doubles(x))) < 2e-6);
      CHECK(run.padding_is_zero(1));
    }
}

TEST_CASE("rnorm and cnorm backward match central differences", "[norm]") {
  for (const WindowNorm& p : window_norms()) {
    const auto x = random_values(element_count(p.dims()), 2, -1, 3);
    const auto dy = random_values(element_count(p.dims()), 3);
    const Values expected = reference_gradient(p, to_doubles(x), to_doubles(dy));
    for (int block : {1, 4, 8, 16}) {
      INFO(describe(p, block));
      OpRun run(cpu::prepare(WindowNormBackward{p}, {activations(p.dims(), block)}));
      run.set(0, x);
      run.set(1, dy);
      run.run();
      CHECK(worst_difference(run.get(2), expected) < 5e-6);
      CHECK(run.padding_is_zero(2));
    }
  }
}

TEST_CASE("cnorm of bright images keeps its digits", "[norm]") {
  const WindowNorm p{1, 3, 9, 9, 5, true, 1e-3F, 0.75F, 1};
  const auto x = random_values(element_count(p.dims()), 4, 100, 255);
  for (int block : {1, 16}) {
    OpRun run(cpu::prepare(WindowNormForward{p}, {activations(p.dims(), block)}));
    run.set(0, x);
    run.run();
    CHECK(worst_difference(run.get(1), window_norm(p, to_doubles(x))) < 5e-6);
  }
}

TEST_CASE("rnorm without minDiv keeps its padding finite", "[norm]") {
  for (const bool contrast : {false, true}) {
    const WindowNorm p{2, 17, 4, 4, 3, contrast, 1.0F, 0.75F, 0};
    const auto x = random_values(element_count(p.dims()), 4, 0.5F, 2);
    const auto dy = random_values(element_count(p.dims()), 5);
    OpRun forward(cpu::prepare(WindowNormForward{p}, {activations(p.dims(), 16)}));
    forward.set(0, x);
    forward.run();
    CHECK(worst_difference(forward.get(1), window_norm(p, to_doubles(x))) < 5e-6);
    CHECK(forward.padding_is_zero(1));
    OpRun backward(cpu::prepare(WindowNormBackward{p}, {activations(p.dims(), 16)}));
    backward.set(0, x);
    backward.set(1, dy);
    backward.run();
    // If all pixels of a window are nearly equal, cnorm divides by nearly zero.
    CHECK(worst_difference(backward.get(2), reference_gradient(p, to_doubles(x), to_doubles(dy))) <
          (contrast ? 1e-3 : 5e-6));
    CHECK(backward.padding_is_zero(2));
  }
}

TEST_CASE("rnorm passes NaN on to its window only", "[norm]") {
  const WindowNorm p{1, 2, 5, 6, 3, false, 1.0F, 0.75F, 1};
  std::vector<float> x(60, 1.0F);
  x[2 * 6 + 3] = NAN;
  for (int block : {1, 16}) {
    OpRun run(cpu::prepare(WindowNormForward{p}, {activations(p.dims(), block)}));
    run.set(0, x);
    run.run();
    const auto y = run.get(1);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t row = i / 6, column = i % 6;
      CHECK(std::isnan(y[i]) == (row >= 1 && row <= 3 && column >= 2 && column <= 4));
    }
  }
}

TEST_CASE("rnorm and cnorm are the same for any number of threads", "[norm]") {
  for (const bool contrast : {false, true})
    for (int block : {1, 16}) {
      const WindowNorm p{3, 20, 19, 21, 5, contrast, 1.0F, 0.75F, 1};
      OpRun run(cpu::prepare(WindowNormBackward{p}, {activations(p.dims(), block)}));
      run.set(0, random_values(element_count(p.dims()), 6));
      run.set(1, random_values(element_count(p.dims()), 7));
      run.run(1);
      const auto alone = run.get(2);
      run.run(3);
      CHECK(run.get(2) == alone);
    }
}

TEST_CASE("rnorm of no images, and in layouts it cannot walk", "[norm]") {
  const WindowNorm none{0, 20, 3, 3, 3, true, 1.0F, 0.75F, 1};
  for (int block : {1, 16}) {
    OpRun forward(cpu::prepare(WindowNormForward{none}, {activations(none.dims(), block)}));
    forward.run();
    OpRun backward(cpu::prepare(WindowNormBackward{none}, {activations(none.dims(), block)}));
    backward.run();
  }
  const WindowNorm p{2, 20, 3, 3, 3, false, 1.0F, 0.75F, 1};
  const dnnl::memory::desc nhwc(p.dims(), dnnl::memory::data_type::f32, dnnl::memory::format_tag::nhwc);
  CHECK(cpu::prepare(WindowNormForward{p}, {cpu::from_dnnl(nhwc, p.dims())})->args()[0].plain());
}

}  // namespace convnet::window_norm_test
