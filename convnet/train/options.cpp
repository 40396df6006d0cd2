#include "convnet/train/options.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/progress_line.h"
#include "convnet/config/text.h"

namespace convnet {

const OptionTable<CheckpointOptions>& checkpoint_options() {
  OptionSpec keep_best = option(
      "keep-best", &CheckpointOptions::keep_best,
      {.fallback = "",
       .unit = "layer",
       .doc = "cost layer whose best test keeps its checkpoint, as best.safetensors beside the newest "
              "ones: LAYER or LAYER.error by its error, LAYER.cost by its cost; empty: none, which is the "
              "default unless a net is given by its name alone"});
  keep_best.may_be_empty = true;
  static const OptionTable<CheckpointOptions> table({
      of_output(option("save-path", &CheckpointOptions::save_path,
                       {.fallback = "",
                        .unit = "folder",
                        .doc = "parent folder for a new ConvNet__YYYY-MM-DD_HH.MM.SS folder"})),
      of_output(option("save-file", &CheckpointOptions::save_file,
                       {.fallback = "",
                        .unit = "folder",
                        .doc = "the checkpoint folder itself; resumed from if it holds checkpoints"})),
      unsaved_option(
          "load-file", &CheckpointOptions::load_file,
          {.fallback = "",
           .unit = "file",
           .doc = "checkpoint folder (its newest) or file to resume from or test; training from an older "
                  "one moves the later ones aside"}),
      unsaved_option("init-from", &CheckpointOptions::init_from,
                     {.fallback = "",
                      .unit = "file",
                      .doc = "checkpoint, or file of another program (.safetensors, .pth, .pt or .onnx) "
                             "with PyTorch's names, whose weights of equal name and shape a new run starts "
                             "from (fine-tuning)"}),
      option("keep", &CheckpointOptions::keep,
             {.fallback = "2", .min = 1, .max = 1e9, .doc = "newest checkpoints to keep"}),
      option("save-freq", &CheckpointOptions::save_freq,
             {.fallback = "0",
              .min = 0,
              .max = 1e9,
              .unit = "batches",
              .doc = "batches between checkpoints that are saved besides those after tests, whatever "
                     "--max-test-err says; 0: only after tests"}),
      std::move(keep_best),
      of_original(option(
          "max-test-err", &CheckpointOptions::max_test_err,
          {.fallback = "0",
           .min = 0,
           .max = 1e9,
           .doc =
               "save a checkpoint after a test only if the first cost's error is at most this; 0: always"})),
      of_original(unsaved_option(
          "force-save", &CheckpointOptions::force_save,
          {.fallback = "0",
           .doc =
               "save a checkpoint when training ends, even if the last test error is above --max-test-err"})),
  });
  return table;
}

OptionTable<CheckpointOptions> read_checkpoint_option() {
  return OptionTable<CheckpointOptions>({unsaved_option(
      "load-file", &CheckpointOptions::load_file,
      {.fallback = "", .unit = "file", .doc = "checkpoint folder (its newest) or file of a trained net"})});
}

const OptionTable<TestOptions>& test_options() {
  static const OptionTable<TestOptions> table({
      unsaved_option("test-only", &TestOptions::test_only,
                     {.fallback = "0", .doc = "test the loaded model on the whole test range and quit"}),
      unsaved_option("json", &TestOptions::json,
                     {.fallback = "0",
                      .doc = "with --test-only or --find-rate: print one JSON object with the results and "
                             "nothing else"}),
      of_original(unsaved_option(
          "write-features", &TestOptions::write_features,
          {.fallback = "",
           .unit = "layer",
           .doc = "layer whose outputs on the test range to write to --feature-path, a data_batch_N.npy and "
                  "labels_N.npy for each batch; then quit, like --test-only"})),
      of_original(of_output(unsaved_option(
          "feature-path", &TestOptions::feature_path,
          {.fallback = "", .unit = "folder", .doc = "folder for the files of --write-features"}))),
      of_output(unsaved_option(
          "test-out", &TestOptions::test_out,
          {.fallback = "",
           .unit = "folder",
           .doc = "folder for the class probabilities on the test range, a probabilities_N.npy and "
                  "labels_N.npy for each batch; then quit, like --test-only"})),
      of_original(unsaved_option("logreg-name", &TestOptions::logreg_name,
                                 {.fallback = "",
                                  .unit = "layer",
                                  .doc = "cost.logreg layer of --test-out and --confusion, which need it "
                                         "where there are several, and the "
                                         "only one whose errors by class --test-only prints"})),
      unsaved_option(
          "tag-threshold", &TestOptions::tag_threshold,
          {.fallback = "0.5",
           .min = 0,
           .max = 1,
           .doc = "probability from which on --test-only takes an image to have a tag, for precision, "
                  "recall and F1 below a cost.bce or cost.dce"}),
      of_output(unsaved_option(
          "confusion", &TestOptions::confusion,
          {.fallback = "",
           .unit = "file",
           .doc = "CSV file for the confusion matrix on the test range, true classes by predictions; then "
                  "quit, like --test-only"})),
  });
  return table;
}

const OptionTable<TrainOptions>& train_options() {
  static const OptionTable<TrainOptions> table = [] {
    std::vector<OptionSpec> own = {
        option("epochs", &TrainOptions::epochs,
               {.fallback = "50000",
                .min = 0,
                .max = 1e9,
                .doc = "passes over the training range; by default 90 for folders and tars of images and for "
                       "a net that is given by its name alone"}),
        option(
            "test-freq", &TrainOptions::test_freq,
            {.fallback = "57",
             .min = 0,
             .max = 1e9,
             .unit = "batches",
             .doc = "batches between tests with a checkpoint; 0: one test at the end of each epoch, which is "
                    "the default with --patience, --plateau or --keep-best, and for folders and tars of "
                    "images"}),
        option(
            "patience", &TrainOptions::patience,
            {.fallback = "0",
             .min = 0,
             .max = 1e9,
             .unit = "tests",
             .doc = "training ends after so many tests without a better one, by the cost of --keep-best or "
                    "the error of the first cost; 0: after --epochs"}),
        parsed_option("plateau", &TrainOptions::plateau, parse_plateau,
                      {.fallback = "0",
                       .unit = "factor,tests[,least]",
                       .doc = "all learning rates are multiplied by the factor after so many tests without a "
                              "better one, as "
                              "--patience counts them, and again after as many more; the product of the "
                              "factors stays at or "
                              "above least, like 0.1,5,0.001; 0: never"}),
        option("rate-factor", &TrainOptions::rate_factor,
               {.fallback = "1",
                .min = 1e-9,
                .max = 1e9,
                .unit = "factor",
                .doc = "multiplies all learning rates of the parameter file; --find-rate suggests one"}),
        unsaved_option("find-rate", &TrainOptions::find_rate,
                       {.fallback = "0",
                        .doc = "look for learning rates instead of training: train at ever higher ones until "
                               "the cost explodes, print its curve and a --rate-factor, and save nothing"}),
        parsed_option("time-limit", &TrainOptions::time_limit,
                      [](const std::string& text, const ParamSpec&, double& seconds) {
                        return parse_time(text, seconds);
                      },
                      {.fallback = "",
                       .unit = "time",
                       .doc = "stop in time to save a checkpoint and end, with exit code 0, before so much "
                              "time has passed since the program began; minutes; 10s, 45m or 1h30m; or as "
                              "Slurm writes times: MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS, UNLIMITED"}),
        of_output(option(
            "tensorboard", &TrainOptions::tensorboard,
            {.fallback = "",
             .unit = "folder",
             .doc = "folder for TensorBoard's event files: costs and rates after each batch, first filters "
                    "after each test; empty: none from now on"})),
        of_original(unsaved_option(
            "check-grads", &TrainOptions::check_grads,
            {.fallback = "0", .doc = "compare every weight matrix's gradient with numeric ones and quit"})),
    };
    for (OptionSpec& spec : own) {
      spec.may_be_empty = spec.param.key == "tensorboard";
      if (spec.param.key == "time-limit") spec.saved = false;
    }
    return OptionTable<TrainOptions>()
        .add(&TrainOptions::files, net_file_options())
        .add(&TrainOptions::step, step_options_with_auto())
        .add(&TrainOptions::data, data_options())
        .add(&TrainOptions::checkpoints, checkpoint_options())
        .add(std::move(own))
        .add(&TrainOptions::tests, test_options())
        .add(&TrainOptions::devices, device_options())
        .add(&TrainOptions::report, report_options().only({"verbose", "profile"}));
  }();
  return table;
}

namespace {

/// Parses "1h30m" or "10s": numbers with the units d, h, m and s, each at most once and in this order.
std::optional<double> time_with_units(const std::string& text) {
  constexpr std::array<std::pair<char, double>, 4> kUnits = {
      {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}}};
  double seconds = 0;
  std::size_t at = 0;
  for (const auto& [unit, length] : kUnits) {
    const std::size_t end = std::min(text.find_first_not_of("0123456789.", at), text.size());
    if (end == text.size() || lower(text[end]) != unit) continue;
    const auto number = to_number<double>(text.substr(at, end - at));
    if (!number) return std::nullopt;
    seconds += length * *number;
    at = end + 1;
  }
  if (at == 0 || at < text.size()) return std::nullopt;
  return seconds;
}

}  // namespace

