// How much of a time limit a run keeps back.
#include "convnet/train/pace.h"

#include "tests/catch.h"

using namespace convnet;

namespace {

// A limit of 100 seconds keeps 5 back, whatever happens; everything else is kept back with a quarter more.
constexpr double kLimit = 100, kSpare = 5, kSafety = 1.25;

}  // namespace

TEST_CASE("a run keeps back what its minibatches take, not what the first one took to tune and allocate") {
  Pace pace(kLimit, 0);
  CHECK_FALSE(pace.knows(Phase::train));
  CHECK(pace.needed(Phase::train, 1) == Approx(kSpare));
  pace.note_minibatch(Phase::train, 12);
  CHECK(pace.knows(Phase::train));
  CHECK(pace.needed(Phase::train, 1) == Approx(kSpare + kSafety * 12));
  pace.note_minibatch(Phase::train, 3);
  CHECK(pace.needed(Phase::train, 1) == Approx(kSpare + kSafety * 3));
  CHECK(pace.needed(Phase::train, 2) == Approx(kSpare + kSafety * 6));
  // A slow one counts for some time.
  pace.note_minibatch(Phase::train, 8);
  pace.note_minibatch(Phase::train, 3);
  CHECK(pace.needed(Phase::train, 1) > kSpare + kSafety * 5);
  for (int i = 0; i < 10; ++i) pace.note_minibatch(Phase::train, 3);
  CHECK(pace.needed(Phase::train, 1) == Approx(kSpare + kSafety * 3));
}

TEST_CASE("tests have a pace of their own, and before the first one that of training") {
  Pace pace(kLimit, 0);
  pace.note_minibatch(Phase::train, 4);
  CHECK(pace.needed(Phase::test, 1) == Approx(kSpare + kSafety * 4));
  pace.note_minibatch(Phase::test, 9);
  CHECK(pace.needed(Phase::test, 1) == Approx(kSpare + kSafety * 9));
  CHECK(pace.needed(Phase::train, 1) == Approx(kSpare + kSafety * 4));
}

TEST_CASE("the time of a checkpoint is guessed until one was saved, and then that of the slowest") {
  Pace pace(kLimit, 20);
  CHECK(pace.needed(Phase::train, 1) == Approx(kSpare + kSafety * 20));
  pace.note_save(2);
  CHECK(pace.needed(Phase::train, 1) == Approx(kSpare + kSafety * 2));
  pace.note_save(6);
  pace.note_save(2);
  CHECK(pace.needed(Phase::train, 1) == Approx(kSpare + kSafety * 6));
}

TEST_CASE("what a long limit keeps back besides has a bound") {
  CHECK(Pace(36000, 0).needed(Phase::train, 1) == Approx(30));
  CHECK(Pace(0, 0).needed(Phase::train, 1) == 0);
}
