// Threads that share jobs.
#include "providers/workers.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <semaphore>
#include <string>
#include <thread>
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

TEST_CASE("threads that find nothing left in a job go on with the next one", "[workers]") {
  WorkerPool pool(2);
  std::counting_semaphore<> go{0};
  const auto slow = pool.begin(1, [&](std::int64_t) { go.acquire(); });
  std::atomic<int> done = 0;
  const auto second = pool.begin(20, [&](std::int64_t) { ++done; });
  second->wait();  // hangs if it begins after the first has ended
  CHECK(done == 20);
  CHECK(second->done());
  CHECK_FALSE(slow->done());
  go.release();
  slow->wait();
  CHECK(slow->done());
}

TEST_CASE("a job that is destroyed drops its rest and waits for what has begun", "[workers]") {
  WorkerPool pool(2);
  std::atomic<int> begun = 0, ended = 0;
  std::counting_semaphore<> has_begun{0};
  {
    const auto job = pool.begin(1000, [&](std::int64_t) {
      ++begun;
      has_begun.release();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++ended;
    });
    has_begun.acquire();
  }
  const int at_end = begun;
  CHECK(at_end == ended);
  CHECK(at_end < 1000);
  std::atomic<bool> other = false;
  pool.run(1, [&](std::int64_t) { other = true; });
  CHECK(other);
  CHECK(begun == at_end);
  CHECK(pool.begin(0, [](std::int64_t) {})->done());
  {
    const auto broken = pool.begin(3, [](std::int64_t i) { throw InputError(std::to_string(i)); });
    // Nobody waits for it.
  }
}
