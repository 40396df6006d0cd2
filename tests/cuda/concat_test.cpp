#include <stdexcept>

#include "tests/catch.h"
#include "tests/cuda/run_prepared.h"

using namespace convnet;
using namespace convnet::test;

namespace {

struct ConcatCase {
  std::vector<Dims> from;
  Dims to;
};
const std::vector<ConcatCase> kConcatCases = {
    {{{2, 16, 3, 5}, {2, 32, 3, 5}}, {2, 48, 3, 5}},
    {{{2, 5, 3, 5}, {2, 16, 3, 5}, {2, 1, 3, 5}}, {2, 22, 3, 5}},
    {{{3, 16, 1, 1}, {3, 7, 1, 1}, {3, 1, 1, 1}}, {3, 24, 1, 1}},
    {{{1, 1, 1, 1}}, {1, 1, 1, 1}},
    {{{1, 16, 2, 2}}, {1, 64}},                        // flat afterwards
    {{{3, 7}, {3, 1}, {3, 20}}, {3, 28}},              //
    {{{2, 16, 2, 2}, {2, 3}, {2, 1, 3, 1}}, {2, 70}},  // images of several sizes
    {{{2, 4, 3, 3}, {2, 2, 3, 6}}, {2, 8, 3, 3}},      // the same, as maps
    {{{7, 40, 5, 11}, {7, 24, 5, 11}}, {7, 64, 5, 11}},
    {{{0, 16, 3, 5}, {0, 16, 3, 5}}, {0, 32, 3, 5}},
};

}  // namespace

TEST_CASE("concat and split on both backends", "[cuda]") {
  for (const ConcatCase& c : kConcatCases) {
    check_on_both({.op = Concat{c.from, c.to}, .tolerance = 0});
    std::int64_t offset = 0;
    for (const Dims& part : c.from) {
      check_on_both({.op = Split{c.to, part, offset}, .tolerance = 0});
      offset += element_count({part.begin() + 1, part.end()});
    }
  }
  for (const Split& op : std::vector<Split>{{{2, 40, 2, 3}, {2, 16, 2, 3}, 48},
                                            {{2, 40, 2, 3}, {2, 16, 3, 2}, 95},  // from within a map
                                            {{2, 40, 2, 3}, {2, 7}, 101},
                                            {{2, 40, 2, 3}, {2, 1, 1, 1}, 239}})
    check_on_both({.op = op, .tolerance = 0});
}

TEST_CASE("concat and split take every argument as it lies", "[cuda]") {
  const auto backend = make_cuda_backend(Precision::fp32);
  const Dims one{2, 3, 4, 5}, two{2, 6, 4, 5};
  for (const OpDesc& op : {OpDesc(Concat{{one, one}, two}), OpDesc(Split{two, one, 47})}) {
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
  CHECK_THROWS_AS(backend->prepare(Split{{2, 8}, {2, 3}, 6}, {}), std::logic_error);
  CHECK_THROWS_AS(backend->prepare(Split{{2, 8}, {2, 3}, -1}, {}), std::logic_error);
}

TEST_CASE("group sums on both backends", "[cuda]") {
  for (const GroupSumForward& g : std::vector<GroupSumForward>{{1, 1, 1},
                                                               {2, 5, 1},
                                                               {2, 12, 3},
                                                               {4, 5, 5},
                                                               {3, 7, 3},  // a last, incomplete group
                                                               {2, 100, 33},
                                                               {0, 6, 2}}) {
    check_on_both({.op = g, .tolerance = 1e-6});
    check_on_both({.op = GroupSumBackward{g.n, g.c, g.stride}, .tolerance = 0});
  }
}
