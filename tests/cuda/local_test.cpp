#include <cmath>

#include "kernels/cuda/chunked.h"
#include "tests/catch.h"
#include "tests/cuda/run_prepared.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// Output side as the layers compute it: ceil, so that the last window may overhang.
LocalGeometry local(const Dims& src, std::int64_t k, std::int64_t filter, std::int64_t stride = 1,
                    std::int64_t pad = 0, std::int64_t groups = 1) {
  LocalGeometry g;
  g.n = src[0], g.c = src[1], g.h = src[2], g.w = src[3];
  g.k = k, g.filter = filter, g.stride = stride, g.pad = pad, g.groups = groups;
  const auto side = [&](std::int64_t in) { return (2 * pad + in - filter + stride - 1) / stride + 1; };
  g.oh = side(g.h), g.ow = side(g.w);
  return g;
}

const std::vector<LocalGeometry> kLocalCases = {
    local({2, 16, 5, 5}, 16, 3, 1, 1),     //
    local({3, 20, 6, 4}, 18, 3, 1, 1),     //
    local({1, 3, 7, 9}, 5, 3, 2, 0),       // one image, few channels
    local({5, 1, 6, 6}, 1, 2, 2),          // one map
    local({2, 17, 8, 6}, 33, 3, 2, 1),     // the last window hangs over
    local({2, 6, 5, 5}, 4, 5, 3, 3),       // windows mostly outside
    local({4, 32, 1, 1}, 16, 1),           // one pixel
    local({3, 8, 4, 4}, 40, 4),            // one position
    local({2, 32, 4, 5}, 34, 3, 1, 1, 2),  // groups
    local({2, 40, 4, 4}, 10, 3, 1, 1, 5),  //
    local({2, 6, 5, 4}, 6, 2, 3, 0, 6),    // pixels in no window
    local({2, 4, 3, 3}, 4, 1, 1, 2),       // windows without pixels
    local({0, 20, 6, 4}, 18, 3, 1, 1),     // no images
};

}  // namespace

TEST_CASE("local forward on both backends", "[cuda]") {
  for (const LocalGeometry& g : kLocalCases)
    for (const bool bias : {false, true})
      for (const bool accumulate : {false, true})
        check_on_both({LocalForward{g, bias, accumulate, bias != accumulate}});
  check_on_both({LocalForward{kLocalCases[1], true, true, true}});
}

TEST_CASE("local backward on both backends", "[cuda]") {
  for (const LocalGeometry& g : kLocalCases) {
    check_on_both({LocalBackwardData{g}});
    for (const bool bias : {false, true}) check_on_both({LocalBackwardWeights{g, bias}});
  }
}

TEST_CASE("local of the CUDA backend keeps NaN through relu", "[cuda]") {
  const LocalGeometry g = local({1, 16, 3, 3}, 16, 3, 1, 1);
  Values src = test_values(g.src(), 1);
  src[0] = std::nan("");
  check_on_both({LocalForward{g, true, false, true}, {src}});
}

TEST_CASE("local of the CUDA backend in chunks of positions", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const cuda::Context context{Precision::fp32, nullptr};
  const LocalGeometry g = local({3, 6, 5, 4}, 4, 3, 1, 1, 2);
  const std::int64_t one = g.n * (g.c * 9 + g.k) * size_of(DataType::f32);
  const auto check = [&](const auto& op) {
    for (const bool last : {false, true}) {
      const LayoutHints hints = hints_for(op, last);
      const auto prepare = [&](std::int64_t most) {
        return cuda::prepare_in_chunks(op, hints, context, most);
      };
      const Results expected = run_prepared(*backend, op, *prepare(cuda::kMostColumnBytes));
      for (const std::int64_t positions : {0, 1, 3, 7, 20}) {
        const auto prepared = prepare(positions * one);
        const Results actual = run_prepared(*backend, op, *prepared);
        for (std::size_t i = 0; i < actual.size(); ++i) CHECK(relative_error(actual[i], expected[i]) <= 1e-5);
      }
    }
  };
  check(LocalForward{g, true, true, true});
  check(LocalBackwardData{g});
  check(LocalBackwardWeights{g, true});
}
