#include <cmath>
#include <limits>

#include "tests/kernels/dnn_reference.h"
#include "tests/kernels/op_cases.h"

namespace convnet::test {
namespace {

/// Forward with and without positions, and backward.
void add_pool(std::vector<OpCase>& cases, const PoolGeometry& g, const Values& src) {
  const double tolerance = g.keeps_workspace() ? 0 : 1e-6;
  cases.push_back({PoolForward{g, false}, {src}, {}, {}, tolerance});
  std::vector<Values> inputs(1);
  if (g.keeps_workspace()) {
    cases.push_back({PoolForward{g, true}, {src}, {}, {}, 0});
    cases.push_back({PoolForward{g, true, true}, {src}, {}, {}, 0});
    cases.push_back({PoolForward{g, false, true}, {src}, {}, {}, 0});
    inputs.push_back(reference_pool(g, src).position);
  }
  cases.push_back({PoolBackward{g}, inputs, {}, {}, tolerance});
}

void add_map_pool(std::vector<OpCase>& cases, const CrossMapPool& p, const Values& src) {
  cases.push_back({CrossMapPoolForward{p}, {src}, {}, {}, 0});
  cases.push_back({CrossMapPoolBackward{p}, {src}, {}, {}, 0});
}

}  // namespace

PoolGeometry pool(PoolKind kind, const Dims& src, Sides size, Sides stride, Sides start) {
  PoolGeometry g;
  g.kind = kind;
  g.n = src[0], g.c = src[1], g.h = src[2], g.w = src[3];
  g.size = size, g.stride = stride, g.start = start;
  const auto side = [](const WindowLine& line) {
    return (line.pixels - line.start - line.size + line.stride - 1) / line.stride + 1;
  };
  g.oh = side(g.rows()), g.ow = side(g.columns());
  return g;
}

std::vector<PoolGeometry> pool_geometries() {
  struct Windows {
    Dims src;
    Sides size, stride, start = 0;
  };
  std::vector<PoolGeometry> all;
  for (const Windows& w : std::vector<Windows>{
           {{2, 16, 8, 8}, 2, 2},      //
           {{3, 20, 7, 5}, 3, 2},      // exact
           {{1, 3, 8, 6}, 3, 2},       // overhang
           {{2, 32, 9, 7}, 3, 1, -1},  // starts before the image
           {{1, 5, 7, 7}, 3, 2, -2},   //
           {{1, 17, 9, 9}, 3, 2, 1},   // starts inside the image
           {{1, 64, 9, 9}, 3, 2, 1},   //
           {{2, 10, 6, 5}, 1, 1},      //
           {{2, 10, 6, 5}, 1, 3},      // pixels in no window
           {{2, 12, 6, 5}, 1, 3},      //
           {{1, 18, 5, 5}, 5, 1},      // one window
           {{2, 64, 5, 5}, 5, 1},      // for every map
           {{1, 1, 4, 4}, 7, 2, -3},   // wider than the image
           {{1, 4, 4, 4}, 7, 2, -3},   //
           {{1, 2, 20, 20}, 17, 3},    // positions beyond a byte
           {{1, 8, 20, 20}, 17, 3},    //
           {{1, 2, 17, 18}, 15, 1},    //
           {{1, 2, 17, 18}, 16, 1},    //
           {{3, 11, 1, 1}, 1, 1},      // one pixel
           {{3, 12, 1, 1}, 3, 1, -2},  //
           {{1, 1, 9, 11}, 2, 1, -1},  //
           {{2, 8, 6, 7}, 2, 3},       //
           {{2, 36, 6, 7}, 5, 1, -2},  //
           // Rectangles.
           {{2, 16, 8, 9}, {1, 3}, {1, 2}},
           {{2, 5, 8, 9}, {3, 1}, {2, 1}, {-1, 0}},
           {{2, 20, 7, 9}, {2, 3}, 2, {0, -1}},
           {{1, 8, 7, 9}, 3, {1, 3}, {-2, 1}},
           {{1, 8, 5, 40}, {3, 90}, {1, 2}, {-1, -60}},  // positions beyond a byte
           {{1, 16, 16, 16}, {15, 16}, 1},               // just not
           {{1, 16, 17, 17}, {17, 15}, 1},               // just not
           // Sums of neighbouring numbers.
           {{2, 5, 1, 1}, 1, 1},
           {{2, 4, 1, 3}, {1, 3}, 1},
           {{2, 3, 1, 33}, {1, 33}, 1},
           {{40, 142, 1, 7}, {1, 7}, 1},
       }) {
    for (const PoolKind kind : {PoolKind::max, PoolKind::max_abs, PoolKind::average})
      all.push_back(pool(kind, w.src, w.size, w.stride, w.start));
    all.push_back(all.back());
    all.back().sum = true;
  }
  return all;
}

std::vector<CrossMapPool> map_pools() {
  // n, c, h, w, outputs, size, stride, start
  return {
      {2, 12, 3, 5, 6, 2, 2, 0},     //
      {1, 7, 1, 1, 3, 3, 2, 0},      // one pixel
      {3, 10, 7, 9, 10, 3, 1, -1},   // starts before the first map, ends after the last
      {2, 5, 4, 4, 2, 3, 3, 0},      // the last window hangs over
      {1, 1, 2, 3, 1, 1, 1, 0},      // one map
      {2, 9, 5, 5, 3, 2, 4, 1},      // maps in no window
      {2, 6, 2, 2, 1, 20, 1, -4},    // more than all maps
      {1, 40, 10, 11, 19, 4, 2, 0},  //
      {2, 40, 20, 31, 19, 4, 2, 0},  // several runs of pixels
      {1, 4, 3, 3, 4, 2, 2, 0},      // windows without maps
      {0, 8, 3, 3, 4, 2, 2, 0},      // no images
  };
}

std::vector<OpCase> pooling_cases() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<OpCase> cases;
  for (const PoolGeometry& g : pool_geometries()) add_pool(cases, g, test_values(g.src(), 6));
  for (const Dims& dims : std::vector<Dims>{{0, 20, 7, 5}, {0, 3, 7, 5}}) {
    for (const PoolKind kind : {PoolKind::max, PoolKind::max_abs, PoolKind::average})
      add_pool(cases, pool(kind, dims, 3, 2), {});
    PoolGeometry sum = pool(PoolKind::average, dims, 3, 2);
    sum.sum = true;
    add_pool(cases, sum, {});
  }
  for (const Dims& dims : std::vector<Dims>{{1, 3, 5, 7}, {1, 4, 5, 7}, {2, 1, 5, 7}, {2, 40, 5, 7}}) {
    // Equal values, infinities and NaN.
    for (const PoolKind kind : {PoolKind::max, PoolKind::max_abs}) {
      const auto count = static_cast<std::size_t>(element_count(dims));
      for (const double value : {-1.0, 0.0, -kInfinity, kInfinity, std::nan("")}) {
        add_pool(cases, pool(kind, dims, 3, 2), Values(count, value));
        add_pool(cases, pool(kind, dims, 2, 1, -1), Values(count, value));
        add_pool(cases, pool(kind, dims, 4, 3, -1), Values(count, value));
        Values some = test_values(dims, 8);
        for (std::size_t i = 3; i < count; i += 11) some[i] = value;
        add_pool(cases, pool(kind, dims, 3, 2), some);
        // Many equal values of both signs.
        for (double& v : some) v = std::round(2 * v);
        add_pool(cases, pool(kind, dims, 3, 1, -1), some);
      }
    }
    // Windows without pixels.
    for (const PoolKind kind : {PoolKind::max, PoolKind::average, PoolKind::max_abs}) {
      PoolGeometry g = pool(kind, dims, 2, 2);
      g.oh = g.ow = 5;  // the last rows and columns lie outside
      add_pool(cases, g, test_values(dims, 3));
      g = pool(kind, dims, 2, 3, -4);  // the first ones do
      add_pool(cases, g, test_values(dims, 3));
    }
  }
  for (const CrossMapPool& p : map_pools()) {
    add_map_pool(cases, p, test_values(p.src(), 4));
    const auto count = static_cast<std::size_t>(element_count(p.src()));
    for (const double value : {-1.0, -kInfinity, std::nan("")}) {
      add_map_pool(cases, p, Values(count, value));
      Values some = test_values(p.src(), 8);
      for (std::size_t i = 1; i < count; i += 5) some[i] = value;
      add_map_pool(cases, p, some);
    }
  }
  return cases;
}

}  // namespace convnet::test
