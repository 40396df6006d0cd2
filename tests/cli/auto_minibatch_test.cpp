// --mini auto: the largest minibatch that fits the memory and the data set.
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "convnet/net/auto_minibatch.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

/// A model of a machine whose devices have so many bytes; 0: it does not say.
std::string model_with_memory(const Workshop& shop, double bytes) {
  nlohmann::json model = nlohmann::json::parse(
      std::ifstream(std::string(CONVNET_SOURCE_DIR) + "/bench/models/nvlink-8gpu.json"));
  model.erase("memory");
  if (bytes > 0) model["memory"] = bytes;
  const std::string path = shop / ("model" + std::to_string(static_cast<long>(bytes)) + ".json");
  write_file(path, model.dump());
  return path;
}

TEST_CASE(
    "option --mini auto is a power of two that the largest batch of training has, and stays with the run") {
  const Workshop shop;
  shop.write_data();
  shop.write(kDefinition, kPixelParameters);
  const Args line =
      shop.net() + Args{"--data-provider", "mnist", "--data-path", shop.data_path(), "--train-range", "1",
                        "--test-range",    "2",     "--save-file", shop / "run",     "--mini",        "auto"};
  // Batch 1 has 40 images.
  const std::string rule =
      "--mini auto: 32, the largest power of two that the largest batch of training has, 40 images";
  const Outcome run = run_well(line + Args{"--epochs", "1"});
  CHECK(run.out.find(rule) != std::string::npos);
  CHECK(run.out.find("; an epoch has only about 2 of them, and learns more from smaller ones\n") !=
        std::string::npos);
  CHECK(read_checkpoint(shop / "run/1.1.safetensors").options.at("mini") == "32");
  CHECK(run_well(Args{"plan"} + line).err.find("The run in") != std::string::npos);
  const Outcome resumed = run_well(line + Args{"--epochs", "2"});
  CHECK(resumed.out.find("--mini auto: 32, as the run has begun\n") != std::string::npos);
  const Args fresh = line + Args{"--save-file", shop / "other"};
  CHECK(run_well(Args{"plan"} + fresh).err.find(rule) != std::string::npos);
  const Outcome bench = run_well(Args{"bench", "--json", "--steps", "1"} + fresh);
  CHECK(nlohmann::json::parse(bench.out)["mini"] == 32);
}

TEST_CASE("a net by its name gets small minibatches for few images, the same ones in all commands") {
  // An epoch has at least 20 steps, of 16 images or more.
  for (const auto& [images, mini] : std::map<int, int>{
           {2560, 128}, {2559, 64}, {1280, 64}, {1279, 32}, {640, 32}, {639, 16}, {320, 16}, {16, 16}}) {
    INFO(images);
    StepOptions step;
    OptionTexts texts;
    const std::string note = choose_small_minibatch(step, texts, images, images);
    CHECK(step.mini == mini);
    CHECK(texts.at("mini") == std::to_string(mini));
    CHECK(note == (mini == 128 ? ""
                               : "Not given, and chosen for " + std::to_string(images) + " images: --mini " +
                                     std::to_string(mini)));
  }
  // No batch has fewer images than a minibatch, so nothing is chosen that a warning is about.
  for (const auto& [images, largest, mini, counted] :
       std::vector<std::tuple<int, int, int, std::string>>{{15, 15, 15, "15 images"},
                                                           {1, 1, 1, "1 image"},
                                                           {5, 1, 1, "5 images"},
                                                           {10000, 100, 100, "10000 images"}}) {
    INFO(counted);
    StepOptions step;
    OptionTexts texts;
    CHECK(choose_small_minibatch(step, texts, images, largest) ==
          "Not given, and chosen for " + counted + ": --mini " + std::to_string(mini));
    CHECK(texts.at("mini") == std::to_string(mini));
  }
  const Workshop shop;
  shop.write_data();
  const Args line = {"--data-path", shop.data_path(), "--layer-def", "small", "--threads", "1"};
  const Args saved = line + Args{"--save-file", shop / "run"};
  const std::string note = "Not given, and chosen for 40 images: --mini 16\n";
  const Outcome planned = run_well(Args{"plan", "--json"} + line);
  CHECK_THAT(planned.err, Catch::Contains(note));
  CHECK(nlohmann::json::parse(planned.out)["images"] == 16);
  const Outcome bench = run_well(Args{"bench", "--json", "--steps", "1"} + line);
  CHECK_THAT(bench.err, Catch::Contains(note));
  CHECK(nlohmann::json::parse(bench.out)["mini"] == 16);
  const Outcome placed = run_well(Args{"place", "--json", "--data-provider", "mnist", "--gpu", "0,1",
                                       "--model", model_with_memory(shop, 1e9)} +
                                  line);
  CHECK_THAT(placed.err, Catch::Contains(note));
  CHECK(nlohmann::json::parse(placed.out)["images"] == 16);
  const Outcome run = run_well(saved + Args{"--epochs", "1"});
  CHECK_THAT(run.out, Catch::Contains(note));
  const Checkpoint saved_run = read_checkpoint(shop / "run/1.1.safetensors");
  CHECK(saved_run.options.at("mini") == "16");
  // The rates follow the minibatch.
  CHECK_THAT(run.out, Catch::Contains("--rate-factor 0.125 (the rates are for larger minibatches)\n"));
  CHECK(saved_run.options.at("rate-factor") == "0.125");
  const Outcome resumed = run_well(saved + Args{"--epochs", "2"});
  CHECK_THAT(resumed.out, !Catch::Contains("chosen for 40 images"));
  CHECK(read_checkpoint(shop / "run/2.1.safetensors").options.at("mini") == "16");
  const Outcome replanned = run_well(Args{"plan", "--json"} + saved);
  CHECK_THAT(replanned.err, !Catch::Contains("chosen for 40 images"));
  CHECK(nlohmann::json::parse(replanned.out)["images"] == 16);
  // A minibatch that is given stays, and so does that of a run that names its parameters.
  for (const Args& more : std::vector<Args>{{"--mini", "20"}, {"--layer-params", "small-params.cfg"}})
    CHECK_THAT(run_well(Args{"plan"} + line + more).err, !Catch::Contains("chosen for 40 images"));
}

