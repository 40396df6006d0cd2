#include "convnet/train/history.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "convnet/net/costs.h"

namespace convnet {
namespace {

/// Returns the largest number of entries of a history whose entries are like this one.
std::size_t most_entries(const HistoryEntry& entry) {
  constexpr std::size_t kMostNumbers = 2'000'000, kFewest = 10;
  std::size_t numbers = 5;  // names and the like
  for (const auto& [cost, sums] : entry.costs.sums) numbers += 1 + sums.size();
  return std::clamp(kMostNumbers / numbers, kFewest, kMostHistory);
}

/// Returns the index of the oldest of the newest `tests` tests.
std::size_t first_of_newest_tests(const std::vector<HistoryEntry>& history, std::int64_t tests) {
  std::size_t at = history.size();
  while (at > 0 && tests > 0) tests -= history[--at].test_batch >= 0 ? 1 : 0;
  return at;
}

/// Adds up neighbours of one kind among the first `end` entries, and tests among the first `end_of_tests`,
/// where both stand for at most half of `most`.
void add_up_neighbours(std::vector<HistoryEntry>& history, std::size_t end, std::size_t end_of_tests,
                       std::int64_t most) {
  std::array<std::optional<std::size_t>, 2> waiting;  // for a neighbour: a batch, a test
  std::vector<bool> merged(history.size());
  for (std::size_t i = 0; i < end; ++i) {
    HistoryEntry& entry = history[i];
    const bool test = entry.test_batch >= 0;
    if (test && i >= end_of_tests) continue;
    std::optional<std::size_t>& before = waiting.at(test ? 1 : 0);
    if (entry.count > most / 2) {
      before.reset();
    } else if (before && same_layers(history[*before].costs, entry.costs)) {
      CostSums sum = std::move(history[*before].costs);
      pool(sum, entry.costs);
      entry.costs = std::move(sum);
      entry.count += history[*before].count;
      merged[*before] = true;
      before.reset();
    } else {
      before = i;
    }
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < history.size(); ++i) {
    if (merged[i]) continue;
    if (kept != i) history[kept] = std::move(history[i]);
    ++kept;
  }
  history.resize(kept);
}

}  // namespace

void add_to_history(std::vector<HistoryEntry>& history, HistoryEntry entry, std::int64_t tests) {
  const std::size_t most = most_entries(entry);
  history.push_back(std::move(entry));
  if (history.size() <= most) return;
  constexpr std::int64_t kCoarsest = std::int64_t{1} << 40;
  const std::size_t newest = most / 2, enough = most - most / 4;
  // The newest tests stay as they are, an eighth of the entries at most.
  const std::int64_t kept_tests = std::min(tests, static_cast<std::int64_t>(most / 8));
  for (std::int64_t count = 2; count <= kCoarsest && history.size() > enough; count *= 2) {
    const std::size_t end = history.size() - std::min(newest, history.size());
    add_up_neighbours(history, end, std::min(end, first_of_newest_tests(history, kept_tests)), count);
  }
}

CostSums latest_tests(const std::vector<HistoryEntry>& history, std::int64_t tests) {
  CostSums sum;
  for (auto entry = history.rbegin(); entry != history.rend() && tests > 0; ++entry) {
    if (entry->test_batch < 0) continue;
    pool(sum, entry->costs);
    tests -= entry->count;
  }
  return sum;
}

}  // namespace convnet
