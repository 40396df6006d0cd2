// The order of batches in training, and the progress by which learning rates go.
#pragma once

#include <cstdint>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/config/schedule.h"

namespace convnet {

/// Returns the batch that is trained after `position`, or the place in it from which an unfinished batch goes
/// on. A range that no longer holds the batch starts at its first one.
Position batch_after(const Position& position, const BatchRange& range);

/// Returns the progress of a run of `epochs` epochs while batch `work` is trained, after `minibatches`
/// minibatches.
TrainingProgress progress_in(const Position& work, const BatchRange& range, int epochs,
                             std::uint64_t minibatches);

}  // namespace convnet
