#include <cmath>
#include <limits>

#include "tests/catch.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_runner.h"

namespace convnet::cross_map_pool_test {
namespace {

using test::Values;

/// Calls visit(dst index, src indices of the window in order).
template <class Visit>
void for_windows(const CrossMapPool& p, const Visit& visit) {
  const std::int64_t pixels = p.h * p.w;
  for (std::int64_t n = 0; n < p.n; ++n)
    for (std::int64_t o = 0; o < p.outputs; ++o)
      for (std::int64_t s = 0; s < pixels; ++s) {
        std::vector<std::size_t> window;
        for (std::int64_t i = 0; i < p.size; ++i) {
          const std::int64_t c = p.start + p.stride * o + i;
          if (c >= 0 && c < p.c) window.push_back(static_cast<std::size_t>((n * p.c + c) * pixels + s));
        }
        visit(static_cast<std::size_t>((n * p.outputs + o) * pixels + s), window);
      }
}

/// The first maximum of a window that is not empty; a NaN beats every number.
std::size_t first_maximum(const Values& src, const std::vector<std::size_t>& window) {
  std::size_t best = window[0];
  for (std::size_t i : window)
    if (src[i] > src[best] || (std::isnan(src[i]) && !std::isnan(src[best]))) best = i;
  return best;
}

void check(const CrossMapPool& p, const Values& src) {
  INFO(to_string(p.src()) << " to " << p.outputs << " size " << p.size << " stride " << p.stride << " start "
                          << p.start);
  const Values diff_dst = test::test_values(p.dst(), 9);
  Values dst(diff_dst.size(), 0.0), diff_src(src.size(), 0.0);
  for_windows(p, [&](std::size_t o, const std::vector<std::size_t>& window) {
    if (window.empty()) return;
    const std::size_t best = first_maximum(src, window);
    dst[o] = src[best];
    diff_src[best] += diff_dst[o];
  });
  if (p.n == 0) {
    std::vector<test::GuardedBuffer> none(3, test::GuardedBuffer(0));
    test::run_guarded(*cpu::prepare(CrossMapPoolBackward{p}, {}), none);
    none.pop_back();
    test::run_guarded(*cpu::prepare(CrossMapPoolForward{p}, {}), none);
    return;
  }
  CHECK(test::relative_error(test::run_plain(CrossMapPoolForward{p}, {src, {}})[1], dst) == 0.0);
  CHECK(test::relative_error(test::run_plain(CrossMapPoolBackward{p}, {src, diff_dst, {}})[2], diff_src) <=
        1e-6);
}

TEST_CASE("cmpool matches the reference", "[cmpool]") {
  for (const CrossMapPool& p : test::map_pools()) check(p, test::test_values(p.src(), 4));
}

TEST_CASE("cmpool sends the gradient to the first of equal maxima", "[cmpool]") {
  for (const CrossMapPool& p : test::map_pools()) {
    check(p, Values(static_cast<std::size_t>(element_count(p.src())), -1.0));
    check(p,
          Values(static_cast<std::size_t>(element_count(p.src())), -std::numeric_limits<double>::infinity()));
  }
  const CrossMapPool p{1, 3, 1, 1, 1, 3, 1, 0};
  CHECK(test::run_plain(CrossMapPoolBackward{p}, {{1, 2, 2}, {5}, {}})[2] == Values{0, 5, 0});
}

TEST_CASE("cmpool does not lose a NaN", "[cmpool]") {
  const CrossMapPool p{2, 10, 3, 3, 5, 3, 2, -1};
  Values src = test::test_values(p.src(), 8);
  for (std::size_t i = 3; i < src.size(); i += 17) src[i] = std::numeric_limits<double>::quiet_NaN();
  check(p, src);
}

}  // namespace
}  // namespace convnet::cross_map_pool_test
