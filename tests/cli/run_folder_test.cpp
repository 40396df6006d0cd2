// Folders that runs save in: two runs on one folder, folders that cannot be, older checkpoints, damaged ones.
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// A run that is refused, with exit code 2 and before anything is trained.
void check_run_refused(const Args& args, const std::string& message) {
  const Outcome run = check_refused(args, message);
  INFO(run.out);
  CHECK(run.out.find("...") == std::string::npos);
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

Args short_run(const Workshop& shop) { return shop.mnist() + Args{"--test-freq", "1", "--keep", "9"}; }

}  // namespace

TEST_CASE("a second run on a folder is refused as long as the first one trains") {
  const Workshop shop;
  shop.write_data();
  // Rates for pixels of 0 to 255: the costs stay finite as long as it takes.
  shop.write(kDefinition, std::regex_replace(kParameters, std::regex("eps(.)=0.0"), "eps$1=0.00000"));
  const Args train = short_run(shop) + Args{"--save-file", shop / "run"};
  for (const int end : {SIGTERM, SIGKILL}) {
    Program first(train + Args{"--epochs", "1000000", "--keep", "2"});
    REQUIRE(first.printed("Saved checkpoint", 2));
    const std::string message = (shop / "run") + ": another run saves its checkpoints there: pid ";
    check_run_refused(train + Args{"--epochs", "3"}, message);
    check_run_refused({"--load-file", shop / "run", "--epochs", "3"}, message);
    CHECK(fs::exists(shop / "run/.lock"));
    // Reading it harms nobody. The newest checkpoint may be removed between being found and being read.
    CHECK(run_program({"--load-file", shop / "run", "--test-only"}).err.find("another run") ==
          std::string::npos);
    first.send(end);
    const Outcome ended = first.finish();
    CHECK((end == SIGTERM ? ended.code == 0 : ended.signal == SIGKILL));
    run_well({"--load-file", shop / "run", "--epochs", "1"});
    CHECK_FALSE(fs::exists(shop / "run/.lock"));
  }
}

TEST_CASE("runs that begin in the same second on one --save-path have folders of their own") {
  const Workshop shop;
  shop.write_data();
  std::vector<std::unique_ptr<Program>> runs;
  for (int i = 0; i < 4; ++i)
    runs.push_back(
        std::make_unique<Program>(short_run(shop) + Args{"--save-path", shop / "runs", "--epochs", "2"}));
  for (const auto& run : runs) CHECK(run->finish().code == 0);
  const std::set<std::string> made = names_in(shop / "runs");
  CHECK(made.size() == 4);
  for (const std::string& name : made)
    CHECK(names_in(shop / ("runs/" + name)) == std::set<std::string>{"1.1.safetensors", "2.1.safetensors"});
}

TEST_CASE("a folder that cannot be made or written is found before training") {
  const Workshop shop;
  shop.write_data();
  const Args train = shop.mnist() + Args{"--epochs", "1"};
  fs::create_symlink(shop / "gone/deep", shop / "link");
  check_run_refused(train + Args{"--save-file", shop / "link"},
                    (shop / "link") + ": is a link to " + (shop / "gone/deep") + ", which is not there");
  check_run_refused(train + Args{"--save-file", "/proc/run"}, ": cannot be ");
  check_run_refused(train + Args{"--save-path", "/proc/runs"}, ": cannot be ");
  check_run_refused(train + Args{"--save-file", shop / std::string(300, 'n')}, "File name too long");
  // This one is a name that the file system takes.
  run_well(train + Args{"--save-file", shop / std::string(250, 'n'), "--force-save"});
  CHECK_FALSE(fs::exists(shop / "gone"));
}

TEST_CASE("an empty folder is a new run's") {
  const Workshop shop;
  shop.write_data();
  fs::create_directory(shop / "run");
  write_file(shop / "run/.lock", "pid 1 on nowhere since long ago\n");
  const Outcome run = run_well(short_run(shop) + Args{"--save-file", shop / "run", "--epochs", "1"});
  CHECK(run.out.find("Loaded") == std::string::npos);
  CHECK(names_in(shop / "run") == std::set<std::string>{"1.1.safetensors"});
}

TEST_CASE("a run that goes on from an older checkpoint moves the later ones aside") {
  const Workshop shop;
  shop.write_data();
  run_well(short_run(shop) + Args{"--save-file", shop / "run", "--epochs", "4"});
  const std::string later = read_file(shop / "run/4.1.safetensors");
  // Tests, and runs with nothing to do, leave them where they are.
  run_well({"--load-file", shop / "run/2.1.safetensors", "--test-only"});
  run_well({"--load-file", shop / "run/2.1.safetensors", "--epochs", "2"});
  CHECK(names_in(shop / "run").size() == 4);
  const Outcome back =
      run_well({"--load-file", shop / "run/2.1.safetensors", "--epochs", "3", "--keep", "1", "--seed", "5"});
  CHECK(back.err.find("The run goes on from " + (shop / "run/2.1.safetensors") +
                      ": 2 later checkpoint(s) were moved to " + (shop / "run/abandoned-after-2.1") + "\n") !=
        std::string::npos);
  CHECK(names_in(shop / "run") == std::set<std::string>{"3.1.safetensors", "abandoned-after-2.1"});
  CHECK(names_in(shop / "run/abandoned-after-2.1") ==
        std::set<std::string>{"3.1.safetensors", "4.1.safetensors"});
  CHECK(read_file(shop / "run/abandoned-after-2.1/4.1.safetensors") == later);
  const Outcome on = run_well({"--load-file", shop / "run", "--epochs", "3", "--save-path", shop / "runs"});
  CHECK(on.err.find("warning: --save-path is for new runs; this one goes on in " + (shop / "run") + "\n") !=
        std::string::npos);
  // The folder goes on with the new branch.
  CHECK(run_well({"--load-file", shop / "run", "--epochs", "3"}).out.find("run/3.1.safetensors") !=
        std::string::npos);
}

