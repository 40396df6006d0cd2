// Threads that share jobs.
#include "providers/workers.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

TEST_CASE("workers do everything once, and the first failure is thrown", "[workers]") {
  for (const int threads : {1, 2, 7}) {
    WorkerPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::atomic<int>> done(40);
      pool.run(40, [&](std::int64_t i) { ++done[static_cast<std::size_t>(i)]; });
      CHECK(std::all_of(done.begin(), done.end(), [](const auto& times) { return times == 1; }));
      CHECK(message_of<InputError>([&] {
              pool.run(40, [&](std::int64_t i) {
                if (i % 10 == 7) throw InputError(std::to_string(i));
              });
            }) == "7");
    }
    pool.run(0, [](std::int64_t) { FAIL("there is nothing to do"); });
  }
}
