// The text of a progress line in terminals of all widths.
#include "convnet/base/progress_line.h"

#include "convnet/base/utf8.h"
#include "tests/catch.h"

using namespace convnet;

TEST_CASE("a progress line has all of its parts where they fit, short ones if need be") {
  const ProgressTexts usual = {"1.2 (25.00%)... logprob: -log p 2.3021, top-1 error 90.00 %",
                               {" 1:40 left", ", 10:05 of the run", ", 1234 images/s"}};
  const ProgressTexts narrow = {"1.2 (25%) logprob 2.302, 90.0 %",
                                {" 1:40 left", ", run 10:05", ", 1234 img/s"}};
  const auto text = [&](std::size_t columns) { return progress_text(usual, narrow, 0.5, columns); };
  CHECK(text(200) == usual.before_bar + " [##########..........] 1:40 left, 10:05 of the run, 1234 images/s");
  CHECK(text(115) == usual.before_bar + " [#####.....] 1:40 left, 10:05 of the run, 1234 images/s");
  CHECK(text(114) == narrow.before_bar + " [##########..........] 1:40 left, run 10:05, 1234 img/s");
  CHECK(text(79) == narrow.before_bar + " [######......] 1:40 left, run 10:05, 1234 img/s");
  CHECK(text(72) == narrow.before_bar + " [########.........] 1:40 left, run 10:05");
  CHECK(text(60) == narrow.before_bar + " [########........] 1:40 left");
  CHECK(text(45) == narrow.before_bar + " 1:40 left");
  CHECK(text(40) == narrow.before_bar);
  CHECK(text(20) == narrow.before_bar.substr(0, 20));
  for (std::size_t columns = 0; columns < 200; ++columns) CHECK(character_count(text(columns)) <= columns);
  // Characters are cut whole.
  const ProgressTexts umlauts = {"\xC3\xA4\xC3\xA4\xC3\xA4", {}};
  CHECK(progress_text(umlauts, umlauts, 0, 2) == "\xC3\xA4\xC3\xA4");
}
