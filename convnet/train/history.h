// The history of a run: its recent batches and tests one by one, and sums of several earlier ones.
#pragma once

#include <cstdint>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"

namespace convnet {

/// The most entries of a history whose costs have few values. If costs have many values, there are fewer
/// entries, so that the history stays a small part of a checkpoint.
constexpr std::size_t kMostHistory = 20'000;

/// Appends an entry to a history. A history that grows too long is thinned: in its older half, neighbours are
/// added up, batches with batches and tests with tests, those with the smallest `count` first, so that
/// entries of about the same age have about the same `count`. The newest `tests` tests are not changed. The
/// result depends only on the entries, so a resumed run has the same history.
void add_to_history(std::vector<HistoryEntry>& history, HistoryEntry entry, std::int64_t tests);

/// Returns the sum of the last `tests` tests, or of as many as there are.
CostSums latest_tests(const std::vector<HistoryEntry>& history, std::int64_t tests);

}  // namespace convnet
