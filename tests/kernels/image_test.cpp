#include <algorithm>
#include <array>
#include <cmath>

#include "tests/catch.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/run_op.h"

namespace convnet::image_test {
using namespace test;

namespace {

using reference::central_differences;
using reference::to_doubles;
using reference::Values;

constexpr std::int64_t kSmall = 2000;  // elements for central differences

/// dst(y,x) = src(start_y + step_y*y, start_x + step_x*x) of every map
template <class T>
std::vector<T> sampled(const Sampling& p, const std::vector<T>& src) {
  std::vector<T> dst;
  for (std::int64_t map = 0; map < p.n * p.c; ++map)
    for (std::int64_t y = 0; y < p.oh; ++y)
      for (std::int64_t x = 0; x < p.ow; ++x)
        dst.push_back(src[static_cast<std::size_t>((map * p.h + p.start_y + p.step_y * y) * p.w + p.start_x +
                                                   p.step_x * x)]);
  return dst;
}

Values blurred(const Blur& p, const Values& src) {
  const std::int64_t h = p.dims[2], w = p.dims[3], reach = p.size / 2;
  const auto gauss = [&](std::int64_t d) {
    const auto distance = static_cast<double>(d), stdev = static_cast<double>(p.stdev);
    return std::exp(-distance * distance / (2 * stdev * stdev));
  };
  double sum = 0;
  for (std::int64_t d = -reach; d <= reach; ++d) sum += gauss(d);
  Values dst;
  for (std::int64_t map = 0; map < p.dims[0] * p.dims[1]; ++map)
    for (std::int64_t y = 0; y < h; ++y)
      for (std::int64_t x = 0; x < w; ++x) {
        dst.push_back(0);
        for (std::int64_t v = std::max(y - reach, std::int64_t{0}); v <= std::min(y + reach, h - 1); ++v)
          for (std::int64_t u = std::max(x - reach, std::int64_t{0}); u <= std::min(x + reach, w - 1); ++u)
            dst.back() += gauss(v - y) * gauss(u - x) / (sum * sum) *
                          src[static_cast<std::size_t>((map * h + v) * w + u)];
      }
  return dst;
}

/// The source coordinate of pixel i of `outputs`.
double coordinate(std::int64_t i, std::int64_t side, std::int64_t outputs, double scale) {
  const double first = (static_cast<double>(side) - static_cast<double>(outputs) * scale) / 2;
  const double last = side == 1 ? 0 : static_cast<double>(side) - 1.01;
  return std::clamp(static_cast<double>(i) * scale + first, 0.0, last);
}
/// Bilinear, of a map of h x w pixels.
double pixel_at(const Values& src, std::int64_t map, std::int64_t h, std::int64_t w, double y, double x) {
  const auto pixel = [&](double v, double u) {
    const auto row = std::min(static_cast<std::int64_t>(v), h - 1);
    return src[static_cast<std::size_t>((map * h + row) * w + std::min(static_cast<std::int64_t>(u), w - 1))];
  };
  const double top = std::floor(y), left = std::floor(x), down = y - top, right = x - left;
  return (1 - down) * ((1 - right) * pixel(top, left) + right * pixel(top, left + 1)) +
         down * ((1 - right) * pixel(top + 1, left) + right * pixel(top + 1, left + 1));
}
Values resized(const Resize& p, const Values& src) {
  const auto scale = static_cast<double>(p.scale);
  Values dst;
  for (std::int64_t map = 0; map < p.n * p.c; ++map)
    for (std::int64_t y = 0; y < p.oh; ++y)
      for (std::int64_t x = 0; x < p.ow; ++x)
        dst.push_back(
            pixel_at(src, map, p.h, p.w, coordinate(y, p.h, p.oh, scale), coordinate(x, p.w, p.ow, scale)));
  return dst;
}

Floats scaled_at_random(const RandomScale& op, const Floats& x, std::uint64_t iteration, int threads = 2) {
  OpRun run(cpu::prepare(op, {}));
  run.set(0, x);
  run.set_raw(2, std::vector<StepHeader>{{iteration}});
  run.run(threads);
  return run.get(1);
}

/// The effect of a random scale on one image, recovered from maps that hold each pixel's own column and row.
struct Draw {
  double factor = 0, y = 0, x = 0;  ///< y, x: where the crop starts
  std::int64_t side = 0;            ///< side of the image from which it was taken
};
Draw recovered(const RandomScale& p, const float* columns, const float* rows) {
  const std::int64_t steps = p.target - 2;  // the last pixel may be clamped
  const auto start = [&](const Draw& draw, float first) {
    const double origin = (static_cast<double>(p.side) - static_cast<double>(draw.side) * draw.factor) / 2;
    return (static_cast<double>(first) - origin) / draw.factor;
  };
  Draw draw;
  draw.factor = static_cast<double>(columns[steps] - columns[0]) / static_cast<double>(steps);
  CHECK(static_cast<double>(rows[steps * p.target] - rows[0]) / static_cast<double>(steps) ==
        Approx(draw.factor).epsilon(1e-6));
  draw.side = static_cast<std::int64_t>(static_cast<double>(p.side) / draw.factor + 1e-5);
  draw.y = start(draw, rows[0]);
  draw.x = start(draw, columns[0]);
  return draw;
}

}  // namespace

TEST_CASE("crop, href and nailbed take the pixels asked for", "[image]") {
  for (const Sampling& p : samplings())
    for (int block : {1, 8, 16}) {
      INFO(to_string(p.src()) << " to " << to_string(p.dst()) << " block " << block);
      const Floats x = random_values(element_count(p.src()), 1);
      const Floats dy = random_values(element_count(p.dst()), 2);
      const auto forward = cpu::prepare(SampleForward{p}, {activations(p.src(), block)});
      CHECK(same_layout(forward->args()[1], activations(p.dst(), block)));
      CHECK(results_of(forward, {x})[0] == sampled(p, x));
      const auto backward = cpu::prepare(SampleBackward{p}, {activations(p.dst(), block)});
      // One pixel of whole blocks is plain, too.
      const int kept = activations(p.dst(), block).plain() ? 1 : block;
      CHECK(same_layout(backward->args()[1], activations(p.src(), kept)));
      const Floats dx = results_of(backward, {dy})[0];
      CHECK(sampled(p, dx) == dy);
      if (element_count(p.src()) > kSmall) continue;
      CHECK(worst_difference(dx, central_differences([&](const Values& at) { return sampled(p, at); },
                                                     to_doubles(x), to_doubles(dy))) < 1e-6);
    }
}

TEST_CASE("blur matches the reference and is its own gradient", "[image]") {
  for (const Blur& p : blurs())
    for (int block : {1, 8, 16}) {
      const Dims& dims = p.dims;
      INFO(to_string(dims) << " size " << p.size << " stdev " << p.stdev << " block " << block);
      const auto op = cpu::prepare(p, {activations(dims, block)});
      CHECK(same_layout(op->args()[1], activations(dims, block)));
      const Floats x = random_values(element_count(dims), 1), dy = random_values(element_count(dims), 2);
      CHECK(worst_difference(results_of(op, {x})[0], blurred(p, to_doubles(x))) < 1e-6);
      if (element_count(dims) > kSmall) continue;
      CHECK(worst_difference(results_of(op, {dy})[0],
                             central_differences([&](const Values& at) { return blurred(p, at); },
                                                 to_doubles(x), to_doubles(dy))) < 1e-6);
    }
}

TEST_CASE("blur fades towards the border", "[image]") {
  const Floats y = results_of(cpu::prepare(Blur{{1, 1, 5, 5}, 3, 1.0F}, {}), {Floats(25, 1.0F)})[0];
  CHECK(y[12] == Approx(1));
  CHECK(y[10] == Approx(1 - 1 / (2 + std::exp(0.5))));
}

TEST_CASE("resize interpolates", "[image]") {
  for (const Resize& p : resizes())
    for (int block : {1, 16}) {
      INFO(to_string(p.src()) << " to " << to_string(p.dst()) << " by " << p.scale);
      const Floats x = random_values(element_count(p.src()), 1);
      const auto op = cpu::prepare(p, {activations(p.src(), block)});
      CHECK(worst_difference(results_of(op, {x})[0], resized(p, to_doubles(x))) < 2e-6);
    }
}

TEST_CASE("rscale in training draws scale, factor and crop", "[image]") {
  constexpr std::int64_t kSide = 24, kTarget = 16, kImages = 500, kIterations = 12;
  constexpr std::size_t kPixels = kSide * kSide, kCropped = kTarget * kTarget;
  RandomScale p{kImages, 3, kSide, kTarget, 1.5F, 77};
  Floats x;
  const Floats noise = random_values(kPixels, 1);
  for (std::int64_t n = 0; n < kImages; ++n) {
    for (std::size_t i = 0; i < kPixels; ++i) x.push_back(static_cast<float>(i % kSide));
    for (std::size_t i = 0; i < kPixels; ++i) x.push_back(static_cast<float>(i / kSide));
    x.insert(x.end(), noise.begin(), noise.end());
  }
  std::array<double, kSide - kTarget + 1> sizes{};  // how often s was drawn
  double factors = 0, factor_squares = 0, ys = 0, xs = 0, products = 0, factors_drawn = 0, cropped = 0;
  for (std::uint64_t iteration = 0; iteration < kIterations; ++iteration) {
    const Floats y = scaled_at_random(p, x, iteration);
    for (std::size_t n = 0; n < kImages; ++n) {
      const float* maps = y.data() + n * 3 * kCropped;
      const Draw draw = recovered(p, maps, maps + kCropped);
      REQUIRE(draw.side >= kTarget);
      REQUIRE(draw.side <= kSide);
      sizes[static_cast<std::size_t>(draw.side - kTarget)] += 1;
      // side/factor lies in [size, size + 1): uniform there in the factor.
      const auto side = static_cast<double>(draw.side);
      const double low = std::max(1.0, kSide / (1 + side)), high = kSide / side;
      REQUIRE(draw.factor > low - 1e-5);
      REQUIRE(draw.factor < high + 1e-5);
      if (high > low) {
        const double share = (draw.factor - low) / (high - low);
        factors += share, factor_squares += share * share, ++factors_drawn;
      }
      // The crop starts at a pixel and lies inside.
      REQUIRE(std::abs(draw.y - std::round(draw.y)) < 1e-3);
      REQUIRE(std::abs(draw.x - std::round(draw.x)) < 1e-3);
      const auto places = static_cast<double>(draw.side - kTarget);
      REQUIRE((std::round(draw.y) >= 0 && std::round(draw.y) <= places));
      REQUIRE((std::round(draw.x) >= 0 && std::round(draw.x) <= places));
      if (places > 0) {
        const double v = std::round(draw.y) / places - 0.5, u = std::round(draw.x) / places - 0.5;
        ys += v, xs += u, products += u * v, ++cropped;
      }
      if (n >= 5) continue;
      Values expected;
      for (std::int64_t i = 0; i < kTarget; ++i)
        for (std::int64_t j = 0; j < kTarget; ++j)
          expected.push_back(pixel_at(
              to_doubles(noise), 0, kSide, kSide,
              coordinate(i + static_cast<std::int64_t>(std::round(draw.y)), kSide, draw.side, draw.factor),
              coordinate(j + static_cast<std::int64_t>(std::round(draw.x)), kSide, draw.side, draw.factor)));
      CHECK(worst_difference({maps + 2 * kCropped, maps + 3 * kCropped}, expected) < 1e-4);
    }
  }
  double chi_squared = 0;
  const double weights = 285;  // 1 + 4 + ... + 81
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    const double expected = kImages * kIterations * static_cast<double>((s + 1) * (s + 1)) / weights;
    chi_squared += (sizes[s] - expected) * (sizes[s] - expected) / expected;
  }
  CHECK(chi_squared < 26);  // 8 degrees of freedom: exceeded once in a thousand
  CHECK(factors / factors_drawn == Approx(0.5).margin(0.02));
  CHECK(factor_squares / factors_drawn == Approx(1.0 / 3).margin(0.02));
  CHECK(std::abs(ys / cropped) < 0.025);
  CHECK(std::abs(xs / cropped) < 0.025);
  CHECK(std::abs(products / cropped) < 0.01);
}