std::string parse_time(const std::string& text, double& seconds) {
  constexpr double kLongest = 60e9;
  const auto wrong = [&] {
    return "expects a time above 0: minutes, like 90; with units, like 10s, 45m or 1h30m; or MM:SS, "
           "HH:MM:SS, "
           "D-HH, D-HH:MM, D-HH:MM:SS or UNLIMITED, not '" +
           text + "'";
  };
  if (const std::optional<double> given = time_with_units(text)) {
    seconds = *given;
    return seconds > 0 && seconds <= kLongest ? "" : wrong();
  }
  const std::size_t dash = text.find('-', 1);
  std::string clock = text;
  seconds = 0;
  if (lower(text) == "unlimited" || lower(text) == "infinite") return "";
  if (dash != std::string::npos) {
    const auto days = to_number<int>(text.substr(0, dash));
    if (!days || *days < 0) return wrong();
    seconds = 86400.0 * *days;
    clock = text.substr(dash + 1);
  }
  const auto parts = 1 + std::count(clock.begin(), clock.end(), ':');
  if (dash == std::string::npos && parts == 1) {
    const auto minutes = to_number<double>(text);
    if (minutes) seconds = 60 * *minutes;
    return minutes && *minutes > 0 && 60 * *minutes <= kLongest ? "" : wrong();
  }
  if (parts > 3) return wrong();
  // With days, the first number is hours, else the last one is seconds.
  double unit = dash != std::string::npos || parts == 3 ? 3600 : 60;
  for (std::size_t at = 0; at <= clock.size(); unit /= 60) {
    const std::size_t end = std::min(clock.find(':', at), clock.size());
    const auto number = to_number<int>(clock.substr(at, end - at));
    if (!number || *number < 0) return wrong();
    seconds += unit * *number;
    at = end + 1;
  }
  return seconds > 0 ? "" : wrong();
}

