#include <algorithm>

#include "tests/kernels/op_cases.h"
#include "tests/rounding.h"

namespace convnet::test {
namespace {

double at_least(double terms) { return std::max(rounding_of(terms), 1e-5); }

/// The CPU computes some of the first kind with Winograd's algorithm, which is less exact, and cuDNN may
/// compute any of them so.
double tolerance_of(const ConvGeometry& g) {
  if ((g.filter == Sides(3) || g.filter == Sides(5)) && g.stride == Sides(1)) return 2e-4;
  return at_least(static_cast<double>(std::max(g.n * g.oh * g.ow, std::max(g.c, g.k) * g.filter.area())));
}

double tolerance_of(const InnerProductGeometry& g) {
  return at_least(static_cast<double>(std::max({g.n, g.in, g.out})));
}

void add_conv(std::vector<OpCase>& cases, const ConvGeometry& g) {
  for (const bool bias : {false, true}) {
    cases.push_back({.op = ConvForward{g, bias, false, false}, .tolerance = tolerance_of(g)});
    cases.push_back({.op = ConvBackwardWeights{g, bias}, .tolerance = tolerance_of(g)});
  }
  cases.push_back({.op = ConvBackwardData{g}, .tolerance = tolerance_of(g)});
}

void add_inner_product(std::vector<OpCase>& cases, const InnerProductGeometry& g) {
  for (const bool bias : {false, true}) {
    for (const bool accumulate : {false, true})
      for (const bool relu : {false, true})
        cases.push_back({.op = InnerProductForward{g, bias, accumulate, relu}, .tolerance = tolerance_of(g)});
    cases.push_back({.op = InnerProductBackwardWeights{g, bias}, .tolerance = tolerance_of(g)});
  }
  cases.push_back({.op = InnerProductBackwardData{g}, .tolerance = tolerance_of(g)});
}

void add_local(std::vector<OpCase>& cases, const LocalGeometry& g) {
  for (const bool bias : {false, true}) {
    for (const bool accumulate : {false, true})
      cases.push_back({LocalForward{g, bias, accumulate, bias != accumulate}});
    cases.push_back({LocalBackwardWeights{g, bias}});
  }
  cases.push_back({LocalBackwardData{g}});
}

/// Random numbers, the first of which is NaN.
Values with_nan(const Dims& dims) {
  Values values = test_values(dims, 1);
  values[0] = std::nan("");
  return values;
}

}  // namespace

ConvGeometry conv(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, std::int64_t k,
                  Sides filter, Sides stride, Sides pad, std::int64_t groups, bool floor, Sides dilation) {
  ConvGeometry g;
  g.n = n, g.c = c, g.h = h, g.w = w, g.k = k;
  g.filter = filter, g.stride = stride, g.pad = pad, g.groups = groups, g.dilation = dilation;
  const auto side = [&](const WindowLine& line, std::int64_t padding) {
    const std::int64_t rest = 2 * padding + line.pixels - line.extent();
    return (rest + (floor ? 0 : line.stride - 1)) / line.stride + 1;
  };
  g.oh = side(g.rows(), pad.y), g.ow = side(g.columns(), pad.x);
  return g;
}

ConvGeometry with_zeros_behind(ConvGeometry g, Sides behind) {
  const auto side = [](const WindowLine& line, std::int64_t zeros) {
    return (zeros - line.start + line.pixels - line.extent()) / line.stride + 1;
  };
  g.oh = side(g.rows(), behind.y), g.ow = side(g.columns(), behind.x);
  return g;
}

LocalGeometry local(const Dims& src, std::int64_t k, Sides filter, Sides stride, Sides pad,
                    std::int64_t groups, Sides dilation) {
  return {conv(src[0], src[1], src[2], src[3], k, filter, stride, pad, groups, false, dilation)};
}

std::vector<ConvGeometry> conv_geometries() {
  return {
      conv(1, 1, 1, 1, 1, 1),
      conv(3, 1, 7, 5, 1, 3),
      conv(1, 3, 7, 5, 16, 3, 1, 1),
      conv(3, 3, 9, 8, 20, 5, 2, 2),
      conv(3, 16, 7, 5, 32, 3, 2, 1),
      conv(2, 20, 8, 8, 50, 5),
      conv(3, 32, 5, 5, 16, 5, 1, 2),
      conv(3, 36, 5, 5, 40, 5, 1, 2),
      conv(2, 16, 6, 6, 10, 6),  // one output pixel
      conv(2, 32, 6, 7, 64, 3, 1, 1),
      // Few maps, in whole blocks of outputs and others, and in more images than are summed together.
      conv(9, 1, 28, 28, 32, 5, 1, 2),
      conv(10, 3, 15, 13, 40, 5, 1, 2),
      conv(3, 3, 17, 19, 24, 7, 2, 3),
      conv(2, 4, 9, 11, 21, 3, 2, 1),
      conv(2, 2, 24, 27, 9, 11, 4, 2),
      // Single pixels.
      conv(1, 50, 5, 7, 20, 1),
      conv(4, 8, 1, 1, 6, 1),
      conv(2, 6, 5, 7, 4, 1, 1, 0, 2),
      conv(2, 8, 5, 7, 4, 1, 2),     // not all pixels
      conv(2, 5, 4, 4, 3, 1, 1, 1),  // a border of windows without pixels
      // Single pixels of whole blocks of maps, in more images than are summed together.
      conv(9, 16, 12, 11, 40, 1),
      conv(3, 8, 17, 19, 8, 1),      // more pixels than stay in the first-level cache
      conv(2, 256, 12, 11, 520, 1),  // filters whose gradients are not summed in parts
      // Borders.
      conv(2, 3, 32, 32, 16, 11, 4),             // the last window hangs over by 3, as AlexNet's on 224
      conv(2, 16, 10, 9, 16, 3, 4),              // overhang of 1 and 2
      conv(2, 3, 5, 5, 16, 3, 1, 3),             // padding as wide as the filter: outputs that see only zeros
      conv(1, 16, 4, 4, 16, 3, 2, 4),            // wider
      conv(2, 3, 12, 11, 16, 3, 4, 0, 1, true),  // the last pixels are in no window
      conv(2, 16, 12, 11, 16, 3, 4, 1, 1, true),
      // Groups.
      conv(2, 32, 7, 5, 64, 3, 1, 1, 2),
      conv(2, 6, 7, 5, 4, 3, 1, 1, 2),
      conv(1, 16, 6, 6, 16, 3, 1, 1, 16),
      conv(1, 24, 6, 6, 40, 5, 2, 2, 4),
      // A map for each group.
      conv(9, 32, 7, 9, 32, 5, 1, 2, 32),
      conv(2, 20, 9, 8, 20, 5, 2, 2, 20),  // a block that is not full
      conv(3, 16, 4, 4, 16, 5, 1, 4, 16),  // windows that see a single pixel, and none where all taps do
      conv(2, 16, 12, 9, 16, 7, 3, 3, 16),
      conv(1, 48, 3, 3, 48, 7, 1, 3, 48),  // an image that is smaller than the filter
      conv(2, 16, 9, 9, 16, 5, 4, 0, 16),  // the last windows hang over
      conv(2, 24, 8, 8, 24, 3, 1, 1, 24),
      conv(9, 20, 7, 9, 20, 3, 1, 1, 20),
      conv(2, 20, 11, 14, 20, 3, 2, 1, 20),
      conv(1, 16, 12, 12, 16, 3, 2, 0, 16),  // the last pixels are in the windows' overhang
      conv(2, 16, 1, 2, 16, 3, 2, 1, 16),
      conv(1, 16, 5, 5, 16, 5, 1, 0, 16),    // one output pixel
      conv(1, 24, 70, 66, 24, 5, 1, 2, 24),  // larger than the first-level cache
      conv(1, 20, 61, 75, 20, 3, 2, 1, 20),
      // Rectangles.
      conv(2, 16, 7, 9, 24, {1, 7}, 1, {0, 3}),
      conv(3, 3, 9, 8, 16, {7, 1}, 1, {3, 0}),
      conv(2, 16, 9, 12, 20, {3, 5}, {2, 1}, {1, 2}),
      conv(2, 32, 8, 8, 32, 3, {1, 2}, 1),
      conv(2, 32, 8, 8, 32, 3, 1, {0, 1}),
      conv(1, 8, 8, 9, 12, {5, 2}, {1, 3}, {0, 2}, 2),
      conv(2, 20, 6, 7, 20, {1, 5}, 1, {0, 2}, 20),
      conv(2, 16, 6, 7, 16, {5, 7}, {1, 2}, {2, 3}, 16),
      conv(2, 6, 5, 9, 4, 1, {1, 3}),
      conv(1, 4, 3, 9, 8, {3, 9}),
      // Dilated.
      conv(2, 32, 9, 9, 64, 3, 1, 2, 1, false, 2),
      conv(2, 16, 9, 10, 16, 3, 1, {1, 3}, 1, false, {1, 3}),
      conv(2, 3, 10, 9, 16, 3, 2, 2, 1, false, {2, 3}),
      conv(2, 16, 12, 9, 16, 3, 3, 1, 1, true, 2),
      conv(2, 6, 9, 9, 4, {3, 2}, 1, 0, 2, false, {2, 5}),
      conv(2, 32, 9, 9, 32, 3, 1, 2, 32, false, 2),
      conv(2, 16, 9, 9, 16, 5, 1, 4, 16, false, 2),
      conv(2, 16, 4, 4, 16, 3, 1, 4, 1, false, 4),    // all taps but the middle one see only zeros
      conv(2, 16, 7, 7, 16, 3, 2, 4, 1, false, 4),    //
      conv(2, 16, 5, 5, 16, 3, 1, 12, 1, false, 12),  // taps farther apart than the image is wide
      conv(2, 8, 5, 7, 4, 1, 1, 0, 1, false, 3),
      // More zeros behind the image than before it, and fewer.
      with_zeros_behind(conv(2, 16, 8, 8, 24, 5), 4),
      with_zeros_behind(conv(2, 16, 8, 7, 24, 3, 2, 1), {0, 3}),
      with_zeros_behind(conv(2, 3, 8, 7, 16, {2, 4}, 1, {0, 1}, 1, false, {3, 1}), {3, 2}),
  };
}

std::vector<ConvGeometry> fused_conv_geometries() {
  return {conv(3, 3, 7, 5, 20, 3, 1, 1),      conv(2, 32, 8, 8, 64, 3, 1, 1), conv(2, 16, 7, 5, 32, 5, 2, 2),
          conv(2, 6, 7, 5, 4, 3, 1, 1, 2),    conv(2, 6, 7, 5, 4, 1),         conv(2, 6, 7, 5, 4, 1, 1, 0, 2),
          conv(2, 20, 9, 12, 20, 5, 1, 2, 20)};
}

std::vector<InnerProductGeometry> inner_product_geometries() {
  return {
      {1, 1, 1},       {3, 5, 7},  {1, 64, 10},    {5, 130, 67}, {128, 20, 10},  // bias sums in pieces
      {17, 256, 128},  {37, 6, 1}, {8, 1030, 259},  // many weights, in pieces that are not full
      {7, 1037, 1030},                              // more
  };
}

std::vector<LocalGeometry> local_geometries() {
  return {
      local({2, 16, 5, 5}, 16, 3, 1, 1),     //
      local({3, 20, 6, 4}, 18, 3, 1, 1),     // padded lanes on both sides
      local({1, 3, 7, 9}, 5, 3, 2, 0),       // one image, few channels
      local({5, 1, 6, 6}, 1, 2, 2),          // one map
      local({2, 17, 8, 6}, 33, 3, 2, 1),     // the last window hangs over
      local({2, 6, 5, 5}, 4, 5, 3, 3),       // windows mostly outside
      local({4, 32, 1, 1}, 16, 1),           // one pixel
      local({3, 8, 4, 4}, 40, 4),            // one position
      local({2, 32, 4, 5}, 32, 3, 1, 1, 2),  // groups of whole blocks
      local({2, 32, 4, 5}, 34, 3, 1, 1, 2),  // other groups
      local({2, 40, 4, 4}, 10, 3, 1, 1, 5),  // groups that share blocks
      local({2, 6, 5, 4}, 6, 2, 3, 0, 6),    // pixels in no window
      local({2, 4, 3, 3}, 4, 1, 1, 2),       // windows without pixels
      local({2, 17, 6, 5}, 18, {1, 3}, 1, {0, 1}),
      local({2, 4, 7, 9}, 6, {4, 2}, {1, 3}, {2, 0}, 2),
      local({2, 5, 9, 8}, 6, 3, 1, 2, 1, 2),
      local({2, 300, 5, 4}, 4, 4, 1, 1),  // more channels than a GPU copies at a time
      local({2, 4, 11, 9}, 6, {3, 2}, {2, 4}, {2, 1}, 2, {3, 2}),
      {with_zeros_behind(local({2, 4, 5, 6}, 6, 3, 2, 0), {2, 3})},
  };
}

std::vector<Dims> bias_shapes() {
  return {{3, 20, 5, 7}, {1, 16, 1, 1}, {2, 1, 3, 3}, {5, 33, 1, 4}, {150, 24, 9, 8}};
}

std::vector<OpCase> product_cases() {
  std::vector<OpCase> cases;
  for (const ConvGeometry& g : conv_geometries()) add_conv(cases, g);
  for (const ConvGeometry& g : fused_conv_geometries()) {
    for (const bool accumulate : {false, true})
      for (const bool relu : {false, true})
        cases.push_back({.op = ConvForward{g, true, accumulate, relu}, .tolerance = tolerance_of(g)});
    cases.push_back({.op = ConvForward{g, false, true, true}, .tolerance = tolerance_of(g)});
  }
  add_conv(cases, conv(0, 6, 7, 5, 4, 3, 1, 1, 2));
  add_conv(cases, conv(0, 3, 7, 5, 4, 1));

  for (const InnerProductGeometry& g : inner_product_geometries()) add_inner_product(cases, g);
  // In parts.
  for (const InnerProductGeometry& g :
       std::vector<InnerProductGeometry>{{1, 1, 1, 1}, {3, 5, 7, 1}, {4, 5, 3, 6}, {33, 40, 17, 3}})
    add_inner_product(cases, g);
  for (const std::int64_t parts : {0, 3}) add_inner_product(cases, {0, 5, 7, parts});
  const InnerProductGeometry parts{2, 3, 3, 2};
  cases.push_back({InnerProductForward{parts, true, false, true}, {with_nan(parts.src())}});

  for (const LocalGeometry& g : local_geometries()) add_local(cases, g);
  add_local(cases, local({0, 20, 6, 4}, 18, 3, 1, 1));
  cases.push_back({LocalForward{local({3, 20, 6, 4}, 18, 3, 1, 1), true, true, true}});
  const LocalGeometry small = local({1, 16, 3, 3}, 16, 3, 1, 1);
  cases.push_back({LocalForward{small, true, false, true}, {with_nan(small.src())}});

  std::vector<Dims> biased = bias_shapes();
  biased.insert(biased.end(), {{2, 3}, {0, 20, 3, 3}});
  for (const Dims& dims : biased) {
    cases.push_back({.op = AddBias{dims}, .tolerance = 0});
    cases.push_back({BiasBackward{dims}});
  }
  return cases;
}

}  // namespace convnet::test
