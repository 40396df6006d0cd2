// The options of training: declared defaults, and options that belong together.
#include "convnet/train/options.h"

#include <set>

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

TEST_CASE("the defaults that the help of training shows are those of the options") {
  OptionTexts shown;
  for (const OptionSpec& spec : train_options().specs()) {
    const auto& fallback = spec.param.fallback;
    if (fallback && !fallback->empty()) shown[spec.param.key] = *fallback;
  }
  CHECK(shown.at("mini") == "128");
  CHECK(parse_train_options(shown) == parse_train_options({}));
}

TEST_CASE("options that belong together are checked together") {
  const auto refusal = [](const OptionTexts& texts) {
    return message_of<InputError>([&] { parse_train_options(texts); });
  };
  const std::string both = "--write-features LAYER and --feature-path FOLDER need each other";
  CHECK(refusal({{"write-features", "fc"}}) == both);
  CHECK(refusal({{"feature-path", "here"}}) == both);
  CHECK(refusal({{"mini", "0"}, {"logreg-name", "cost"}}) ==
        "--mini expects auto, or an integer between 1 and 16777216, not '0'\n"
        "--logreg-name is for --test-out, --confusion and --test-only");
  CHECK(refusal({{"multiview-test", "1"}, {"logreg-name", "cost"}}) ==
        "--logreg-name is for --test-out, --confusion and --test-only; leave it out: --multiview-test 1 "
        "needs no "
        "name of a cost");
  CHECK(parse_train_options({{"logreg-name", "cost"}, {"test-out", "here"}}).tests.test_option() ==
        "--test-out");
}

TEST_CASE("option --plateau is a factor, a number of tests and perhaps a least product") {
  const auto plateau = [](const std::string& text) {
    return parse_train_options({{"plateau", text}}).plateau;
  };
  CHECK(plateau("0.1,5") == PlateauOptions{0.1, 5, 0});
  CHECK(plateau("0.5,1,1e-3") == PlateauOptions{0.5, 1, 1e-3});
  CHECK_FALSE(plateau("0").on());
  CHECK(plateau_text({0.1, 5, 0}) == "0.1,5");
  CHECK(plateau_text({0.5, 1, 0.001}) == "0.5,1,0.001");
  const auto refusal = [](const OptionTexts& texts) {
    return message_of<InputError>([&] { parse_train_options(texts); });
  };
  const std::string expects =
      "--plateau expects FACTOR,TESTS or FACTOR,TESTS,LEAST, like 0.1,5, or 0 for none, not '";
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"0.1", ""},
           {"0.1,5,0.1,2", ""},
           {"1,5", ": FACTOR is above 0 and below 1"},
           {"0,5", ": FACTOR is above 0 and below 1"},
           {"1e-31,5", ": FACTOR is above 0 and below 1"},
           {"-0.1,5", ": FACTOR is above 0 and below 1"},
           {"nan,5", ": FACTOR is above 0 and below 1"},
           {"x,5", ": FACTOR is above 0 and below 1"},
           {"0.1,0", ": TESTS is a whole number from 1 on"},
           {"0.1,2.5", ": TESTS is a whole number from 1 on"},
           {"0.1,99999999999", ": TESTS is a whole number from 1 on"},
           {"0.1,5,1", ": LEAST, the least product of the factors, is from 0 on and below 1"},
           {"0.1,5,-1", ": LEAST, the least product of the factors, is from 0 on and below 1"},
           {"0.1,5,inf", ": LEAST, the least product of the factors, is from 0 on and below 1"}})
    CHECK(refusal({{"plateau", text}}) == expects + text + "'" + why);
  CHECK(refusal({{"plateau", "0.1,5"}, {"patience", "5"}}) ==
        "--patience 5 ends training before --plateau 0.1,5 lowers the learning rates; it should be above 5");
  CHECK(parse_train_options({{"plateau", "0.1,5"}, {"patience", "6"}}).patience == 6);
}

