#include <cmath>
#include <limits>

#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// Values of [low, high).
Values values_between(const Dims& dims, std::uint32_t seed, double low, double high) {
  Values values = test_values(dims, seed);
  for (double& v : values) v = low + (high - low) * (v + 1) / 2;
  return values;
}

/// n, c, h, w, size, blocked, scale, power, min_div
const std::vector<CrossMapNorm> kMapNorms = {
    {2, 32, 3, 5, 5, false, 1e-1F, 0.75F, 1},       //
    {2, 20, 7, 3, 5, false, 0.5F, 0.75F, 1},        //
    {1, 13, 1, 1, 3, false, 1.0F, 0.5F, 2},         // one pixel, one image
    {3, 16, 1, 1, 3, false, 1.0F, 0.5F, 2},         //
    {2, 1, 4, 5, 5, false, 1.0F, 0.75F, 1},         // one map
    {2, 4, 4, 5, 9, false, 1.0F, 0.75F, 1},         // fewer maps than the window has
    {3, 24, 2, 9, 4, false, 1.0F, 0.75F, 1},        // even windows reach further down than up
    {2, 18, 3, 3, 2, false, 0.7F, 1.0F, 1},         //
    {2, 12, 3, 3, 2, false, 0.7F, 1.0F, 1},         //
    {2, 17, 3, 2, 1, false, 0.7F, 0.6F, 1},         // a map with itself alone
    {2, 40, 3, 2, 1, false, 0.7F, 0.6F, 1},         //
    {1, 10, 2, 2, 50, false, 3.0F, 0.9F, 0.5F},     // window larger than all maps
    {1, 20, 2, 17, 19, false, 2.0F, 0.75F, 1e-3F},  //
    {2, 24, 3, 3, 7, false, 2.0F, 0.75F, 1},        //
    {2, 24, 3, 3, 8, false, 2.0F, 0.75F, 1},        //
    {2, 24, 3, 3, 9, false, 2.0F, 0.75F, 1},        // the widest for the kernel of four maps
    {2, 24, 3, 3, 10, false, 2.0F, 0.75F, 1},       //
    {2, 19, 3, 3, 4, true, 1.0F, 0.75F, 1},         // groups, the last one short
    {2, 20, 3, 3, 4, true, 1.0F, 0.75F, 1},         //
    {1, 20, 2, 2, 64, true, 1.0F, 0.75F, 1},        // one group
    {2, 21, 40, 3, 3, false, 1.0F, 0.33F, 1},       //
    {1, 5, 2, 3, 3, false, 0.0F, 0.75F, 1},         // no normalisation
    {1, 8, 2, 3, 3, false, 0.0F, 0.75F, 1},         //
    {0, 8, 2, 3, 3, false, 1.0F, 0.75F, 1},         // no images
    {0, 7, 2, 3, 3, true, 1.0F, 0.75F, 1},          //
};

/// n, c, h, w, size, contrast, scale, power, min_div; tested with and without contrast
const std::vector<WindowNorm> kWindowNorms = {
    {2, 3, 5, 7, 3, false, 1.0F, 0.75F, 1},     //
    {1, 20, 4, 3, 5, false, 2.0F, 0.5F, 2},     // window wider than the image
    {2, 17, 6, 6, 4, false, 1.0F, 0.75F, 1},    // even windows reach further back than ahead
    {1, 2, 7, 5, 2, false, 3.0F, 1.0F, 1},      //
    {2, 1, 1, 1, 3, false, 1.0F, 0.75F, 1},     // one pixel
    {2, 2, 1, 6, 3, false, 1.0F, 0.75F, 1},     // one row
    {1, 2, 6, 1, 3, false, 1.0F, 0.75F, 1},     // one column
    {1, 3, 4, 4, 1, false, 0.5F, 0.75F, 0.5F},  // a pixel alone
    {1, 2, 3, 4, 50, false, 5.0F, 0.9F, 1},     // all pixels in every window
    {1, 2, 5, 5, 3, false, 0.0F, 0.75F, 1},     // no normalisation
    {1, 40, 9, 7, 5, false, 1.0F, 0.75F, 1},    //
    {0, 20, 3, 3, 3, false, 1.0F, 0.75F, 1},    // no images
};

