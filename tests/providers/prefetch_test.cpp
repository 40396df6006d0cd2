#include "providers/prefetch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <semaphore>
#include <set>
#include <thread>
#include "tests/catch.h"

#include "convnet/base/error.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

std::shared_ptr<const DataBatch> batch_of(int images) {
  auto batch = std::make_shared<DataBatch>();
  batch->images = images;
  return batch;
}

/// A loader that notes what it loaded, and waits for `go` when `gated`.
struct Loader {
  std::unique_ptr<PieceInProgress> operator()(const LoadRequest& request) {
    begun.release();
    if (gated) go.acquire();
    const std::lock_guard lock(mutex);
    loaded.push_back(request.batch);
    if (request.batch < 0) throw InputError("batch " + std::to_string(request.batch) + " is broken");
    return finished_piece(batch_of(request.batch));
  }
  std::vector<int> seen() {
    const std::lock_guard lock(mutex);
    return loaded;
  }
  std::atomic<bool> gated = false;
  std::counting_semaphore<> begun{0}, go{0};
  std::mutex mutex;
  std::vector<int> loaded;
};

/// The state of pieces that complete when they are told to.
struct Pieces {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<int> complete, destroyed;

  void finish(int batch) {
    const std::lock_guard lock(mutex);
    complete.insert(batch);
    changed.notify_all();
  }
};

class SlowPiece final : public PieceInProgress {
 public:
  SlowPiece(Pieces& pieces, int batch) : pieces_(pieces), batch_(batch) {}
  SlowPiece(const SlowPiece&) = delete;
  SlowPiece& operator=(const SlowPiece&) = delete;
  ~SlowPiece() override {
    const std::lock_guard lock(pieces_.mutex);
    pieces_.destroyed.insert(batch_);
  }
  bool last() const override { return true; }
  bool done() const override {
    const std::lock_guard lock(pieces_.mutex);
    return pieces_.complete.contains(batch_);
  }
  std::shared_ptr<const DataBatch> wait() override {
    std::unique_lock lock(pieces_.mutex);
    pieces_.changed.wait(lock, [this] { return pieces_.complete.contains(batch_); });
    if (batch_ == 13) throw InputError("batch 13 is broken");
    return batch_of(batch_);
  }

 private:
  Pieces& pieces_;
  const int batch_;
};

}  // namespace

TEST_CASE("Several pieces are in progress at once", "[providers]") {
  Pieces pieces;
  std::counting_semaphore<> begun{0};
  {
    Prefetcher prefetcher(
        [&](const LoadRequest& request) {
          begun.release();
          return std::make_unique<SlowPiece>(pieces, request.batch);
        },
        2);
    for (const int batch : {1, 2, 3, 13, 5}) prefetcher.start({batch});
    for (int i = 0; i < 2; ++i) begun.acquire();  // hangs if the second one waits for the first
    CHECK_FALSE(begun.try_acquire());             // two are enough
    CHECK_FALSE(prefetcher.peek({1}));
    pieces.finish(2);
    pieces.finish(1);
    CHECK(prefetcher.peek({1})->images == 1);
    CHECK(prefetcher.peek({1})->images == 1);
    CHECK(prefetcher.take({1})->images == 1);
    begun.acquire();
    CHECK(prefetcher.take({2})->images == 2);
    begun.acquire();
    pieces.finish(13);
    // The third is given up.
    CHECK(message_of<InputError>([&] { prefetcher.take({13}); }) == "batch 13 is broken");
    CHECK(pieces.destroyed == std::set{1, 2, 3, 13});
    begun.acquire();
    // A piece that peek() finds broken is broken for take(), too.
    prefetcher.start({13});
    begun.acquire();
    pieces.finish(5);
    CHECK(prefetcher.take({5})->images == 5);
    CHECK_FALSE(prefetcher.peek({13}));
    CHECK(message_of<InputError>([&] { prefetcher.take({13}); }) == "batch 13 is broken");
    prefetcher.start({6});
    begun.acquire();
  }
  CHECK(pieces.destroyed.contains(6));
}

TEST_CASE("Prefetcher gives the batch that was started", "[providers]") {
  Loader loader;
  const auto main_thread = std::this_thread::get_id();
  std::atomic<bool> on_main = false;
  Prefetcher prefetcher([&](const LoadRequest& request) {
    if (std::this_thread::get_id() == main_thread) on_main = true;
    return loader(request);
  });
  prefetcher.start({1});
  for (int batch = 1; batch <= 50; ++batch) {
    const auto taken = prefetcher.take({batch});
    prefetcher.start({batch + 1});
    REQUIRE(taken->images == batch);
  }
  CHECK(prefetcher.take({51})->images == 51);
  CHECK(loader.seen().size() == 51);
  CHECK_FALSE(on_main);
}

