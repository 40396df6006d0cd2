// Checks what the program prints, and which files it leaves.
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"
#include "tests/train/event_reader.h"

namespace convnet {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

/// Each line of `text` is matched by the pattern of its place.
void check_lines(const std::string& text, const std::vector<std::string>& patterns) {
  const std::vector<std::string> lines = lines_of(text);
  INFO(text);
  REQUIRE(lines.size() == patterns.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    INFO("line " << i + 1 << " is not like " << patterns[i]);
    CHECK(std::regex_match(lines[i], std::regex(patterns[i])));
  }
}

const std::string cost = R"(logprob:  \d+\.\d{6}, \d\.\d{6}, \d\.\d{6})";
const std::string seconds = R"( \(\d+\.\d{3} sec\))";
const std::string number = R"(\d\.\d{6}e[-+]\d\d)";
const std::string devices = R"(Devices: cpu:0, 1 thread\(s\); minibatches of \d+ images; no GPU: .+)";
const std::vector<std::string> test_block = {
    "======================Test output======================", cost + seconds,
    "----------------------Averages-------------------------", cost};
const std::vector<std::string> magnitudes = {
    R"(Layer 'conv1' weights\[0\]: )" + number + R"( \[)" + number + R"(\] \[)" + number + R"(\])",
    "Layer 'conv1' biases: " + number + R"( \[)" + number + R"(\])",
    R"(Layer 'fc10' weights\[0\]: )" + number + R"( \[)" + number + R"(\] \[)" + number + R"(\])",
    "Layer 'fc10' biases: " + number + R"( \[)" + number + R"(\])"};

TEST_CASE("training prints the lines that users grep for, and no progress line into a pipe") {
  const Workshop shop;
  const Outcome run =
      run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "2", "--test-freq", "3"});
  std::vector<std::string> expected = {devices};
  const auto batch = [&](const std::string& name, const std::string& percent) {
    expected.push_back(name + R"( \()" + percent + R"(%\)\.\.\. )" + cost + seconds);
  };
  const auto test = [&] {
    expected.insert(expected.end(), test_block.begin(), test_block.end());
    expected.push_back("Saved checkpoint to " + (shop / "out"));
  };
  batch("1.1", "0.00");
  batch("1.2", "25.00");
  batch("2.1", "50.00");
  test();
  batch("2.2", "75.00");
  test();  // the run ends with one
  const std::string folder = shop / "out", error = R"(logprob \(top-1 error\) \d+\.\d\d %, after batch 2\.)";
  expected.insert(expected.end(),
                  {R"(Trained to the end of epoch 2 in \d+\.\d s)", "  best test:   " + error + "[12]",
                   "  last test:   " + error + "2", "  checkpoint:  " + folder + "/2.2.safetensors",
                   "  test it:     convnet --load-file " + folder + " --test-only 1",
                   "  use it:      convnet predict " + folder + R"( ARRAY\.npy\.\.\.)",
                   "  export it:   convnet export " + folder + R"( net\.onnx)",
                   "  look at it:  convnet show " + folder + R"( --html page\.html)",
                   "  train on:    convnet --load-file " + folder + " --epochs 4"});
  check_lines(run.out, expected);
  CHECK(run.err.empty());
  CHECK(run.out.find('\r') == std::string::npos);
  CHECK(files_in(shop / "out") == std::vector<std::string>{"2.1.safetensors", "2.2.safetensors"});
}

TEST_CASE("the magnitudes of weights, which users grep for, are printed with --verbose") {
  const Workshop shop;
  const std::string out = run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "2",
                                                       "--test-freq", "2", "--verbose", "1"})
                              .out;
  const std::vector<std::string> lines = lines_of(out);
  INFO(out);
  for (const std::string& pattern : magnitudes)
    CHECK(std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
            return std::regex_match(line, std::regex(pattern));
          }) == 2);
}

