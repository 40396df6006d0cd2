// The data set of a run, as the options name it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "convnet/net/options.h"
#include "providers/provider.h"

namespace convnet {

/// Returns how the images of the data set are prepared.
ImageOptions image_options(const DataOptions& options);
/// Opens the data set. `seed` decides the random choices of its provider.
std::unique_ptr<Provider> open_provider(const DataOptions& options, std::uint64_t seed);

/// Sets the ranges of a run to which `texts` give neither --train-range nor --test-range: all batches that
/// there are, and where the data set has none for tests, a tenth of them. Returns a sentence about it, or ""
/// for ranges that are given. Throws InputError where nobody can tell.
std::string choose_ranges(DataOptions& options, const OptionTexts& texts);

}  // namespace convnet
