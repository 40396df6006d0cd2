// The batch that comes next, and the progress by which learning rates go.
#include "convnet/train/batch_order.h"

#include "tests/catch.h"

namespace convnet {

TEST_CASE("after a finished batch comes the next one, after a part of one the rest of it") {
  const BatchRange range{3, 5};
  CHECK(batch_after({0, 0}, range) == Position{1, 3});
  CHECK(batch_after({1, 3}, range) == Position{1, 4});
  CHECK(batch_after({1, 5}, range) == Position{2, 3});
  const Position part{2, 4, 7, 70};
  CHECK(batch_after(part, range) == part);
  CHECK(batch_after(part, range).images == 70);
  // A range that does not hold the batch begins anew, and never goes back.
  CHECK(batch_after({2, 1}, range) == Position{2, 3});
  CHECK(batch_after({2, 6}, range) == Position{3, 3});
  CHECK(batch_after({2, 6, 7, 70}, range) == Position{3, 3});
}

TEST_CASE("the progress in a batch counts the batches before it") {
  const BatchRange range{3, 5};
  const TrainingProgress first = progress_in({1, 3}, range, 2, 0),
                         later = progress_in({2, 4, 7, 70}, range, 2, 47);
  CHECK(first.share == 0);
  CHECK(first.epochs == 0);
  CHECK(first.minibatches == 0);
  CHECK(later.share == Approx(4.0 / 6));
  CHECK(later.epochs == Approx(4.0 / 3));
  CHECK(later.batch_epochs == Approx(1.0 / 3));
  CHECK(later.minibatches == 47);
  CHECK(progress_in({4, 3}, range, 2, 0).share == 1);
}

}  // namespace convnet
