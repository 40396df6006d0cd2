// Checks that all processes of a run have the same options, files, data and plans.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "convnet/net/net.h"
#include "convnet/train/load_run.h"

namespace convnet {

/// Names and values that must be equal in all processes of a run.
using RunFacts = std::vector<std::pair<std::string, std::string>>;

/// Returns the facts of the command line: the options that are given, but for those that may be others in
/// each process.
RunFacts facts_of(const OptionTexts& given);
/// Returns the facts of a run that has no net yet: the program, options, files, checkpoint and data set.
/// Facts of the data set are, of both ranges, the numbers of images, the first and last ones, and
/// Provider::add_labels(), and the statistics over all pixels of the training range.
RunFacts facts_of(const LoadedRun& run);
/// Returns the hash of each plan, under its name.
RunFacts facts_of(const std::vector<std::pair<std::string, const Plan*>>& plans);

/// Throws InputError, in all processes, naming the first one with a fact that differs from rank 0's.
void check_same(Processes& processes, const RunFacts& facts);

}  // namespace convnet
