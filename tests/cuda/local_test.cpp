#include <cmath>

#include "kernels/cuda/chunked.h"
#include "tests/catch.h"
#include "tests/cuda/run_prepared.h"
#include "tests/rounding.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("local of the CUDA backend in chunks of positions", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const cuda::Context context{Precision::fp32, 0, nullptr};
  const LocalGeometry g = local({3, 6, 5, 4}, 4, 3, 1, 1, 2);
  const std::int64_t one = g.n * (g.c * 9 + g.k) * size_of(DataType::f32);
  const auto check = [&](const auto& op) {
    for (const bool last : {false, true}) {
      const OpForm form = backend->target().form(op, hints_for(op, last));
      const auto prepare = [&](std::int64_t most) {
        return cuda::prepare_in_chunks(op, form, context, most);
      };
      const Results expected = run_prepared(*backend, op, *prepare(cuda::kMostColumnBytes));
      for (const std::int64_t positions : {0, 1, 3, 7, 20}) {
        const auto prepared = prepare(positions * one);
        const Results actual = run_prepared(*backend, op, *prepared);
        for (std::size_t i = 0; i < actual.size(); ++i)
          CHECK(relative_error(actual[i], expected[i]) <= rounding_of(6 * 3 * 3));
      }
    }
  };
  check(LocalForward{g, true, true, true});
  check(LocalBackwardData{g});
  check(LocalBackwardWeights{g, true});
}