TEST_CASE("a net by its name gets smaller rates for few images and for weights that are copied") {
  const Workshop shop;
  shop.write_data();
  const Args line = {
      "--data-path", shop.data_path(), "--layer-def", "small", "--threads", "1", "--epochs", "1"};
  const auto factor = [&](const std::string& into, const Args& more) {
    run_well(line + Args{"--save-file", shop / into} + more);
    const OptionTexts options = read_checkpoint(shop / into).options;
    return options.contains("rate-factor") ? options.at("rate-factor") : "";
  };
  CHECK(factor("new", {}) == "0.125");
  CHECK(factor("copied", {"--init-from", shop / "new"}) == "0.0125");
  CHECK(factor("copied-16", {"--init-from", shop / "new", "--mini", "16"}) == "0.1");
  CHECK(factor("new-16", {"--mini", "16"}) == "");
  CHECK(factor("given", {"--init-from", shop / "new", "--rate-factor", "0.5"}) == "0.5");
  CHECK(factor("set", {"--init-from", shop / "new", "--set", "DEFAULT.epsw=0.001"}) == "");
  CHECK(factor("own", {"--init-from", shop / "new", "--layer-params", "small-params.cfg"}) == "");
}

TEST_CASE("option --mini auto keeps the number of a run that has not named one") {
  const Workshop shop;
  const Args line = shop.dummy() + Args{"--save-file", shop / "run"};
  run_well(line + Args{"--epochs", "1"});
  CHECK(run_well(line + Args{"--epochs", "2", "--mini", "auto"})
            .out.find("--mini auto: 128, as the run has begun\n") != std::string::npos);
}

TEST_CASE("option --mini auto takes the largest plans that fit four fifths of the memory of each device") {
  const Workshop shop;
  const auto planned = [&](double bytes, const Args& more) {
    return run_well(Args{"plan", "--json"} + shop.net() +
                    Args{"--data-provider", "dummy-1x8x8-10", "--mini", "auto", "--model",
                         model_with_memory(shop, bytes)} +
                    more);
  };
  int before = 0;
  for (const double bytes : {1.2e8, 4e8, 2e9}) {
    const Outcome run = planned(bytes, {});
    INFO(run.err);
    const nlohmann::json plan = nlohmann::json::parse(run.out);
    const int images = plan["images"];
    CHECK((images & (images - 1)) == 0);
    CHECK(images > before);
    before = images;
    const double needed = plan["prediction"]["memory"]["needed"];
    CHECK(needed <= 0.8 * bytes);
    CHECK(run.err.find(" whose plans need at most 80 % of the free memory ") != std::string::npos);
    // Twice as many do not fit.
    const Outcome twice = planned(bytes, {"--mini", std::to_string(2 * images)});
    CHECK(nlohmann::json::parse(twice.out)["prediction"]["memory"]["needed"].get<double>() > 0.8 * bytes);
  }
  const Outcome three = planned(4e8, {"--gpu", "0,1,2", "--parallel", "data"});
  const int images = nlohmann::json::parse(three.out)["images"];
  CHECK(images % 3 == 0);
  CHECK((images / 3 & (images / 3 - 1)) == 0);
  CHECK(three.err.find(", the largest power of two for each of 3 replicas whose") != std::string::npos);
}

TEST_CASE("option --mini auto is refused where it cannot be found") {
  const Workshop shop;
  const Args line = shop.net() + Args{"--data-provider", "dummy-1x8x8-10", "--mini", "auto"};
  const Outcome small =
      run_program({"plan", "--layer-def", "resnet18", "--data-provider", "dummy-3x64x64-1000", "--mini",
                   "auto", "--model", model_with_memory(shop, 2e6)});
  CHECK(small.code == 3);
  CHECK(small.err.find("--mini auto: even 1 image for each of 1 replica need ") != std::string::npos);
  check_refused(Args{"plan"} + line + Args{"--model", model_with_memory(shop, 0)},
                "--mini auto: the model has no 'memory'");
  check_refused(Args{"plan"} + line + Args{"--parallel", "auto"},
                "--mini auto and --parallel auto wait for each other");
  check_refused(Args{"place", "--model", "measured"} + line,
                "--mini expects an integer between 1 and 16777216, not 'auto'");
}

}  // namespace
}  // namespace convnet