TEST_CASE("option --test-only prints one line a batch, and the costs do not depend on --mini") {
  const Workshop shop;
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs=1"});
  const Outcome run = run_well({"--load-file", shop / "out", "--test-only", "--test-range", "3-4"});
  std::vector<std::string> expected = {
      "Loaded " + (shop / "out/1.2.safetensors") + ": epoch 1, batch 2 finished",
      devices,
      "The net is that of " + (shop / "out/1.2.safetensors"),
      "The learning parameters are those of " + (shop / "out/1.2.safetensors"),
      "======================Test output======================",
      R"(3\.\.\. )" + cost,
      R"(4\.\.\. )" + cost,
      R"(Errors by class \('logprob', worst first\):)"};
  expected.insert(expected.end(), 10, R"(  \d  [01]\.\d{4} +\d+ of +\d+(  \d+ taken for \d)?)");
  expected.emplace_back(R"(Means over 10 classes: precision 0\.\d{4}, recall 0\.\d{4}, F1 0\.\d{4})");
  expected.insert(expected.end(), {"----------------------Averages-------------------------", cost});
  check_lines(run.out, expected);
  CHECK(files_in(shop / "out") == std::vector<std::string>{"1.2.safetensors"});
  const Outcome other = run_well({"--load-file", shop / "out/1.2.safetensors", "--test-only", "1",
                                  "--test-range", "3-4", "--mini", "77"});
  CHECK(lines_of(other.out).back().substr(0, 18) == lines_of(run.out).back().substr(0, 18));
}

TEST_CASE("option --test-one 0 tests the whole range at once, --test-one 1 one batch after the other") {
  const Workshop shop;
  const Args range = {"--epochs", "2", "--test-freq", "2", "--test-range", "3-5"};
  const std::vector<std::string> all =
      lines_of(run_well(shop.dummy() + Args{"--save-file", shop / "all", "--test-one", "0"} + range).out);
  run_well(shop.dummy() + Args{"--save-file", shop / "one", "--test-one"} + range);
  const std::vector<std::string> tested =
      lines_of(run_well({"--load-file", shop / "all", "--test-only", "--test-range", "3-5"}).out);
  const auto title =
      std::find(all.rbegin(), all.rend(), "======================Test output======================");
  REQUIRE(title != all.rend());
  const std::string& costs = *(title - 1);
  CHECK(costs.substr(0, costs.find(" (")) == tested.back());
  // The second test of the other run was of batch 4.
  CHECK(read_file(shop / "one/2.2.safetensors").find("\\\"test_batch\\\":4") != std::string::npos);
  CHECK(read_file(shop / "all/2.2.safetensors").find("\\\"test_batch\\\":4") == std::string::npos);
}

TEST_CASE("option --epochs 0 --force-save saves the untrained net") {
  const Workshop shop;
  const Outcome run = run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "0",
                                                   "--test-freq", "9", "--force-save", "1"});
  check_lines(run.out,
              {devices, "Nothing to train: 0 of 0 epochs are done", "Saved checkpoint to " + (shop / "out")});
  CHECK(files_in(shop / "out") == std::vector<std::string>{"0.0.safetensors"});
  run_well(shop.dummy() + Args{"--save-file", shop / "none", "--epochs", "0", "--force-save=0"});
  CHECK_FALSE(std::filesystem::exists(shop / "none"));
}

TEST_CASE("option --max-test-err keeps checkpoints of worse tests from being saved") {
  const Workshop shop;
  const Args args = shop.dummy() + Args{"--epochs", "1", "--test-freq", "1", "--keep", "9"};
  const auto saved = [&](const std::string& name) { return std::filesystem::exists(shop / name); };
  // The images are random and have ten classes: about nine in ten are wrong.
  const Outcome none = run_well(args + Args{"--save-file", shop / "none", "--max-test-err", "0.5"});
  const std::vector<std::string> lines = lines_of(none.out);
  const auto refused = std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
    return std::regex_match(
        line,
        std::regex(R"(No checkpoint saved: the test error, [01]\.\d{6}, is above --max-test-err 0\.5)"));
  });
  CHECK(refused == 2);
  CHECK(none.out.find("Saved") == std::string::npos);
  CHECK_FALSE(saved("none/1.1.safetensors"));
  CHECK_FALSE(saved("none/1.2.safetensors"));
  run_well(args + Args{"--save-file", shop / "all", "--max-test-err", "1"});
  CHECK(saved("all/1.1.safetensors"));
  CHECK(saved("all/1.2.safetensors"));
  // --force-save saves all the same, and the option stays with the run.
  run_well(args + Args{"--save-file", shop / "end", "--max-test-err", "0.5", "--force-save", "1"});
  CHECK_FALSE(saved("end/1.1.safetensors"));
  CHECK(saved("end/1.2.safetensors"));
  const Outcome resumed = run_well({"--load-file", shop / "end", "--epochs", "2"});
  CHECK(resumed.out.find("No checkpoint saved") != std::string::npos);
  CHECK_FALSE(saved("end/2.2.safetensors"));
  // The checkpoints of --save-freq are saved all the same, also where a test comes after the same batch.
  const Outcome often =
      run_well(args + Args{"--save-file", shop / "often", "--max-test-err", "0.5", "--save-freq", "2"});
  CHECK(count(often.out, "No checkpoint saved") == 1);
  CHECK(files_in(shop / "often") == Args{"1.2.safetensors"});
  // So is the best test's, which others are compared with.
  run_well(args + Args{"--save-file", shop / "best", "--max-test-err", "0.5", "--keep-best", "logprob"});
  CHECK(saved("best/1.1.safetensors"));
  CHECK(saved("best/best.safetensors"));
  const Outcome wrong = run_program(args + Args{"--save-file", shop / "none", "--max-test-err", "-1"});
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find("--max-test-err expects a number between 0 and 1000000000, not '-1'") !=
        std::string::npos);
}

