// Histories that are thinned: what they keep, and how large they get.
#include "convnet/train/history.h"

#include <algorithm>

#include "convnet/net/costs.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

constexpr int kBatches = 4;  // in an epoch

/// Batch `number` of a run, counted from 0, or the test after it. Every number in it tells them apart.
HistoryEntry entry(int number, bool test) {
  HistoryEntry e;
  e.epoch = 1 + number / kBatches;
  e.batch = 1 + number % kBatches;
  e.test_batch = test ? 5 + number % 3 : -1;
  e.costs.images = 128;
  e.costs.sums = {{"logprob", {number * 1.0, test ? 1.0 : 0.0, 3.0}}};
  return e;
}

/// A run of so many batches, with a test after every `every`-th.
std::vector<HistoryEntry> run_of(int batches, int every, std::int64_t tests) {
  std::vector<HistoryEntry> history;
  std::size_t longest = 0;
  for (int i = 0; i < batches; ++i) {
    add_to_history(history, entry(i, false), tests);
    if (i % every == every - 1) add_to_history(history, entry(i, true), tests);
    longest = std::max(longest, history.size());
  }
  REQUIRE(longest <= kMostHistory);
  return history;
}

int number_of(const HistoryEntry& e) { return (e.epoch - 1) * kBatches + e.batch - 1; }

}  // namespace

TEST_CASE("a history is kept as it is up to its limit") {
  const std::vector<HistoryEntry> history = run_of(10'000, 1, 10);
  REQUIRE(history.size() == kMostHistory);
  CHECK(std::all_of(history.begin(), history.end(), [](const auto& e) { return e.count == 1; }));
}

TEST_CASE("a long history keeps its newest half, and means of what came before") {
  const int batches = 300'000, every = 4;
  const std::vector<HistoryEntry> history = run_of(batches, every, 10);
  CHECK(history.size() <= kMostHistory);
  CHECK(history.size() > kMostHistory / 2);
  std::int64_t trained = 0, tested = 0;
  double sum = 0;
  int before = -1;
  bool in_order = true, right = true;
  for (const HistoryEntry& e : history) {
    in_order = in_order && number_of(e) >= before;
    before = number_of(e);
    (e.test_batch < 0 ? trained : tested) += e.count;
    right = right && e.costs.images == 128 * e.count &&
            e.costs.sums[0].second[2] == 3.0 * static_cast<double>(e.count);
    if (e.test_batch >= 0) continue;
    sum += e.costs.sums[0].second[0];
    // Neighbours: the last of them is `number`, and the mean lies in their middle.
    const double middle = number_of(e) - (static_cast<double>(e.count) - 1) / 2;
    right = right && e.costs.sums[0].second[0] == middle * static_cast<double>(e.count);
  }
  CHECK(in_order);
  CHECK(right);
  CHECK(trained == batches);
  CHECK(tested == batches / every);
  CHECK(sum == 0.5 * batches * (batches - 1.0));
  // No part of the run is told by a few points only.
  CHECK(std::max_element(history.begin(), history.end(), [](const auto& a, const auto& b) {
          return a.count < b.count;
        })->count <= 8 * (batches + batches / every) / static_cast<std::int64_t>(kMostHistory));
  CHECK(std::all_of(history.end() - kMostHistory / 2, history.end(),
                    [](const auto& e) { return e.count == 1; }));
}

TEST_CASE("the newest tests of a long history are all there, however many") {
  for (const std::int64_t tests : {std::int64_t{10}, std::int64_t{2000}}) {
    const int batches = 60'000;
    const std::vector<HistoryEntry> history = run_of(batches, 19, tests);
    CostSums expected;
    std::vector<HistoryEntry> all;
    for (int i = 0; i < batches; ++i)
      if (i % 19 == 18) all.push_back(entry(i, true));
    for (auto e = all.rbegin(); e != all.rbegin() + tests; ++e) pool(expected, e->costs);
    const CostSums found = latest_tests(history, tests);
    CHECK(found.images == expected.images);
    CHECK(found.sums == expected.sums);
  }
}

TEST_CASE("a history that was saved and read in between is thinned alike") {
  const auto whole = run_of(50'000, 3, 10);
  const TempFolder folder;
  Checkpoint checkpoint;
  for (int i = 0; i < 50'000; ++i) {
    add_to_history(checkpoint.state.history, entry(i, false), 10);
    if (i % 3 == 2) add_to_history(checkpoint.state.history, entry(i, true), 10);
    if (i % 20'000 != 19'999) continue;
    write_checkpoint(folder.path(), checkpoint, 1);
    checkpoint = read_checkpoint(folder.path());
  }
  REQUIRE(checkpoint.state.history.size() == whole.size());
  bool same = true;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const HistoryEntry &a = checkpoint.state.history[i], &b = whole[i];
    same = same && a.epoch == b.epoch && a.batch == b.batch && a.test_batch == b.test_batch &&
           a.count == b.count && a.costs.images == b.costs.images && a.costs.sums == b.costs.sums;
  }
  CHECK(same);
}

TEST_CASE("a checkpoint stays small however long its history is, and whatever its costs hold") {
  const TempFolder folder;
  const auto size_after = [&](int entries, std::size_t values) {
    Checkpoint checkpoint;
    HistoryEntry wide = entry(0, false);
    wide.costs.sums[0].second.assign(values, 1.0 / 3);
    for (int i = 0; i < entries; ++i) add_to_history(checkpoint.state.history, wide, 10);
    write_checkpoint(folder.path(), checkpoint, 1);
    return std::filesystem::file_size(checkpoint.file);
  };
  // Histories of older versions are thinned, too, once they are gone on with.
  CHECK(size_after(60'000, 3) < 5'000'000);
  CHECK(size_after(800, 3'000) < 50'000'000);
  Checkpoint old;
  for (int i = 0; i < 60'000; ++i) old.state.history.push_back(entry(i, false));
  add_to_history(old.state.history, entry(60'000, false), 10);
  CHECK(old.state.history.size() <= kMostHistory);
}
