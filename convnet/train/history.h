// A run's history: every recent batch and test, and means of several earlier ones.
#pragma once

#include <cstdint>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"

namespace convnet {

/// Entries that a history has at most, where a cost has few values; costs of many values get fewer, so that
/// the history stays a small part of a checkpoint.
constexpr std::size_t kMostHistory = 20'000;

/// Appends to a history. One that grows too long is thinned: in its older half, neighbours are added up,
/// batches with batches and tests with tests, the finest ones first, so that points of equal age stand for
/// about equally many. Nothing is lost but detail: an entry is the sum of its `count`. The newest `tests`
/// tests stay as they are. What becomes of a history depends on what is appended alone, so a resumed run has
/// the same.
void add_to_history(std::vector<HistoryEntry>& history, HistoryEntry entry, std::int64_t tests);

/// Returns the sum of the last `tests` tests, or of as many as there are.
CostSums latest_tests(const std::vector<HistoryEntry>& history, std::int64_t tests);

}  // namespace convnet