TEST_CASE("option --save-path makes a folder named by the time") {
  const Workshop shop;
  run_well(shop.dummy() + Args{"--save-path", shop / "runs/today", "--epochs", "1"});
  const std::vector<std::string> made = files_in(shop / "runs/today");
  REQUIRE(made.size() == 1);
  CHECK(std::regex_match(made[0], std::regex(R"(ConvNet__\d{4}-\d\d-\d\d_\d\d\.\d\d\.\d\d)")));
}

TEST_CASE("option --keep decides how many checkpoints stay, and the one just written always does") {
  const Workshop shop;
  run_well(shop.dummy() +
           Args{"--save-file", shop / "out", "--epochs", "3", "--test-freq", "1", "--keep", "3"});
  CHECK(files_in(shop / "out") ==
        std::vector<std::string>{"2.2.safetensors", "3.1.safetensors", "3.2.safetensors"});
  // An older one is saved again, with nothing to train: what is written is older than the others.
  run_well({"--load-file", shop / "out/2.2.safetensors", "--epochs", "2", "--keep", "1", "--force-save"});
  CHECK(files_in(shop / "out") == std::vector<std::string>{"2.2.safetensors", "3.2.safetensors"});
}

TEST_CASE("a --save-file that exists is resumed from, with the same command line") {
  const Workshop shop;
  const Args args = shop.dummy() + Args{"--save-file", shop / "out"};
  run_well(args + Args{"--epochs", "1"});
  const Outcome more = run_well(args + Args{"--epochs", "2"});
  CHECK(lines_of(more.out).at(0) ==
        "Loaded " + (shop / "out/1.2.safetensors") + ": epoch 1, batch 2 finished");
  CHECK(lines_of(more.out).at(2) == "The net is that of " + shop.definition_path());
  CHECK(lines_of(more.out).at(3) == "The learning parameters are those of " + shop.parameters_path());
  CHECK(lines_of(more.out).at(4) ==
        "Not given, and so as in cuda-convnet2: --test-freq 57 (batches between tests)");
  CHECK(lines_of(more.out).at(6).starts_with("2.1 (50.00%)... "));
  const Outcome again = run_well(args + Args{"--epochs", "2"});
  CHECK(lines_of(again.out).back() == "Nothing to train: 2 of 2 epochs are done");
}

TEST_CASE("a run without ranges uses all batches, and says so") {
  const Workshop shop;
  const Args net = shop.net() + Args{"--data-provider", "mnist", "--data-path", shop.write_data()};
  const Args args = net + Args{"--save-file", shop / "out", "--epochs", "1", "--test-freq", "1"};
  const Outcome run = run_well(args);
  CHECK(lines_of(run.out).at(1) == "Batches: training 1, tests 2");
  CHECK_THAT(lines_of(run.out).at(2), Catch::StartsWith("1.1 (0.00%)... "));
  // Those of a resumed run and of a test are chosen again.
  CHECK_THAT(run_well({"--load-file", shop / "out", "--epochs", "2"}).out,
             Catch::Contains("\nBatches: training 1"));
  CHECK_THAT(run_well({"--load-file", shop / "out", "--test-only", "1"}).out,
             Catch::Contains("Batches: training 1, tests 2") && Catch::Contains("\n2... logprob:"));
  run_well({"show", "--load-file", shop / "out", "--save-preds", shop / "preds.csv"});
  // What a new user may not expect is said. Commands are printed as a shell takes them.
  const Outcome defaults = run_well(net + Args{"--save-file", shop / "Ann's run", "--epochs", "1"});
  CHECK_THAT(defaults.out, Catch::Contains("--load-file '" + (shop / "Ann'\\''s run") + "' --test-only 1\n"));
  CHECK(lines_of(defaults.out).at(2) ==
        "Not given, and so as in cuda-convnet2: --test-freq 57 (batches between tests)");
  // One of the two is not enough.
  const Outcome half = run_program(args + Args{"--train-range", "1"});
  CHECK(half.code == 2);
  CHECK_THAT(half.err, Catch::Contains("missing: --test-range"));
}