TEST_CASE("a run goes on from a checkpoint in a new folder, not in that of another run") {
  const Workshop shop;
  shop.write_data();
  run_well(short_run(shop) + Args{"--save-file", shop / "run", "--epochs", "3"});
  const Args branch = {
      "--load-file", shop / "run/1.1.safetensors", "--save-file", shop / "branch", "--epochs", "2"};
  const Outcome made = run_well(branch);
  CHECK(made.out.find("Saved checkpoint to " + (shop / "branch")) != std::string::npos);
  CHECK(names_in(shop / "branch") == std::set<std::string>{"2.1.safetensors"});
  CHECK(names_in(shop / "run").size() == 3);
  check_run_refused(branch, (shop / "branch") + ": holds the checkpoints of a run, which --load-file " +
                                (shop / "branch") + " goes on with");
  run_well({"--load-file", shop / "branch", "--epochs", "3"});
  CHECK(names_in(shop / "branch").size() == 2);
  // The run's own folder by that name is no other.
  run_well({"--load-file", shop / "run/", "--save-file", shop / "run", "--epochs", "4"});
  CHECK(names_in(shop / "run").size() == 4);
}

TEST_CASE("a run whose newest checkpoint is damaged goes on with the command that the error names") {
  const Workshop shop;
  shop.write_data();
  const Args train = short_run(shop) + Args{"--save-file", shop / "run"};
  run_well(train + Args{"--epochs", "3"});
  std::string bytes = read_file(shop / "run/3.1.safetensors");
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 4);
  write_file(shop / "run/3.1.safetensors", bytes);
  const std::string before = shop / "run/2.1.safetensors";
  check_run_refused(train + Args{"--epochs", "4"},
                    (shop / "run/3.1.safetensors") + ": is damaged: its tensors are not what was written");
  check_run_refused(train + Args{"--epochs", "4"},
                    "\nthe checkpoint before it can be read; name that one: " + before + "\n");
  run_well({"--load-file", before, "--epochs", "4"});
  CHECK(fs::exists(shop / "run/abandoned-after-2.1/3.1.safetensors"));
  CHECK(fs::exists(shop / "run/4.1.safetensors"));
}

TEST_CASE("a mean image that is missing or holds NaN is an error, in training, tests and pictures") {
  const Workshop shop;
  shop.write_data();
  run_well(short_run(shop) + Args{"--save-file", shop / "run", "--epochs", "1"});
  const TensorFile good = read_safetensors(shop / "run/1.1.safetensors");
  const std::string bad = shop / "bad.safetensors";
  const auto check = [&](const TensorFile& file, const std::string& wrong) {
    write_safetensors(bad, file);
    const std::string message =
        bad +
        ": --data-provider mnist needs the tensor 'mnist.mean', the mean image of the training range; " +
        wrong;
    check_run_refused({"--load-file", bad, "--epochs", "2"}, message);
    check_run_refused({"--load-file", bad, "--test-only"}, message);
    check_run_refused({"show", bad, "--save-preds", shop / "p.csv"}, message);
  };
  TensorFile file = good;
  file.tensors.at("mnist.mean").values[7] = std::nanf("");
  check(file, "it holds numbers that are not finite");
  file.tensors.at("mnist.mean") = {{1, 2, 2}, {1, 2, 3, 4}};
  check(file, "it has 4 values, not 64");
  file.tensors.erase("mnist.mean");
  check(file, "it is not there");
}

TEST_CASE("tests need no training range") {
  const Workshop shop;
  shop.write_data();
  run_well(short_run(shop) + Args{"--save-file", shop / "run", "--epochs", "1"});
  // One that this data set does not have, and none at all.
  const Outcome unused = run_well(
      {"--load-file", shop / "run", "--test-out", shop / "p", "--test-range", "1", "--train-range", "77"});
  CHECK(count(unused.out + unused.err,
              "--train-range is not used: --test-out tests the batches of --test-range") == 1);
  CHECK(fs::exists(shop / "p/probabilities_1.npy"));
  TensorFile file = read_safetensors(shop / "run/1.1.safetensors");
  nlohmann::json options = nlohmann::json::parse(file.metadata.at("options"));
  options.erase("train-range");
  file.metadata["options"] = options.dump();
  write_safetensors(shop / "run/1.1.safetensors", file);
  run_well({"--load-file", shop / "run", "--test-only"});
  check_run_refused({"--load-file", shop / "run", "--epochs", "2"}, "missing: --train-range");
}

}  // namespace convnet
