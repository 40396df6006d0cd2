// convnet place and --parallel auto as a user meets them: the table, the files, errors, training and
// resuming.
#include <sys/stat.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/equal_tensors.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

const std::string kModels = CONVNET_SOURCE_DIR "/bench/models/";

/// Slow links, so that a small net has something to choose.
Args machine() { return {"--device", "cpu", "--model", kModels + "nvlink-8gpu.json"}; }

Args placing(const Workshop& shop, const Args& more = {}) {
  return Args{"place"} + shop.net() +
         Args{"--data-provider", "dummy-1x8x8-10", "--mini", "400", "--gpu", "0,1,2,3"} + machine() + more;
}

nlohmann::json best_of(const Args& args) {
  return nlohmann::json::parse(run_well(args + Args{"--json", "1"}).out)["candidates"][0];
}

Args training(const Workshop& shop, const std::string& folder, int epochs) {
  return shop.dummy() + machine() + Args{"--parallel",   "auto", "--gpu",    "0,1",
                                         "--save-file",  folder, "--epochs", std::to_string(epochs),
                                         "--test-freq",  "1",    "--mini",   "50",
                                         "--test-range", "3"};
}

}  // namespace

TEST_CASE("place prints candidates and writes the best as files that plan and train") {
  const Workshop shop;
  const Args out = {"--out", shop / "placed.cfg", "--out-params", shop / "placed-params.cfg"};
  const Outcome run = run_well(placing(shop, out));
  INFO(run.out);
  CHECK(run.err.find("describes a machine") == std::string::npos);
  CHECK_THAT(run_well(placing(shop, {"--gpu", "0-8", "--top", "1"})).err,
             Catch::Contains("describes a machine of 8 devices, and the prediction is for 9"));
  for (const char* part :
       {"candidates simulated", "candidates fit into 30518 MiB of each device", "step ms",
        "one device: all on 1", "data on 4: all on 4",
        "hybrid on 4: conv1 to pool1 on 4; fc10 to logprob divided over 4", "communication"})
    CHECK(run.out.find(part) != std::string::npos);
  CHECK(run.out.find("train it with --layer-def " + shop / "placed.cfg") != std::string::npos);
  const nlohmann::json best = best_of(placing(shop));
  CHECK(read_file(shop / "placed.cfg").find(best["description"].get<std::string>()) != std::string::npos);

  const Args placed = {"--layer-def", shop / "placed.cfg", "--layer-params", shop / "placed-params.cfg"};
  const Args plan =
      Args{"plan",    "--json",    "1", "--data-provider", "dummy-1x8x8-10", "--mini", "400", "--gpu",
           "0,1,2,3", "--threads", "1"} +
      machine() + placed;
  const nlohmann::json planned = nlohmann::json::parse(run_well(plan).out);
  CHECK(planned["prediction"]["step_seconds"].get<double>() == Approx(best["step_seconds"].get<double>()));
  run_well(shop.dummy() + placed +
           Args{"--save-file", shop / "run", "--epochs", "1", "--gpu", "0,1,2,3", "--mini", "400", "--device",
                "cpu"});
}

TEST_CASE("place keeps what candidates the file itself has, and tells how many there are") {
  const Workshop shop;
  shop.write(replaced(kDefinition, "filters=2\n", "filters=2\ngpu=2,3\n"), kParameters);
  const Outcome run = run_well(placing(shop, {"--top", "1"}));
  CHECK(run.out.find("file: the gpu= lines of the file") != std::string::npos);
  const nlohmann::json all =
      nlohmann::json::parse(run_well(placing(shop, {"--json", "1", "--exhaustive", "1"})).out);
  CHECK(all["exhaustive"].get<bool>());
  CHECK(all["simulated"] == all["possible"]);
  CHECK(all["candidates"][0]["speed_up"].get<double>() >= 1);
  CHECK_FALSE(all["candidates"][0]["layers"]["conv1"]["gpu"].empty());
}

TEST_CASE("place refuses what cannot be placed or written, and writes nothing then") {
  const Workshop shop;
  const Args both = {"--out", shop / "a.cfg", "--out-params", shop / "b.cfg"};
  check_refused(Args{"place"} + shop.net() + Args{"--data-provider", "dummy-1x8x8-10"},
                "missing: --model; --model measured times the operations on this machine");
  check_refused(placing(shop, {"--out", shop / "a.cfg"}), "--out and --out-params belong together");
  check_refused(placing(shop, {"--out", shop / "net.cfg", "--out-params", shop / "b.cfg"}),
                "is a file that the command reads");
  check_refused(placing(shop, {"--layer-path", shop.path(), "--layer-def", "net.cfg", "--layer-params",
                               "params.cfg", "--out", shop / "params.cfg", "--out-params", shop / "b.cfg"}),
                "is a file that the command reads");
  check_refused(placing(shop, {"--out", shop / "a.cfg", "--out-params", shop / "a.cfg"}), "the same file");
  check_refused(placing(shop, Args{"--memory-limit", "0.01"} + both),
                "no placement fits into the 0 MiB of each device");
  check_refused(placing(shop, Args{"--memory-limit", "0.01"} + both),
                "more --microbatches, a smaller --mini or --conserve-mem 1");
  check_refused(placing(shop, Args{"--gpu", "0,1,2", "--hosts", "2x2"} + both), "needs 4 devices");
  check_refused(placing(shop, Args{"--model", shop / "none.json"} + both), "none.json");
  check_refused(placing(shop, {"--out", shop / "a.cfg", "--out-params", "/proc/none/b.cfg"}),
                "/proc/none: no such folder");
  write_file(shop / "b.cfg", "# by hand\n" + std::string(kParameters));
  check_refused(placing(shop, both), "or that was edited");
  std::filesystem::remove(shop / "b.cfg");
  shop.write(replaced(kDefinition, "type=conv", "type=cnov"), kParameters);
  check_refused(placing(shop, both), "did you mean 'conv'");
  CHECK(files_in(shop.path()) == std::vector<std::string>{"net.cfg", "params.cfg"});
}