TEST_CASE("the learning rates of --verbose are those of the batch's last minibatch") {
  const Workshop shop;
  const std::string steps = "eps$1=step[base=0.1;at=8,16;unit=minibatches]";
  shop.write(kDefinition, std::regex_replace(kParameters, std::regex("eps(.)=0.0."), steps));
  // Ten minibatches a batch.
  const Outcome run = run_well(shop.dummy() + Args{"--save-file", shop / "run", "--epochs", "1", "--mini",
                                                   "100", "--verbose", "1", "--tensorboard", shop / "board"});
  const std::size_t first = run.out.find("learning rate: 0.01\n"),
                    second = run.out.find("learning rate: 0.001\n");
  CHECK(first != std::string::npos);
  CHECK(second != std::string::npos);
  CHECK(first < second);
  CHECK(count(run.out, "learning rate: ") == 2);
  std::map<std::int64_t, float> rates;
  for (const test::Event& event : test::read_folder(shop / "board"))
    if (event.tag == "learning rate/conv1.biases") rates[event.step] = event.scalar.value();
  CHECK(rates == std::map<std::int64_t, float>{{10, 0.01F}, {20, 0.001F}});
}

TEST_CASE("TensorBoard's learning rates drop with --plateau") {
  const Workshop shop;
  // Nothing is learned, so no test is better than the first one.
  shop.write(kDefinition, std::regex_replace(kParameters, std::regex("eps(.)=0.0."), "eps$1=1e-30"));
  const Outcome run = run_well(shop.dummy() + Args{"--save-file", shop / "run", "--epochs", "3", "--mini",
                                                   "100", "--test-freq", "1", "--plateau", "0.5,2,0.4",
                                                   "--tensorboard", shop / "board"});
  CHECK(count(run.out, "Learning rates drop to 0.5 of") == 1);
  CHECK(count(run.out, "Learning rates drop to 0.4 of") == 1);
  CHECK(count(run.out, "Learning rates drop") == 2);
  std::map<std::int64_t, float> rates;
  for (const test::Event& event : test::read_folder(shop / "board"))
    if (event.tag == "learning rate/conv1.biases") rates[event.step] = event.scalar.value();
  CHECK(rates == std::map<std::int64_t, float>{
                     {10, 1e-30F}, {20, 1e-30F}, {30, 1e-30F}, {40, 5e-31F}, {50, 5e-31F}, {60, 4e-31F}});
}

TEST_CASE("a data set of arrays trains a regression, a second set of labels and a net on features") {
  const Workshop shop;
  std::filesystem::create_directories(shop / "arrays");
  constexpr int kImages = 1200;
  const auto save = [&](const std::string& name, const std::string& descr, const std::string& sides,
                        const std::string& bytes) {
    write_file(shop / "arrays/" + name, npy_file(descr, std::to_string(kImages) + sides, bytes));
  };
  std::string pixels, labels, kinds, targets;
  for (int i = 0; i < kImages; ++i) {
    const int level = i * 37 % 200;
    pixels += std::string(64, static_cast<char>(level));
    labels += static_cast<char>(level / 20);
    kinds += static_cast<char>(level > 100);
    const float target = static_cast<float>(level) / 100;
    targets.append(reinterpret_cast<const char*>(&target), sizeof target);
  }
  save("images.npy", "|u1", ", 1, 8, 8", pixels);
  save("labels.npy", "|u1", ",", labels);
  save("bright.npy", "|b1", ",", kinds);
  save("target.npy", "<f4", ", 1", targets);
  // Matrices: 0 images, 1 labels, 2 bright, 3 target.
  write_file(
      shop / "regression.cfg",
      "[data]\ntype=data\ndataIdx=0\n[bright]\ntype=data\ndataIdx=2\n[target]\ntype=data\ndataIdx=3\n"
      "[fc1]\ntype=fc\ninputs=data\noutputs=1\ninitW=0.001\n"
      "[difference]\ntype=eltsum\ninputs=fc1,target\ncoeffs=1,-1\n[l2]\ntype=cost.sum2\ninputs=difference\n"
      "[fc2]\ntype=fc\ninputs=data\noutputs=2\ninitW=0.001\n[probs]\ntype=softmax\ninputs=fc2\n"
      "[logprob]\ntype=cost.logreg\ninputs=bright,probs\n");
  write_file(shop / "regression-params.cfg",
             "[DEFAULT]\nepsW=0.000001\nepsB=0.001\nmomW=0.9\nmomB=0.9\n[fc1]\n[fc2]\n[l2]\ncoeff=1\n["
             "logprob]\ncoeff=1\n");
  const Args args = {"--layer-def",     shop / "regression.cfg",
                     "--layer-params",  shop / "regression-params.cfg",
                     "--data-provider", "npy",
                     "--data-path",     shop / "arrays",
                     "--save-file",     shop / "run",
                     "--mini",          "50",
                     "--epochs",        "30",
                     "--test-freq",     "30",
                     "--threads",       "1"};
  const Outcome run = run_well(args);
  CHECK_THAT(run.out,
             Catch::Contains("Batches: training 1, tests 2: there are none of tests, and the last tenth is "
                             "held out, which is fair only if images are in no order of their classes "
                             "(convnet make-data leaves none)\n"));
  const auto costs = read_safetensors(shop / "run/30.1.safetensors");
  const auto weights = costs.tensors.at("fc1.weights.data").values;
  double slope = 0;
  for (const float w : weights) slope += static_cast<double>(w);
  CHECK(slope == Approx(0.01).epsilon(0.05));  // target = level / 100
}

