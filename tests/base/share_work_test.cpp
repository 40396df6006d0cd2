// Work that threads share, and values that objects share.
#include "convnet/base/share_work.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "convnet/base/shared.h"
#include "tests/catch.h"

namespace convnet {

TEST_CASE("shared work is done once each, by however many threads") {
  for (const int threads : {-1, 1, 2, 7}) {
    for (const std::size_t count : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> calls(count);
      share_work(count, threads, [&](std::size_t i) { ++calls[i]; });
      CHECK(std::all_of(calls.begin(), calls.end(), [](const auto& n) { return n == 1; }));
    }
  }
}

TEST_CASE("of several errors of shared work the one of the lowest number is thrown") {
  for (const int threads : {1, 2, 5}) {
    for (int time = 0; time < 20; ++time) {
      const auto work = [](std::size_t i) {
        if (i >= 3) throw std::runtime_error("work " + std::to_string(i));
      };
      CHECK_THROWS_WITH(share_work(50, threads, work), "work 3");
    }
  }
}

TEST_CASE("a shared value is copied when one of its owners changes it") {
  Shared<std::string> a(std::string("old"));
  Shared<std::string> b = a;
  CHECK(&*a == &*b);
  b.change() = "new";
  CHECK(*a == "old");
  CHECK(*b == "new");
  const std::string* const own = &*b;
  b.change() += "er";
  CHECK(&*b == own);
  CHECK(b->size() == 5);
}

}  // namespace convnet