TEST_CASE("training with --parallel auto goes on where it began, bit for bit") {
  const Workshop shop;
  const Outcome straight = run_well(training(shop, shop / "straight", 3));
  INFO(straight.out);
  CHECK(straight.out.find("Placement: ") != std::string::npos);
  run_well(training(shop, shop / "parts", 1));
  const Outcome resumed = run_well({"--load-file", shop / "parts", "--epochs", "3"});
  CHECK(resumed.out.find("Placement: ") == std::string::npos);  // it is the checkpoint's
  check_equal_tensors(shop / "parts/3.2.safetensors", shop / "straight/3.2.safetensors");
  CHECK(read_safetensors(shop / "parts/3.2.safetensors").metadata.at("placement").find("[conv1]\ngpu=") !=
        std::string::npos);

  // Other devices need another placement, and learning is that of one device.
  const Outcome more = run_well({"--load-file", shop / "parts", "--epochs", "4", "--gpu", "0,1,2", "--model",
                                 kModels + "nvlink-8gpu.json"});
  CHECK(more.out.find("Placement: ") != std::string::npos);
  run_well(shop.dummy() + Args{"--gpu", "0", "--save-file", shop / "one", "--epochs", "3", "--test-freq", "1",
                               "--mini", "50"});
  const TensorFile one = read_safetensors(shop / "one/3.2.safetensors"),
                   found = read_safetensors(shop / "straight/3.2.safetensors");
  for (const auto& [name, tensor] : one.tensors) {
    INFO(name);
    double difference = 0, size = 1e-30;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      difference += std::pow(double{tensor.values[i]} - double{found.tensors.at(name).values[i]}, 2);
      size += std::pow(double{tensor.values[i]}, 2);
    }
    CHECK(std::sqrt(difference / size) < 1e-4);
  }
}

TEST_CASE("plan and bench take --parallel auto") {
  const Workshop shop;
  const Args net =
      shop.net() +
      Args{"--data-provider", "dummy-1x8x8-10", "--mini", "64", "--gpu", "0,1", "--parallel", "auto"};
  const Outcome plan = run_well(Args{"plan"} + net + machine());
  CHECK(plan.out.find("Placement: ") == 0);
  const Outcome measured = run_well(Args{"plan"} + net + Args{"--device", "cpu"});
  CHECK(measured.out.find("predicted for this machine, measured") != std::string::npos);
  const Outcome bench = run_well(Args{"bench", "--steps", "2"} + net + machine());
  CHECK(bench.out.find("Placement: ") == 0);
  check_refused(Args{"bench", "--steps", "2"} + net + Args{"--model", shop / "none.json"}, "none.json");
  const Args as_written = {"--data-provider", "dummy-1x8x8-10", "--model", "measured"};
  for (const Args& command : {Args{"bench"}, Args{"--epochs", "1", "--save-file", shop / "run"}})
    check_refused(command + shop.net() + as_written,
                  "--model is the machine that --parallel auto places layers for");
}

TEST_CASE("measured predictions of one device with all threads do not mix with those of one thread") {
  const Workshop shop;
  const std::string net = std::string(CONVNET_SOURCE_DIR) + "/configs/lenet";
  const Outcome plan = run_well({"plan", "--layer-def", net + ".cfg", "--layer-params", net + "-params.cfg",
                                 "--data-provider", "dummy-1x28x28-10", "--gpu", "0,1", "--parallel", "data",
                                 "--model", "measured", "--device", "cpu", "--mini", "64", "--threads", "2"});
  CHECK(plan.out.find("one device alone: ") != std::string::npos);
}

TEST_CASE("place that is interrupted while it writes leaves no temporary file") {
  const Workshop shop;
  // Nobody reads the pipe, so the command waits with the other file half made.
  REQUIRE(mkfifo((shop / "params.pipe").c_str(), 0600) == 0);
  const std::vector<std::string> before = files_in(shop.path());
  Program program(placing(shop, {"--out", shop / "placed.cfg", "--out-params", shop / "params.pipe"}));
  // An empty one was only made in order to see whether it can be.
  const auto is_half_made = [&] {
    for (const std::string& name : files_in(shop.path())) {
      std::error_code gone;
      if (name.starts_with("placed.cfg.convnet-tmp-") && std::filesystem::file_size(shop / name, gone) > 0 &&
          !gone)
        return true;
    }
    return false;
  };
  bool half_made = false;
  for (int i = 0; i < 6000 && !half_made; ++i) {
    usleep(10'000);
    half_made = is_half_made();
  }
  REQUIRE(half_made);
  program.send(SIGINT);
  CHECK(program.finish().signal == SIGINT);
  CHECK(files_in(shop.path()) == before);
}

}  // namespace convnet
