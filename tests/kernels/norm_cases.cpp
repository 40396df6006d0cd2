#include <cmath>

#include "tests/kernels/op_cases.h"

namespace convnet::test {
namespace {

void add(std::vector<OpCase>& cases, const CrossMapNorm& p, const Values& x) {
  cases.push_back({CrossMapNormForward{p}, {x}, {}, {}, 3e-6});
  cases.push_back({CrossMapNormBackward{p}, {x}, {}, {}, 3e-6});
}
void add(std::vector<OpCase>& cases, const WindowNorm& p, const Values& x, double tolerance = 5e-6) {
  cases.push_back({WindowNormForward{p}, {x}, {}, {}, tolerance});
  cases.push_back({WindowNormBackward{p}, {x}, {}, {}, tolerance});
}

/// Other means and deviations for other channels.
Values activations(const Dims& dims, double mean = 0.5) {
  Values x = test_values(dims, 1);
  const std::int64_t pixels = dims.size() == 4 ? dims[2] * dims[3] : 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto c = static_cast<double>(static_cast<std::int64_t>(i) / pixels % dims[1]);
    x[i] = mean + x[i] * (1 + c / 8) + std::sin(c);
  }
  return x;
}
Values positive(std::int64_t channels) { return values_between({channels}, 7, 0.1, 2); }

void add_map_norms(std::vector<OpCase>& cases) {
  for (const CrossMapNorm& p : map_norms()) add(cases, p, values_between(p.dims(), 1, -2, 2));
  // Without minDiv, zeros, NaN.
  for (const std::int64_t channels : {17, 20})
    for (const std::int64_t size : {3, 8, 12})
      for (const bool blocked : {false, true}) {
        const CrossMapNorm p{2, channels, 3, 3, size, blocked, 1.0F, 0.75F, 0};
        Values x = values_between(p.dims(), 4, 0.5, 2);
        add(cases, p, x);
        for (std::size_t i = 0; i < x.size(); i += 3) x[i] = 0;
        add(cases, p, x);
        x[31] = std::nan("");
        add(cases, p, x);
        add(cases, p, Values(x.size(), 0.0));
      }
}

void add_window_norms(std::vector<OpCase>& cases) {
  for (const WindowNorm& p : window_norms()) add(cases, p, values_between(p.dims(), 1, -1, 3));
  add(cases, WindowNorm{1, 3, 9, 9, 5, true, 1e-3F, 0.75F, 1}, values_between({1, 3, 9, 9}, 4, 100, 255),
      2e-5);
  // Without minDiv, zeros, NaN. Where all pixels of a window are nearly equal, cnorm divides by nearly
  // nothing.
  Values x = values_between({2, 17, 5, 6}, 4, 0.5, 2);
  add(cases, WindowNorm{2, 17, 5, 6, 3, true, 1.0F, 0.75F, 0}, x, 1e-3);
  const WindowNorm p{2, 17, 5, 6, 3, false, 1.0F, 0.75F, 0};
  add(cases, p, x);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 30 < 14 ? 0 : x[i];
  add(cases, p, x);
  x[47] = std::nan("");
  add(cases, p, x);
  add(cases, WindowNorm{2, 17, 5, 6, 3, true, 1.0F, 0.75F, 1}, x);
}

void add_batch_norms(std::vector<OpCase>& cases, const Dims& dims) {
  Values x = activations(dims);
  const Values variance = positive(dims[1]);
  for (const double mean : {0.5, 1000.0})
    cases.push_back({BatchNormMoments{dims}, {activations(dims, mean)}, {}, {}, 1e-6});
  for (const double value : {0.0, 0.5, -1e4, 0x1p-100})
    cases.push_back({BatchNormMoments{dims}, {Values(x.size(), value)}});
  for (const Neuron& neuron : applied_neurons()) {
    cases.push_back({BatchNormForward{dims, 1e-3F, neuron}, {x, {}, variance}, {}, {}, 1e-6});
    const BatchNormForward sum{dims, 1e-3F, neuron, true};
    cases.push_back({sum, {x, {}, variance}, {}, {}, 1e-6});
    cases.push_back({sum, {x, {}, variance}, {}, 5, 1e-6});
  }
  cases.push_back({BatchNormMoments{dims, true, 0.25F}, {x}, {}, {}, 1e-6});
  for (const Neuron& neuron : applied_neurons()) {
    // Sums that nearly cancel show the rounding of the exponential.
    const double tolerance = neuron.kind == NeuronKind::silu ? 5e-5 : 1e-5;
    cases.push_back(
        {BatchNormBackwardWeights{dims, 1e-3F, neuron}, {x, {}, {}, variance}, {}, {}, tolerance});
    for (const bool mask : {false, true})
      for (const bool sum : {false, true}) {
        if (!mask && !sum) continue;
        const BatchNormBackwardWeights fused{dims, 1e-3F, neuron, sum, mask};
        cases.push_back({fused, {x, {}, {}, variance}, {}, {}, tolerance});
        cases.push_back({fused, {x, {}, {}, variance}, {}, 1, tolerance});
      }
  }
  const std::int64_t values = element_count(dims) / dims[1];
  for (const std::int64_t taken : {values, values + 100}) {
    for (const Neuron& neuron : applied_neurons()) {
      BatchNormBackwardData data{dims, taken, 1e-3F, neuron};
      cases.push_back({data, {x, {}, {}, variance}, {}, {}, 1e-6});
      cases.push_back({data, {x, {}, {}, variance}, {}, 1, 1e-6});
      data.sum = true;
      cases.push_back({data, {x, {}, {}, variance}, {}, {}, 1e-6});
      cases.push_back({data, {x, {}, {}, variance}, {}, neuron.is_ident() ? 7 : 8, 1e-6});
    }
  }
  if (x.empty()) return;
  x[x.size() / 2] = NAN;
  cases.push_back({BatchNormMoments{dims}, {x}});
  if (x.size() < 3) return;
  x[x.size() / 3] = -INFINITY;
  for (const Neuron& neuron : applied_neurons())
    cases.push_back({BatchNormForward{dims, 1e-3F, neuron}, {x, {}, variance}});
}

void add_batch_norm_statistics(std::vector<OpCase>& cases) {
  for (const std::int64_t channels : {1, 5, 300}) {
    for (const std::int64_t values : {0, 1, 2, 1000})
      for (const float factor : {0.0F, 0.1F, 1.0F})
        cases.push_back({BatchNormTrack{channels, values, factor}, {}, {}, {}, 1e-6});
    for (const std::vector<std::int64_t>& sizes :
         {std::vector<std::int64_t>{7},
          {4, 3},
          {1, 0, 6, 2},
          {0, 0},
          std::vector<std::int64_t>(64, 3),
          std::vector<std::int64_t>(130, 3)}) {  // more than a GPU merges in one launch
      std::vector<Values> parts;
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        parts.push_back(values_between({channels}, static_cast<std::uint32_t>(i), 99, 101));
        parts.push_back(positive(channels));
      }
      cases.push_back({BatchNormMerge{channels, sizes}, parts, {}, {}, 1e-6});
      cases.push_back({BatchNormMerge{channels, sizes, true, 0.25F}, parts, {}, {}, 1e-6});
    }
  }
}

}  // namespace

