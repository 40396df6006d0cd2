#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// Rates 0 are due after 24 images, rates 1 are not yet.
OpCase update_case(const Update& update, double broken = 0) {
  const std::size_t step = arguments(update).size() - 3;
  OpCase c{update};
  c.raw.resize(step + 3);
  c.raw[step] = step_block(5, {{0.1F, 0.9F, 0.05F, 24}, {0.2F, 0.5F, 0.01F, 0}});
  c.raw[step + 1] = doubles({broken});
  c.raw[step + 2] = doubles({0});
  return c;
}

}  // namespace

TEST_CASE("updates on both backends", "[cuda]") {
  check_on_both(update_case({{{1000, 8}}}));
  check_on_both(update_case({{{1000, 8}}}, 1));
  check_on_both(update_case({{{700, 8, 0, 3}}}));
  check_on_both(update_case({{{700, 8, 0, 2, true}}}));
  check_on_both(update_case({{{700, 8, 1, 2, true}}}));
  check_on_both(update_case({{{100, 8}, {50, 0}, {1, 8, 1}, {300, 8, 1, 2, true}, {7, 16, 0, 4}}}));
}

TEST_CASE("more updates than one launch takes, on both backends", "[cuda]") {
  Update many;
  for (int i = 0; i < 70; ++i) many.parts.push_back({i % 7 + 1, 8, i % 2, i % 3 + 1});
  check_on_both(update_case(many));
  Update replicas;
  for (int i = 0; i < 3; ++i) replicas.parts.push_back({10, 8, 0, 100});
  check_on_both(update_case(replicas));
  const auto cuda = make_cuda_backend(Precision::fp32);
  CHECK_THROWS_AS(cuda->prepare(Update{{{10, 8, 0, 193}}}, LayoutHints(198)), DeviceError);
}

TEST_CASE("runs of many matrices on both backends", "[cuda]") {
  CopyRuns runs;
  for (int i = 0; i < 70; ++i) runs.counts.push_back(i % 5 + 1);
  check_on_both({runs, {}, {}, {}, 0});
}
