// What is in a run's folder after each way in which a run may end: what docs/training.md lists, and nothing
// else.
#include <algorithm>
#include <regex>

#include "tests/cli/small_net.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

/// The names in a folder and in the folders below it, sorted.
Names tree_of(const std::string& folder) {
  Names names;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    names.push_back(fs::relative(entry.path(), folder).string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Checks that all names in a folder match one of these patterns, and that there are at most two checkpoints
/// besides the best one.
void check_names(const std::string& folder, Names allowed) {
  const std::string checkpoint = R"(\d+\.\d+(-\d{4,})?\.safetensors)";
  allowed.push_back(checkpoint);
  std::size_t checkpoints = 0;
  for (const std::string& name : tree_of(folder)) {
    INFO(name);
    CHECK(std::any_of(allowed.begin(), allowed.end(),
                      [&](const std::string& one) { return std::regex_match(name, std::regex(one)); }));
    if (std::regex_match(name, std::regex(checkpoint))) ++checkpoints;
  }
  CHECK(checkpoints <= 2);
}

const std::string kBest = R"(best\.safetensors)";

/// A run of one batch an epoch that keeps its best checkpoint and tests after each batch.
Args run_in(const Workshop& shop, const std::string& folder) {
  return shop.mnist() + Args{"--save-file", folder, "--test-freq", "1", "--keep-best", "logprob.cost"};
}

}  // namespace

TEST_CASE("a run that ends leaves its newest checkpoints and the best one") {
  const Workshop shop;
  shop.write_data();
  shop.write(kDefinition, kPixelParameters);
  const std::string run = shop / "run";
  run_well(run_in(shop, run) + Args{"--epochs", "3"});
  CHECK(tree_of(run) == Names{"2.1.safetensors", "3.1.safetensors", "best.safetensors"});
  run_well({"--load-file", run, "--epochs", "5"});
  CHECK(tree_of(run) == Names{"4.1.safetensors", "5.1.safetensors", "best.safetensors"});
  run_well({"--load-file", run + "/4.1.safetensors", "--epochs", "6"});
  const Names branched = tree_of(run);
  CHECK(std::count(branched.begin(), branched.end(), "abandoned-after-4.1/5.1.safetensors") == 1);
  for (const std::string& name : branched) {
    INFO(name);
    CHECK((name == "5.1.safetensors" || name == "6.1.safetensors" || name.ends_with("best.safetensors") ||
           name == "abandoned-after-4.1" || name == "abandoned-after-4.1/5.1.safetensors"));
  }
}

TEST_CASE("a run that is stopped or killed leaves nothing that the next one does not remove") {
  const Workshop shop;
  shop.write_data();
  shop.write(kDefinition, kPixelParameters);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    INFO(signal);
    const std::string run = shop / ("stopped-" + std::to_string(signal));
    Program program(run_in(shop, run));
    REQUIRE(program.printed("Saved checkpoint", 3));
    program.send(signal);
    CHECK(program.finish().code == 0);
    check_names(run, {kBest});
  }
  const std::string run = shop / "killed";
  for (int kills = 1; kills <= 3; ++kills) {
    Program program(run_in(shop, run));
    REQUIRE(program.printed("Saved checkpoint", 2 * kills));
    program.send(SIGKILL);
    CHECK(program.finish().signal == SIGKILL);
    // It may have been killed while it wrote a checkpoint, or before it removed the third.
    const Names left = tree_of(run);
    CHECK(std::count(left.begin(), left.end(), ".lock") == 1);
    Program next(run_in(shop, run));
    REQUIRE(next.printed("Saved checkpoint", 1));
    next.send(SIGTERM);
    CHECK(next.finish().code == 0);
    check_names(run, {kBest});
  }
}

TEST_CASE("a run that fails leaves the checkpoints from before") {
  const Workshop shop;
  shop.write_data();
  shop.write(kDefinition, kPixelParameters);
  const std::string run = shop / "run";
  const Names before = {"2.1.safetensors", "3.1.safetensors", "best.safetensors"};
  run_well(run_in(shop, run) + Args{"--epochs", "3"});
  REQUIRE(tree_of(run) == before);
  shop.write(kDefinition, replaced(kPixelParameters, "epsW=0.0", "epsW=1e38\n;"));
  CHECK(run_program(run_in(shop, run) + Args{"--epochs", "9"}).code == 1);
  CHECK(tree_of(run) == before);
  shop.write(kDefinition, kPixelParameters);
  CHECK(run_in_shell("ulimit -f 2; exec \"$@\"", run_in(shop, run) + Args{"--epochs", "9"}).code == 1);
  CHECK(tree_of(run) == before);
  CHECK(run_program(run_in(shop, run) + Args{"--epochs", "9", "--mini", "nine"}).code == 2);
  CHECK(tree_of(run) == before);
  const Outcome limited = run_well(run_in(shop, run) + Args{"--epochs", "9", "--time-limit", "0.0000001"});
  CHECK(tree_of(run) == Names{"3.1.safetensors", "4.1-0001.safetensors", "best.safetensors"});
}

TEST_CASE("a run on a full disk leaves its newest checkpoint and the best one") {
  const Workshop shop;
  shop.write_data();
  shop.write(
      replaced(replaced(kDefinition, "filters=2\n", "filters=200\n"), "channels=2\n", "channels=200\n"),
      kPixelParameters);
  const std::string run = shop / "run";
  fs::create_directory(run);
  const std::string script = "mount -t tmpfs -o size=400k none '" + run +
                             "' || exit 77; \"$@\"; code=$?; ls -A '" + run + "' >'" + (shop / "names") +
                             "'; exit $code";
  const Outcome full = Program(Args{"-rm", "/bin/sh", "-c", script, "sh", CONVNET_PROGRAM} +
                                   run_in(shop, run) + Args{"--epochs", "9", "--keep", "9"},
                               "/usr/bin/unshare")
                           .finish();
  if (full.code == 77) return test::skip("this process may not mount a file system");
  INFO(full.out << full.err);
  CHECK((full.code == 0 || full.code == 1));
  CHECK_THAT(full.err, Catch::Contains("No space left on device") || Catch::Contains("the disk is full"));
  const std::string names = read_file(shop / "names");
  INFO(names);
  CHECK(std::regex_match(names, std::regex(R"((\d\.1\.safetensors\n)+best\.safetensors\n)")));
}

}  // namespace convnet
