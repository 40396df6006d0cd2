// The order of batches in training, and the progress on which learning rates depend.
#pragma once

#include <cstdint>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/config/schedule.h"

namespace convnet {

/// Returns the batch to train after `position`, or `position` itself if its batch is unfinished. If the range
/// does not hold that batch, training goes on with the first batch of the range: in the same epoch if that is
/// a later batch, else in the next epoch.
Position batch_after(const Position& position, const BatchRange& range);

/// Returns the progress of a run of `epochs` epochs during batch `work`, after `minibatches` minibatches of
/// training.
TrainingProgress progress_in(const Position& work, const BatchRange& range, int epochs,
                             std::uint64_t minibatches);

}  // namespace convnet
