// The options in checkpoints, which may come from anybody: those of a run are taken, and no others.
#include <filesystem>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/train/options.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

/// A run of one epoch, whose checkpoint a test changes.
class ForeignCheckpoint {
 public:
  ForeignCheckpoint() {
    shop.write_data();
    run_well(shop.mnist() + Args{"--epochs", "1", "--save-file", shop / "run"});
    original_ = read_checkpoint(shop / "run");
  }

  /// Writes the run's checkpoint anew, with this option as well.
  void set(const std::string& option, const std::string& value) const {
    Checkpoint changed = original_;
    changed.options[option] = value;
    write_checkpoint(shop / "run", changed, 1);
  }
  std::string file() const { return shop / "run/1.1.safetensors"; }
  Args resume() const { return {"--load-file", file(), "--epochs", "2"}; }
  Args plan() const { return {"plan", "--load-file", file()}; }
  Args show() const { return {"show", file(), "--show-cost", "logprob", "--out", shop / "cost.png"}; }
  Args predict() const { return {"predict", file(), shop.data_path()}; }

  const Workshop shop;

 private:
  Checkpoint original_;
};

}  // namespace

TEST_CASE("a checkpoint with an option that no run stores is refused by the option's name") {
  const ForeignCheckpoint foreign;
  const std::string victim = foreign.shop / "victim";
  const auto refused = [&](const Args& command, const std::string& option) {
    check_refused(command,
                  foreign.file() + ": its options are wrong:\n  '" + option + "' is none that a run stores");
    CHECK_FALSE(std::filesystem::exists(victim));
  };
  int unsaved = 0;
  for (const OptionSpec& spec : train_options().specs()) {
    if (spec.saved) continue;
    INFO(spec.param.key);
    foreign.set(spec.param.key, victim);
    refused(foreign.resume(), spec.param.key);
    ++unsaved;
  }
  CHECK(unsaved > 10);
  foreign.set("run-this", victim);
  for (const Args& command : {foreign.resume(), foreign.resume() + Args{"--test-only", "1"}, foreign.plan(),
                              foreign.show(), foreign.predict()})
    refused(command, "run-this");
}

TEST_CASE("no option of a checkpoint names a file or folder that is written") {
  const ForeignCheckpoint foreign;
  const std::string victim = foreign.shop / "victim";
  for (const OptionSpec& spec : train_options().specs()) {
    const bool names_path = spec.param.unit == "file" || spec.param.unit == "folder";
    if (!spec.saved || !names_path) continue;
    INFO(spec.param.key);
    foreign.set(spec.param.key, victim);
    const Outcome resumed = run_program(foreign.resume());
    INFO(resumed.out << resumed.err);
    // Files that are read are missed; what the run would write there is not made.
    CHECK(resumed.signal == 0);
    CHECK((resumed.code == 0 || !spec.output));
    CHECK_FALSE(std::filesystem::exists(victim));
  }
}

TEST_CASE("a run's curves are gone on with where the command repeats their folder") {
  const ForeignCheckpoint foreign;
  const std::string board = foreign.shop / "board";
  foreign.set("tensorboard", board);
  const Outcome bare = run_well(foreign.resume());
  CHECK(
      bare.out.find("The curves in " + board +
                    " are not gone on with: a checkpoint does not say what is written where; --tensorboard " +
                    board + " does\n") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(board));
  const Outcome told =
      run_well({"--load-file", foreign.shop / "run", "--epochs", "3", "--tensorboard", board});
  CHECK(std::filesystem::exists(board));
  CHECK(told.out.find("  train on:    convnet --load-file " + (foreign.shop / "run") +
                      " --epochs 6 --tensorboard " + board) != std::string::npos);
}

TEST_CASE("a run that goes on says which of its options the command changes") {
  const ForeignCheckpoint foreign;
  foreign.set("seed", "7");
  const Args again = {"--load-file", foreign.shop / "run", "--epochs", "3"};
  const std::string head = "Changed since " + foreign.file() + ": ";
  const Outcome other = run_well(again + Args{"--seed", "9", "--clip-norm", "0.5"});
  CHECK_THAT(other.out, Catch::Contains(head) && Catch::Contains("--seed 7 -> 9") &&
                            Catch::Contains("--clip-norm 0 -> 0.5") && !Catch::Contains("--epochs 1 ->"));
  CHECK_THAT(run_well({"--load-file", foreign.shop / "run", "--epochs", "4", "--hosts", "1x1"}).out,
             Catch::Contains("--hosts (not given) -> 1x1"));
  CHECK_THAT(run_well(again + Args{"--seed", "9", "--clip-norm", "0.5", "--force-save"}).out,
             !Catch::Contains("Changed since"));
}

