// Tests what a run says about waiting for data.
#include "convnet/train/data_wait.h"

#include "tests/catch.h"

using namespace convnet;

TEST_CASE("the line of a batch says how long its steps waited for data, unless that is little") {
  CHECK(waiting_text(0, 0).empty());
  CHECK(waiting_text(0, 10).empty());
  CHECK(waiting_text(4, 100).empty());
  CHECK(waiting_text(0.4, 0.5).empty());
  CHECK(waiting_text(3.5, 10) == "35 % waiting for data");
  CHECK(waiting_text(5, 100) == "5 % waiting for data");
}

TEST_CASE("a run says once that it waits for data") {
  DataWait wait;
  CHECK(wait.take_advice() == 0);
  wait.note_batch(1.5, 3);  // too short to tell
  CHECK(wait.take_advice() == 0);
  wait.note_batch(1.5, 7);
  CHECK(wait.take_advice() == 30);
  wait.note_batch(50, 60);
  CHECK(wait.take_advice() == 0);
}

TEST_CASE("a run that waits for a few percent of the time says nothing") {
  DataWait wait;
  wait.note_batch(9, 100);
  CHECK(wait.take_advice() == 0);
}