TEST_CASE("rscale draws depend on key, iteration and image alone", "[image]") {
  const RandomScale p{40, 3, 24, 16, 1.5F, 5, 0};
  const Floats image = random_values(element_count(p.src()) / p.n, 1);
  Floats x;
  for (std::int64_t n = 0; n < p.n; ++n) x.insert(x.end(), image.begin(), image.end());
  const Floats y = scaled_at_random(p, x, 9, 1);
  CHECK(scaled_at_random(p, x, 9, 3) == y);
  CHECK(scaled_at_random(p, x, 10) != y);
  CHECK(scaled_at_random({40, 3, 24, 16, 1.5F, 6, 0}, x, 9) != y);
  const auto size = static_cast<std::ptrdiff_t>(3 * 16 * 16);
  CHECK(!std::equal(y.begin(), y.begin() + size, y.begin() + size));  // neighbours differ
  const RandomScale later{10, 3, 24, 16, 1.5F, 5, 30};
  x.resize(image.size() * 10);
  CHECK(scaled_at_random(later, x, 9) == Floats(y.begin() + 30 * size, y.end()));
}

TEST_CASE("rscale at its limits stays inside the image", "[image]") {
  for (const RandomScale& p : std::vector<RandomScale>{{50, 1, 1, 1, 1, 1},
                                                       {50, 1, 9, 9, 1, 1},
                                                       {50, 1, 9, 9, 2, 1},
                                                       {50, 1, 9, 6, 2, 1},
                                                       {50, 1, 6, 5, 1.2F, 1},
                                                       {0, 1, 6, 5, 1.2F, 1}}) {
    const Floats y = scaled_at_random(p, Floats(static_cast<std::size_t>(element_count(p.src())), 0.5F), 0);
    CHECK(worst_difference(y, Values(y.size(), 0.5)) < 1e-6);
  }
}