TEST_CASE("plan and bench take a checkpoint, without its files and its data set") {
  const Workshop shop;
  const std::string data = shop.write_data();
  const Args net = shop.net() + Args{"--data-provider", "mnist", "--data-path", data, "--mini", "20"};
  run_well(net + Args{"--save-file", shop / "run", "--epochs", "1"});
  // The same plan as from the files.
  const auto plan = [&](const Args& args) {
    return nlohmann::json::parse(run_well(Args{"plan", "--json"} + args).out);
  };
  const nlohmann::json from_files = plan(net);
  std::filesystem::remove_all(data);
  shop.write("[other]\ntype=data\ndataIdx=0\n", "");
  CHECK(plan({"--load-file", shop / "run"}) == from_files);
  CHECK(plan({"--load-file", shop / "run", "--mini", "10"}) != from_files);
  const nlohmann::json bench = nlohmann::json::parse(
      run_well({"bench", "--json", "--load-file", shop / "run", "--steps", "2", "--threads", "1"}).out);
  CHECK(bench["mini"] == 20);
  CHECK_THAT(run_program({"bench", "--load-file", shop / "none"}).err, Catch::Contains("none"));
}

TEST_CASE("plan --json prints one JSON object and reads no image") {
  const Workshop shop;
  shop.write_data();
  // The headers alone: a program that read the images would fail. Labels are read, because they tell the
  // classes.
  for (const char* stem : {"train", "t10k"})
    std::filesystem::resize_file(shop.data_path() + "/" + stem + "-images-idx3-ubyte", 16);
  const Outcome run = run_well(
      Args{"plan", "--json", "--mini=20", "--data-provider=mnist", "--data-path=" + shop.data_path()} +
      shop.net());
  CHECK(nlohmann::json::parse(run.out).is_object());
  CHECK(run.err.empty());
  const Outcome text = run_well(Args{"plan", "--data-provider", "dummy-1x8x8-10"} + shop.net());
  for (const char* part : {"conv1", "pool1", "fc10", "probs", "logprob"})
    CHECK(text.out.find(part) != std::string::npos);
}

TEST_CASE("layers lists the layer types, layers TYPE the keys of one") {
  const Outcome all = run_well({"layers"});
  for (const char* type : {"data ", "conv ", "fc ", "pool ", "softmax ", "cost.logreg "})
    CHECK(count("\n" + all.out, std::string("\n") + type) == 1);
  const Outcome conv = run_well({"layers", "conv"});
  for (const char* key :
       {"channels", "filterSize", "padding", "stride", "groups", "modulesX", "epsW", "initW", "example:"})
    CHECK(conv.out.find(key) != std::string::npos);
}

TEST_CASE("docs/layers.md is what layers --markdown prints") {
  CHECK(read_file(std::string(CONVNET_SOURCE_DIR) + "/docs/layers.md") ==
        run_well({"layers", "--markdown"}).out);
}