std::vector<CrossMapNorm> map_norms() {
  // n, c, h, w, size, blocked, scale, power, min_div
  return {
      {2, 32, 3, 5, 5, false, 1e-1F, 0.75F, 1},       // whole blocks
      {2, 20, 7, 3, 5, false, 0.5F, 0.75F, 1},        // padded lanes
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
      {1, 20, 2, 17, 19, false, 2.0F, 0.75F, 1e-3F},  // larger than a block
      {2, 24, 3, 3, 7, false, 2.0F, 0.75F, 1},        //
      {2, 24, 3, 3, 8, false, 2.0F, 0.75F, 1},        //
      {2, 24, 3, 3, 9, false, 2.0F, 0.75F, 1},        // the widest for the GPU's kernel of four maps
      {2, 24, 3, 3, 10, false, 2.0F, 0.75F, 1},       //
      {2, 19, 3, 3, 4, true, 1.0F, 0.75F, 1},         // groups, the last one short
      {2, 20, 3, 3, 4, true, 1.0F, 0.75F, 1},         //
      {1, 20, 2, 2, 64, true, 1.0F, 0.75F, 1},        // one group
      {2, 21, 40, 3, 3, false, 1.0F, 0.33F, 1},       // several tiles
      {1, 5, 2, 3, 3, false, 0.0F, 0.75F, 1},         // no normalisation
      {1, 8, 2, 3, 3, false, 0.0F, 0.75F, 1},         //
      {0, 8, 2, 3, 3, false, 1.0F, 0.75F, 1},         // no images
      {0, 7, 2, 3, 3, true, 1.0F, 0.75F, 1},          //
  };
}