TEST_CASE("colour transforms match their formulas", "[image]") {
  const double yuv[3][3] = {{.2126, .7152, .0722}, {-.09991, -.33609, .436}, {.615, -.55861, -.05639}};
  const double xyz[3][3] = {{.49, .31, .2}, {.17697, .8124, .01063}, {0, .01, .99}};
  // CIE 15: cube roots above (6/29)^3.
  const auto curve = [](double t) {
    const double delta = 6.0 / 29;
    return t > delta * delta * delta ? std::cbrt(t) : t / (3 * delta * delta) + 4.0 / 29;
  };
  for (const Dims& dims : color_shapes()) {
    INFO(to_string(dims));
    Floats x = random_values(element_count(dims), 1, 0, 1);
    const auto pixels = static_cast<std::size_t>(dims[2] * dims[3]);
    for (std::size_t i = 0; i + 7 < x.size(); i += 11) x[i] = static_cast<float>(i % 3) / 2;
    for (std::size_t i = 0; i + 9 < x.size(); i += 13) x[i] *= 0.01F;  // dark: the line below the cube root
    Values expected_yuv(x.size()), expected_lab(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i / pixels % 3 > 0) continue;
      double t[3];
      for (std::size_t row = 0; row < 3; ++row) {
        double sum = 0;
        for (std::size_t k = 0; k < 3; ++k) {
          const auto v = static_cast<double>(x[i + k * pixels]);
          expected_yuv[i + row * pixels] += yuv[row][k] * v;
          sum += xyz[row][k] * v;
        }
        t[row] = curve(sum);
      }
      expected_lab[i] = 116 * t[1] - 16;
      expected_lab[i + pixels] = 500 * (t[0] - t[1]);
      expected_lab[i + 2 * pixels] = 200 * (t[1] - t[2]);
    }
    const auto results = [&](const ColorTransform& op) { return results_of(cpu::prepare(op, {}), {x})[0]; };
    CHECK(worst_difference(results({dims, ColorSpace::yuv}), expected_yuv) < 1e-6);
    CHECK(worst_difference(results({dims, ColorSpace::lab, false}), expected_lab) < 1e-4);
    for (std::size_t i = 0; i < x.size(); ++i)
      if (i / pixels % 3 == 0) expected_lab[i] -= 50;
    CHECK(worst_difference(results({dims, ColorSpace::lab, true}), expected_lab) < 1e-4);
  }
}

TEST_CASE("colours of black, grey and white", "[image]") {
  const Dims dims{1, 3, 1, 3};
  const Floats x = {0, 0.5F, 1, 0, 0.5F, 1, 0, 0.5F, 1};
  const Floats lab = results_of(cpu::prepare(ColorTransform{dims, ColorSpace::lab}, {}), {x})[0];
  CHECK(std::abs(lab[0]) < 1e-4F);
  CHECK(lab[1] == Approx(116 * std::cbrt(0.5) - 16));
  CHECK(lab[2] == Approx(100));
  for (std::size_t i = 3; i < 9; ++i) CHECK(std::abs(lab[i]) < 1e-3F);  // grey has no colour
  const Floats yuv = results_of(cpu::prepare(ColorTransform{dims}, {}), {x})[0];
  for (std::size_t i = 0; i < 3; ++i) CHECK(yuv[i] == Approx(x[i]));
  for (std::size_t i = 3; i < 9; ++i) CHECK(std::abs(yuv[i]) < 1e-6F);
}

}  // namespace convnet::image_test
