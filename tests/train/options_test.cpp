// The options of training: declared defaults, and options that belong together.
#include "convnet/train/options.h"

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
        "--mini expects an integer between 1 and 16777216, not '0'\n"
        "--logreg-name is for --test-out, --confusion and --test-only");
  CHECK(parse_train_options({{"logreg-name", "cost"}, {"test-out", "here"}}).tests.test_option() ==
        "--test-out");
}

TEST_CASE("gradients are checked on one view of each image") {
  CHECK(parse_train_options({{"multiview-test", "1"}}).data.multiview_test);
  CHECK_FALSE(parse_train_options({{"multiview-test", "1"}, {"check-grads", "1"}}).data.multiview_test);
}

TEST_CASE("times are those of Slurm") {
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
  for (const char* wrong : {"", "0", "-5", "soon", "1h", "1:", ":30", "1:2:3:4", "0:00", "1-", "-1:00",
                            "1:-2", "1-2-3", "1.5:00", "nan", "1e300"}) {
    INFO(wrong);
    double value = 0;
    CHECK(parse_time(wrong, value) == std::string("expects a time above 0: minutes, MM:SS, HH:MM:SS, D-HH, "
                                                  "D-HH:MM, D-HH:MM:SS or UNLIMITED, not '") +
                                          wrong + "'");
  }
}