std::vector<WindowNorm> window_norms() {
  std::vector<WindowNorm> all;
  // n, c, h, w, size, contrast, scale, power, min_div
  for (WindowNorm p : std::vector<WindowNorm>{
           {2, 3, 5, 7, 3, false, 1.0F, 0.75F, 1},     //
           {1, 20, 4, 3, 5, false, 2.0F, 0.5F, 2},     // padded lanes; window wider than the image
           {2, 17, 6, 6, 4, false, 1.0F, 0.75F, 1},    // even windows reach further back than ahead
           {1, 2, 7, 5, 2, false, 3.0F, 1.0F, 1},      //
           {2, 1, 1, 1, 3, false, 1.0F, 0.75F, 1},     // one pixel
           {2, 2, 1, 6, 3, false, 1.0F, 0.75F, 1},     // one row
           {1, 2, 6, 1, 3, false, 1.0F, 0.75F, 1},     // one column
           {1, 3, 4, 4, 1, false, 0.5F, 0.75F, 0.5F},  // a pixel alone
           {1, 2, 3, 4, 50, false, 5.0F, 0.9F, 1},     // all pixels in every window
           {1, 2, 5, 5, 3, false, 0.0F, 0.75F, 1},     // no normalisation
           {1, 2, 4, 5, 3, false, 1.0F, 0.0F, 1},      //
           {1, 40, 9, 7, 5, false, 1.0F, 0.75F, 1},    //
           {2, 8, 9, 10, 7, false, 1.0F, 0.75F, 1},    // GPUs sum the rows of these windows first
           {1, 7, 8, 12, 6, false, 1.0F, 0.75F, 1},    //
           {0, 20, 3, 3, 3, false, 1.0F, 0.75F, 1},    // no images
       })
    for (const bool contrast : {false, true}) {
      p.contrast = contrast;
      all.push_back(p);
    }
  return all;
}

std::vector<Dims> batch_norm_shapes() {
  return {{2, 3, 5, 7},   {1, 1, 1, 1}, {2, 1, 1, 1}, {1, 20, 4, 3}, {9, 17, 3, 3}, {17, 24, 1, 1},
          {1, 1},         {3, 5},       {20, 33},     {600, 3},  // more rows than a piece of a matrix has
          {1, 1, 70, 70},                                        // more pixels than a strip has
          {3, 40, 19, 21}};
}

std::vector<Neuron> applied_neurons() {
  return {{},
          {NeuronKind::relu},
          {NeuronKind::brelu, 1.5F},
          {NeuronKind::leaky, 0.125F},
          {NeuronKind::hswish},
          {NeuronKind::silu}};
}

std::vector<OpCase> norm_cases() {
  std::vector<OpCase> cases;
  add_map_norms(cases);
  add_window_norms(cases);
  std::vector<Dims> shapes = batch_norm_shapes();
  shapes.insert(shapes.end(),
                {{0, 20, 3, 3}, {0, 5}, {700, 36}, {2, 2, 150, 150}});  // lanes of several warps
  for (const Dims& dims : shapes) add_batch_norms(cases, dims);
  const Dims large = {33, 64, 32, 32};  // parts have more than the fewest values
  cases.push_back({BatchNormMoments{large}, {activations(large)}, {}, {}, 1e-6});
  cases.push_back({BatchNormBackwardWeights{large}, {activations(large), {}, {}, positive(large[1])}});
  add_batch_norm_statistics(cases);
  return cases;
}

}  // namespace convnet::test
