#include "convnet/train/batch_order.h"

namespace convnet {

Position batch_after(const Position& position, const BatchRange& range) {
  if (position.epoch == 0) return {1, range.first};
  // The next position must be later than this one, because checkpoints are found and ordered by it.
  if (position.batch < range.first) return {position.epoch, range.first};
  if (position.batch > range.last) return {position.epoch + 1, range.first};
  if (position.minibatches > 0) return position;
  if (position.batch < range.last) return {position.epoch, position.batch + 1};
  return {position.epoch + 1, range.first};
}

TrainingProgress progress_in(const Position& work, const BatchRange& range, int epochs,
                             std::uint64_t minibatches) {
  const double batches = range.count();
  const double finished = (work.epoch - 1.0) * batches + work.batch - range.first;
  TrainingProgress progress = TrainingProgress::after(finished, batches, epochs);
  progress.minibatches = static_cast<double>(minibatches);
  return progress;
}

}  // namespace convnet