/// n, c, h, w, outputs, size, stride, start
const std::vector<CrossMapPool> kMapPools = {
    {2, 12, 3, 5, 6, 2, 2, 0},     //
    {1, 7, 1, 1, 3, 3, 2, 0},      // one pixel
    {3, 10, 7, 9, 10, 3, 1, -1},   // starts before the first map, ends after the last
    {2, 5, 4, 4, 2, 3, 3, 0},      // the last window hangs over
    {1, 1, 2, 3, 1, 1, 1, 0},      // one map
    {2, 9, 5, 5, 3, 2, 4, 1},      // maps in no window
    {2, 6, 2, 2, 1, 20, 1, -4},    // more than all maps
    {1, 40, 10, 11, 19, 4, 2, 0},  //
    {1, 4, 3, 3, 4, 2, 2, 0},      // windows without maps
    {0, 8, 3, 3, 4, 2, 2, 0},      // no images
};

template <class Forward, class Backward, class P>
void check(const P& p, const Values& x, double tolerance) {
  check_on_both({Forward{p}, {x}, {}, {}, tolerance});
  check_on_both({Backward{p}, {x}, {}, {}, tolerance});
}

void check(const CrossMapNorm& p, const Values& x) {
  INFO(to_string(p.dims()) << " size " << p.size << (p.blocked ? " blocked" : ""));
  check<CrossMapNormForward, CrossMapNormBackward>(p, x, 3e-6);
}
void check(const WindowNorm& p, const Values& x, double tolerance = 5e-6) {
  INFO(to_string(p.dims()) << " size " << p.size << (p.contrast ? " contrast" : ""));
  check<WindowNormForward, WindowNormBackward>(p, x, tolerance);
}
void check(const CrossMapPool& p, const Values& x) {
  INFO(to_string(p.src()) << " to " << p.outputs << " size " << p.size << " stride " << p.stride << " start "
                          << p.start);
  check<CrossMapPoolForward, CrossMapPoolBackward>(p, x, 0);
}

}  // namespace

TEST_CASE("cmrnorm on both backends", "[cuda]") {
  for (const CrossMapNorm& p : kMapNorms) check(p, values_between(p.dims(), 1, -2, 2));
}

TEST_CASE("cmrnorm without minDiv, of zeros and of NaN on both backends", "[cuda]") {
  for (const std::int64_t channels : {17, 20})
    for (const std::int64_t size : {3, 8, 12})
      for (const bool blocked : {false, true}) {
        const CrossMapNorm p{2, channels, 3, 3, size, blocked, 1.0F, 0.75F, 0};
        Values x = values_between(p.dims(), 4, 0.5, 2);
        check(p, x);
        for (std::size_t i = 0; i < x.size(); i += 3) x[i] = 0;
        check(p, x);
        x[31] = std::nan("");
        check(p, x);
        check(p, Values(x.size(), 0.0));
      }
}

TEST_CASE("cmpool on both backends", "[cuda]") {
  for (const CrossMapPool& p : kMapPools) {
    check(p, test_values(p.src(), 4));
    const auto count = static_cast<std::size_t>(element_count(p.src()));
    for (const double value : {-1.0, -std::numeric_limits<double>::infinity(), std::nan("")}) {
      check(p, Values(count, value));
      Values some = test_values(p.src(), 8);
      for (std::size_t i = 1; i < count; i += 5) some[i] = value;
      check(p, some);
    }
  }
}

TEST_CASE("rnorm and cnorm on both backends", "[cuda]") {
  for (WindowNorm p : kWindowNorms)
    for (const bool contrast : {false, true}) {
      p.contrast = contrast;
      check(p, values_between(p.dims(), 1, -1, 3));
    }
  check(WindowNorm{1, 3, 9, 9, 5, true, 1e-3F, 0.75F, 1}, values_between({1, 3, 9, 9}, 4, 100, 255), 2e-5);
}

TEST_CASE("rnorm and cnorm without minDiv, of zeros and of NaN on both backends", "[cuda]") {
  const Dims dims{2, 17, 5, 6};
  Values x = values_between(dims, 4, 0.5, 2);
  // If all pixels of a window are nearly equal, cnorm divides by nearly zero.
  check(WindowNorm{2, 17, 5, 6, 3, true, 1.0F, 0.75F, 0}, x, 1e-3);
  const WindowNorm p{2, 17, 5, 6, 3, false, 1.0F, 0.75F, 0};
  check(p, x);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 30 < 14 ? 0 : x[i];
  check(p, x);
  x[47] = std::nan("");
  check(p, x);
  check(WindowNorm{2, 17, 5, 6, 3, true, 1.0F, 0.75F, 1}, x);
}