TEST_CASE("decoded pictures are kept where the command says, not where a checkpoint does") {
  const ForeignCheckpoint foreign;
  const std::string cache = foreign.shop / "cache";
  foreign.set("cache-images", cache);
  const Outcome bare = run_well(foreign.resume());
  CHECK(bare.out.find("The decoded pictures in " + cache +
                      " are not used: a checkpoint does not say what is written where; --cache-images " +
                      cache + " does\n") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(cache));
}

TEST_CASE("values in a checkpoint that its options do not take are reported with the file") {
  const ForeignCheckpoint foreign;
  for (const auto& [option, value, message] : std::vector<std::array<std::string, 3>>{
           {"mini", "0", "--mini expects auto, or an integer between 1 and 16777216, not '0'"},
           {"mini", "auto", "--mini is the number that a run has chosen, not auto"},
           {"train-range", "5-1", "--train-range '5-1' is empty"},
           {"set", "nonsense", "--set "},
           {"device", "abacus", "--device expects one of auto, cpu, cuda, not 'abacus'"},
           {"data-path", std::string("a\0b", 3), "--data-path has a NUL"}}) {
    INFO(option);
    foreign.set(option, value);
    for (const Args& command : {foreign.resume(), foreign.plan(), foreign.show(), foreign.predict()})
      check_refused(command, foreign.file() + ": its options are wrong:\n  " + message);
  }
}

TEST_CASE("damaged metadata is named with its place, and no library's message is shown") {
  const ForeignCheckpoint foreign;
  const TensorFile good = read_safetensors(foreign.file());
  const auto refused = [&](const std::string& key, const std::string& value, const std::string& message) {
    INFO(key << " " << value);
    TensorFile changed = good;
    changed.metadata[key] = value;
    write_safetensors(foreign.file(), changed);
    for (const Args& command : {foreign.resume(), foreign.plan(), foreign.show()}) {
      const Outcome outcome =
          check_refused(command, foreign.file() + ": metadata '" + key + "' is damaged: " + message);
      CHECK(outcome.err.find("exception") == std::string::npos);
    }
  };
  const std::string& state = good.metadata.at("state");
  refused("options", "{", "it is no JSON from byte 2 on\n");
  refused("options", "[1e999]", "it is no JSON that can be used\n");
  refused("options", "[]", "it is not an object\n");
  refused("options", R"({"mini": 3})", "it has a value that is not a text, that of 'mini'\n");
  refused("algorithms", R"("x")", "it is not an object\n");
  refused("state", "{}", "it has no 'position'\n");
  refused("state", R"({"position": 3})", "position is not an object\n");
  refused("state", replaced(state, R"("epoch":1)", R"("epoch":-1)"),
          "history[0].epoch is not a whole number from 0 to 1000000000\n");
  refused("state", replaced(state, R"("test_due":)", R"("test_due":0,"was":)"),
          "test_due is neither true nor false\n");
  refused("state", replaced(state, R"("sums":[[")", R"("sums":[[7,")"),
          "history[0].sums[0][0] is not a text\n");
  refused("matrices", "3", "it is not a list\n");
  refused("matrices", replaced(good.metadata.at("matrices"), R"("type":"u8")", R"("type":"u9")"),
          "[0].type is 'u9', which is no type of matrices\n");
  refused("ranges", R"({"train": "x", "test": "1"})", "train 'x' is not a range of batches");
  refused("ranges", R"({"train": null, "test": "1"})", "train is not a text\n");
  TensorFile changed = good;
  changed.metadata["layer_def_path"] = std::string(1, '\0');
  write_safetensors(foreign.file(), changed);
  check_refused(foreign.resume(),
                foreign.file() + ": metadata 'layer_def_path' is damaged: a path has no NUL");
}

}  // namespace convnet