TEST_CASE("rates drop after tests without a better one, and stop at the least product") {
  const PlateauOptions options{0.1, 2, 0.005};
  Plateau plateau;
  CHECK_FALSE(note_plateau(plateau, options, true, {1, 1}));
  CHECK_FALSE(note_plateau(plateau, options, false, {1, 2}));
  CHECK_FALSE(note_plateau(plateau, options, true, {2, 1}));
  CHECK_FALSE(note_plateau(plateau, options, false, {2, 2}));
  CHECK(note_plateau(plateau, options, false, {3, 1}));
  CHECK(plateau.factor() == 0.1);
  for (int epoch = 4; epoch < 12; ++epoch) note_plateau(plateau, options, false, {epoch, 1});
  CHECK(plateau.changes == std::vector<RateChange>{{3, 1, 0.1}, {5, 1, 0.1 * 0.1}, {7, 1, 0.005}});
  end_plateau(plateau, {12, 1});
  CHECK(plateau.factor() == 1);
  CHECK(plateau.changes.back() == RateChange{12, 1, 1});
  end_plateau(plateau, {13, 1});
  CHECK(plateau.changes.size() == 4);
  Plateau never;
  for (int epoch = 1; epoch < 9; ++epoch) CHECK_FALSE(note_plateau(never, {}, false, {epoch, 1}));
  CHECK(never == Plateau{});
}

TEST_CASE("gradients are checked on one view of each image") {
  CHECK(parse_train_options({{"multiview-test", "1"}}).data.multiview_test);
  CHECK_FALSE(parse_train_options({{"multiview-test", "1"}, {"check-grads", "1"}}).data.multiview_test);
}

TEST_CASE("times have units or are those of Slurm") {
  const auto seconds = [](const std::string& text) {
    double value = 0;
    CHECK(parse_time(text, value).empty());
    return value;
  };
  CHECK(seconds("UNLIMITED") == 0);
  CHECK(seconds("90") == 5400);
  CHECK(seconds("0.5") == 30);
  CHECK(seconds("2:03") == 123);
  CHECK(seconds("1:02:03") == 3723);
  CHECK(seconds("48:00:00") == 172800);
  CHECK(seconds("2-0") == 172800);
  CHECK(seconds("1-02") == 93600);
  CHECK(seconds("1-02:03") == 93780);
  CHECK(seconds("1-02:03:04") == 93784);
  CHECK(seconds("10s") == 10);
  CHECK(seconds("1h") == 3600);
  CHECK(seconds("1h30m") == 5400);
  CHECK(seconds("1.5H") == 5400);
  CHECK(seconds("2d4h1m5s") == 187265);
  for (const char* wrong :
       {"",      "0",  "-5",  "soon",    "h",    "0s", "1h30",  "1s1h", "1h1h",  "1x",     "-1h", "1.2.3h",
        "1h 5m", "1:", ":30", "1:2:3:4", "0:00", "1-", "-1:00", "1:-2", "1-2-3", "1.5:00", "nan", "1e300"}) {
    INFO(wrong);
    double value = 0;
    CHECK(
        parse_time(wrong, value) ==
        std::string("expects a time above 0: minutes, like 90; with units, like 10s, 45m or 1h30m; or MM:SS, "
                    "HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS or UNLIMITED, not '") +
            wrong + "'");
  }
}

TEST_CASE("checkpoints store all options but those of one invocation") {
  std::set<std::string> unsaved;
  for (const OptionSpec& spec : train_options().specs())
    if (!spec.saved) unsaved.insert(spec.param.key);
  // Where a run starts and how it ends, what is tested instead, and what is reported. Changes of a net are in
  // the checkpoint's definition, and the machine that a search was for in its placement. How messages travel
  // changes nothing.
  CHECK(unsaved == std::set<std::string>{
                       "load-file",       "init-from",   "time-limit",    "check-grads",    "find-rate",
                       "force-save",      "test-only",   "json",          "write-features", "feature-path",
                       "test-out",        "logreg-name", "tag-threshold", "confusion",      "conv-to-local",
                       "unshare-weights", "model",       "shared-memory", "verbose",        "profile"});
}