std::string TrainOptions::time_limit_text() const { return clock_text(std::max(1.0, time_limit)); }

std::string TrainOptions::instead() const {
  if (check_grads) return "--check-grads";
  return find_rate ? "--find-rate" : tests.test_option();
}

std::string TestOptions::test_option() const {
  if (test_only) return "--test-only";
  if (!write_features.empty()) return "--write-features";
  if (!test_out.empty()) return "--test-out";
  return confusion.empty() ? "" : "--confusion";
}

TrainOptions parse_train_options(const OptionTexts& texts) {
  TrainOptions options;
  std::vector<std::string> wrong = assign_options(train_options().specs(), texts, &options);
  const TestOptions& tests = options.tests;
  if (tests.write_features.empty() != tests.feature_path.empty())
    wrong.emplace_back("--write-features LAYER and --feature-path FOLDER need each other");
  if (tests.tag_threshold != TestOptions().tag_threshold && !tests.only_tests())
    wrong.emplace_back("--tag-threshold is for --test-only");
  if (!tests.logreg_name.empty() && !tests.only_tests())
    // cuda-convnet 1 asks for both options; here all costs see the views.
    wrong.emplace_back(
        std::string("--logreg-name is for --test-out, --confusion and --test-only") +
        (options.data.multiview_test ? "; leave it out: --multiview-test 1 needs no name of a cost" : ""));
  if (options.plateau.on() && options.patience > 0 && options.patience <= options.plateau.tests)
    wrong.push_back("--patience " + std::to_string(options.patience) + " ends training before --plateau " +
                    plateau_text(options.plateau) + " lowers the learning rates; it should be above " +
                    std::to_string(options.plateau.tests));
  if (tests.json && !tests.test_only && !options.find_rate)
    wrong.emplace_back(
        "--json prints the results of --test-only 1 or --find-rate 1; other runs of train print lines");
  if (!wrong.empty()) throw InputError(join(wrong, "\n"));
  // These use the images of training, of which each has one view.
  if (options.check_grads || options.find_rate) options.data.multiview_test = false;
  return options;
}

}  // namespace convnet