TEST_CASE("Prefetcher loads ahead of take", "[providers]") {
  Loader loader;
  Prefetcher prefetcher([&](const LoadRequest& request) { return loader(request); });
  prefetcher.start({5});
  loader.begun.acquire();  // hangs if start() did not load
  CHECK(prefetcher.take({5})->images == 5);
  CHECK(loader.seen() == std::vector{5});
}

TEST_CASE("Prefetcher loads what was not started, and each start of the same once", "[providers]") {
  Loader loader;
  Prefetcher prefetcher([&](const LoadRequest& request) { return loader(request); });
  CHECK(prefetcher.take({3})->images == 3);
  CHECK(prefetcher.take({3})->images == 3);  // nothing is kept after take()
  prefetcher.start({4});
  prefetcher.start({4});
  CHECK(prefetcher.take({4})->images == 4);
  CHECK(loader.seen() == std::vector{3, 3, 4});
}

TEST_CASE("What stands before a request that is taken is forgotten", "[providers]") {
  Loader loader;
  loader.gated = true;
  Prefetcher prefetcher([&](const LoadRequest& request) { return loader(request); });
  prefetcher.start({1});
  loader.begun.acquire();  // 1 is in flight
  prefetcher.start({2});
  prefetcher.start({3});
  loader.go.release(2);
  CHECK(prefetcher.take({3})->images == 3);
  CHECK(loader.seen() == std::vector{1, 3});
  // The batches behind it are not kept.
  prefetcher.start({6});
  prefetcher.start({7});
  prefetcher.start({6});
  loader.go.release(2);
  CHECK(prefetcher.take({6})->images == 6);
  CHECK(prefetcher.take({7})->images == 7);
  CHECK(loader.seen() == std::vector{1, 3, 6, 7});
}

TEST_CASE("Pieces of a batch follow each other, and then comes what was started", "[providers]") {
  std::mutex mutex;
  std::vector<LoadRequest> seen;
  std::counting_semaphore<> read{0};
  const auto load = [&](const LoadRequest& request) {
    auto piece = std::make_shared<DataBatch>();
    piece->first = request.first;
    piece->images = std::min<std::int64_t>(request.count, 10 - request.first);
    piece->last = request.first + piece->images == 10;
    {
      const std::lock_guard lock(mutex);
      seen.push_back(request);
    }
    read.release();
    return finished_piece(piece);
  };
  Prefetcher prefetcher(load, 2);
  CHECK(prefetcher.take({1, 1, 0, 4})->images == 4);
  prefetcher.start({2, 1, 0, 4});
  for (int i = 0; i < 3; ++i) read.acquire();
  {
    const std::lock_guard lock(mutex);  // two are ready, and no more are read
    CHECK(seen == std::vector<LoadRequest>{{1, 1, 0, 4}, {1, 1, 4, 4}, {1, 1, 8, 4}});
  }
  CHECK_FALSE(prefetcher.peek({1, 1, 8, 4}));
  while (!prefetcher.peek({1, 1, 4, 4})) std::this_thread::yield();
  CHECK(prefetcher.take({1, 1, 4, 4})->first == 4);
  CHECK(prefetcher.take({1, 1, 8, 4})->last);
  CHECK(prefetcher.take({2, 1, 0, 4})->first == 0);
  // Starts from another place of the batch.
  CHECK(prefetcher.take({2, 1, 3, 4})->first == 3);
  CHECK(prefetcher.take({2, 1, 7, 4})->last);
}

TEST_CASE("The loader's exception reaches take, which can go on", "[providers]") {
  Loader loader;
  Prefetcher prefetcher([&](const LoadRequest& request) { return loader(request); });
  prefetcher.start({-1});
  CHECK(message_of<InputError>([&] { prefetcher.take({-1}); }) == "batch -1 is broken");
  CHECK(message_of<InputError>([&] { prefetcher.take({-2}); }) == "batch -2 is broken");
  CHECK(prefetcher.take({2})->images == 2);
  prefetcher.start({-3});  // nobody takes this one
  CHECK(prefetcher.take({4})->images == 4);
}

TEST_CASE("Prefetcher can be destroyed at any time", "[providers]") {
  Loader loader;
  {
    const Prefetcher idle([&](const LoadRequest& request) { return loader(request); });
  }
  CHECK(loader.seen().empty());
  for (int i = 0; i < 100; ++i) {
    Prefetcher prefetcher([&](const LoadRequest& request) { return loader(request); });
    prefetcher.start({i % 2 == 0 ? i : -1});
    if (i % 3 == 0) prefetcher.start({i});
    if (i % 5 == 0) prefetcher.take({i});
  }
  // A batch is in flight: the destructor waits for it.
  std::atomic<bool> finished = false;
  std::binary_semaphore begun{0};
  {
    Prefetcher prefetcher([&](const LoadRequest&) {
      begun.release();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      finished = true;
      return finished_piece(batch_of(1));
    });
    prefetcher.start({1});
    begun.acquire();
  }
  CHECK(finished);
}
