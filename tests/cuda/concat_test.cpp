#include <stdexcept>

#include "tests/catch.h"
#include "tests/cuda/run_prepared.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("concat and split take every argument as it lies", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const Dims one{2, 3, 4, 5}, two{2, 6, 4, 5};
  for (const OpDesc& op : {OpDesc(Concat{{one, one}, two}), OpDesc(Split{two, {{one, 47}, {one, 0}}})}) {
    const LayoutHints plain = hints_for(op, false), last = hints_for(op, true);
    const Results expected = run_prepared(*backend, op, *backend->prepare(op, plain));
    for (unsigned mix = 1; mix < 1U << plain.size(); ++mix) {
      LayoutHints hints;
      for (std::size_t i = 0; i < plain.size(); ++i)
        hints.push_back(((mix >> i) & 1U) != 0 ? last[i] : plain[i]);
      const auto prepared = backend->prepare(op, hints);
      for (std::size_t i = 0; i < hints.size(); ++i) CHECK(same_layout(prepared->args()[i], *hints[i]));
      CHECK(run_prepared(*backend, op, *prepared) == expected);
    }
  }
}

TEST_CASE("concat and split of the CUDA backend that do not fit are bugs", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  CHECK_THROWS_AS(backend->prepare(Concat{{{2, 3}, {2, 4}}, {2, 8}}, {}), std::logic_error);
  CHECK_THROWS_AS(backend->prepare(Split{{2, 8}, {{{2, 3}, 6}}}, {}), std::logic_error);
  CHECK_THROWS_AS(backend->prepare(Split{{2, 8}, {{{2, 3}, -1}}}, {}), std::logic_error);
}