TEST_CASE("options --version and --help answer on stdout") {
  const std::string version = run_well({"--version"}).out;
  CHECK(std::regex_search(version, std::regex(R"(^convnet \d+\.\d+\.\d+)")));
  CHECK(std::regex_search(
      version, std::regex("\nbuilt with [^\n]+, oneDNN \\d+\\.[^\n]+, OpenMP(, (?!without)[^\n]+)*\n")));
  CHECK(std::regex_search(version, std::regex("\ncomputes with [A-Z0-9_]+ on this processor\n$")));
  for (const char* command : {"train", "plan", "bench"}) {
    const Outcome run = run_well({command, "--help"});
    for (const char* part : {"--layer-def", "--mini", "default 128", "Exit codes:"})
      CHECK(run.out.find(part) != std::string::npos);
    CHECK(run.err.empty());
  }
  CHECK(run_well({"--help"}).out.find("--test-only") != std::string::npos);
  CHECK(run_well({"plan", "--help"}).out.find("  --test-only") == std::string::npos);
}

TEST_CASE("bench --json measures the step and its layers") {
  const Workshop shop;
  const Outcome run =
      run_well(Args{"bench", "--json", "--steps", "3", "--data-provider", "dummy-1x8x8-10", "--mini", "32"} +
               shop.net());
  const nlohmann::json result = nlohmann::json::parse(run.out);
  for (const char* key :
       {"images_per_s", "ms_per_step", "ms_per_fed_step", "peak_fraction", "peak_memory_bytes"}) {
    INFO(key);
    CHECK(result.at(key).get<double>() > 0);
  }
  const nlohmann::json spread = result.at("ms_per_step_spread");
  CHECK(spread.at("min") <= result.at("ms_per_step"));
  CHECK(spread.at("min") <= spread.at("mean"));
  CHECK(spread.at("mean") <= spread.at("p95"));  // of three steps the longest
  CHECK(spread.at("p95") >= result.at("ms_per_step"));
  const nlohmann::json algorithms = result.at("algorithms");
  const auto known = [&](const std::string& operation) {
    return std::any_of(algorithms.items().begin(), algorithms.items().end(), [&](const auto& item) {
      return item.key().starts_with(operation) && !item.value().template get<std::string>().empty();
    });
  };
  CHECK(known("conv1 conv.forward"));
  CHECK(known("fc10 inner_product.backward_weights"));
  CHECK(result.at("recorded").is_null());  // as on all devices without queues
  CHECK(result.at("images_per_s").get<double>() == Approx(32e3 / result.at("ms_per_step").get<double>()));
  std::vector<std::string> layers;
  for (const nlohmann::json& row : result.at("layers")) layers.push_back(row.at("layer"));
  for (const char* layer : {"conv1", "pool1", "fc10", "logprob"})
    CHECK(std::count(layers.begin(), layers.end(), layer) == 1);
}

TEST_CASE("bench says what it runs on, and why on no GPU") {
  const Workshop shop;
  const Outcome run = run_well(
      Args{"bench", "--steps", "1", "--data-provider", "dummy-1x8x8-10", "--mini", "32"} + shop.net());
  const std::string first = run.out.substr(0, run.out.find('\n'));
  CHECK(first.starts_with("Devices: cpu:0, "));
  CHECK(first.find("minibatches of 32 images; no GPU: ") != std::string::npos);
}

TEST_CASE("a verbose plan says for each reorder why it is there") {
  const std::string net = std::string(CONVNET_SOURCE_DIR) + "/configs/cifar-quick";
  const Args plan = {"plan",
                     "--layer-def",
                     net + ".cfg",
                     "--layer-params",
                     net + "-params.cfg",
                     "--data-provider",
                     "dummy-3x32x32-10",
                     "--mini",
                     "16",
                     "--verbose",
                     "1"};
  const Outcome text = run_well(plan);
  CHECK(text.out.find("\n       why: inner_product.forward of 'fc64' reads f32 ") != std::string::npos);
  const auto report = nlohmann::json::parse(run_well(plan + Args{"--json", "1"}).out);
  int reorders = 0;
  for (const char* phase : {"train_tasks", "test_tasks"})
    for (const nlohmann::json& task : report.at(phase)) {
      INFO(task.dump(2));
      const std::string why = task.at("why");
      CHECK(why.empty() == (task.at("kind") != "reorder"));
      if (why.empty()) continue;
      ++reorders;
      CHECK(why.find(" reads f32 ") != std::string::npos);
      CHECK(why.find(", but '") != std::string::npos);
    }
  CHECK(reorders > 0);
}

}  // namespace
}  // namespace convnet
