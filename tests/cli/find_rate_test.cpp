// --find-rate and --rate-factor: a search for the learning rates, and a factor of all of them.
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/catch.h"
#include "tests/cli/equal_tensors.h"
#include "tests/cli/small_net.h"
#include "tests/providers/image_sets.h"

namespace convnet {
namespace {

/// The suggestion in the output of a search.
std::string suggestion_in(const std::string& out) {
  std::smatch found;
  REQUIRE(std::regex_search(
      out, found, std::regex("next: the same command with --rate-factor (\\S+) instead of --find-rate\n")));
  return found[1];
}

TEST_CASE("option --find-rate suggests a --rate-factor and saves nothing") {
  const Workshop shop;
  shop.write_data();
  shop.write(kDefinition, kPixelParameters);
  const Args line = shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "3"};
  const Outcome search = run_well(line + Args{"--find-rate", "1", "--keep-best", "logprob"});
  INFO(search.out);
  CHECK(search.out.find("Cost by the factor of all learning rates, smoothed; o: the steepest descent\n") !=
        std::string::npos);
  CHECK(search.out.find("--keep-best is not used: --find-rate does not train\n") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(shop / "run"));
  // The rates of the small net are those that its user would find by hand, up to a factor of ten.
  const std::string factor = suggestion_in(search.out);
  CHECK(std::stod(factor) > 1e-3);
  CHECK(std::stod(factor) < 1e4);
  run_well(line + Args{"--rate-factor", factor});
  CHECK(std::filesystem::exists(shop / "run"));

  // Several devices see the same minibatches.
  const Outcome several = run_well(
      line + Args{"--find-rate", "1", "--save-file", shop / "other", "--gpu", "0,1", "--parallel", "data"});
  CHECK(std::abs(std::log10(std::stod(suggestion_in(several.out)) / std::stod(factor))) < 0.3);
}

TEST_CASE("option --find-rate needs no folder and no test range, and prints JSON") {
  const Workshop shop;
  const Args line = shop.net() + Args{"--data-provider", "dummy-1x8x8-10", "--train-range", "1"};
  const Outcome run = run_well(line + Args{"--find-rate", "--json"});
  const nlohmann::json results = nlohmann::json::parse(run.out);
  CHECK(results["minibatch"] == 128);
  CHECK(results["curve"].size() > 10);
  check_refused(line + Args{"--find-rate", "--check-grads"},
                "--check-grads and --find-rate exclude each other");
  check_refused(line + Args{"--json"}, "--json prints the results of --test-only 1 or --find-rate 1");
  shop.write(kDefinition, std::regex_replace(kParameters, std::regex("eps(.)=0.0."), "eps$1=0"));
  check_refused(line + Args{"--find-rate"}, "--find-rate: no layer of this net learns (all rates are 0)");
}

TEST_CASE(
    "option --find-rate trains smaller minibatches if no batch has as many images as its size promised") {
  // A tar may have an image for each KiB, and these have fewer.
  using namespace image_sets;
  const Workshop shop;
  const std::vector<Item> items = photographs(40, 4, 32);
  std::filesystem::create_directory(shop / "set");
  write_file(shop / "set/a-1.tar", tar_of({items.begin(), items.begin() + 20}));
  write_file(shop / "set/a-2.tar", tar_of({items.begin() + 20, items.end()}));
  REQUIRE(std::filesystem::file_size(shop / "set/a-1.tar") > 24 * 1024);
  const Args line = {"train",         shop / "set", "--layer-def",   "small", "--inner-size",  "16",
                     "--image-size",  "20",         "--scalar-mean", "128",   "--color-noise", "0",
                     "--train-range", "1",          "--mini",        "24"};
  CHECK_THAT(run_well(line + Args{"--find-rate", "1"}).out,
             Catch::Contains(" minibatches of 20 images at factors "));
}

TEST_CASE("option --find-rate leaves a run that has begun as it is") {
  const Workshop shop;
  const Args line = shop.dummy() + Args{"--save-file", shop / "run", "--epochs", "1", "--test-freq", "1"};
  run_well(line);
  const std::vector<std::string> before = files_in(shop / "run");
  const std::string newest = shop / "run/1.2.safetensors";
  const auto written = std::filesystem::last_write_time(newest);
  run_well(line + Args{"--find-rate"});
  CHECK(files_in(shop / "run") == before);
  CHECK(std::filesystem::last_write_time(newest) == written);
}

TEST_CASE("option --rate-factor multiplies the rates of the parameter file, and stays with the run") {
  const Workshop shop;
  const auto train = [&](const std::string& folder, int epochs, const Args& more) {
    return run_well(
        shop.dummy() +
        Args{"--save-file", shop / folder, "--epochs", std::to_string(epochs), "--test-freq", "2"} + more);
  };
  train("plain", 1, {"--rate-factor", "0.5"});
  const Outcome resumed = train("plain", 2, {});
  CHECK(resumed.out.find("Learning rate: 0.005 to 0.01\n") != std::string::npos);
  CHECK(resumed.err.find("a learning rate jumps") == std::string::npos);
  shop.write(kDefinition,
             std::regex_replace(std::regex_replace(kParameters, std::regex("epsW=0.01"), "epsW=0.005"),
                                std::regex("epsB=0.02"), "epsB=0.01"));
  train("halved", 2, {});
  check_equal_tensors(shop / "plain/2.2.safetensors", shop / "halved/2.2.safetensors");
  const Outcome jump = train("plain", 3, {"--rate-factor", "2"});
  CHECK(jump.err.find("a learning rate jumps where the run goes on") != std::string::npos);
  CHECK(jump.err.find("--rate-factor, --plateau, --set or --epochs has changed") != std::string::npos);
}

}  // namespace
}  // namespace convnet
