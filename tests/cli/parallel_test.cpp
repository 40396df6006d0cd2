// Several devices as a user meets them: what is printed, and checkpoints that do not know devices.
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"
#include "tests/larger.h"

namespace convnet {
namespace {

/// kDefinition on several devices: `gpu` for conv1, from which the others inherit, `fc` more lines of fc10.
std::string placed(const std::string& gpu, const std::string& fc = "") {
  return replaced(replaced(kDefinition, "filters=2\n", "filters=2\n" + gpu + "\n"), "outputs=10\n",
                  "outputs=10\n" + fc + "\n");
}

Args options(const Workshop& shop, const std::string& folder, const std::string& gpus, int epochs) {
  return shop.dummy() + Args{"--save-file",  folder, "--epochs", std::to_string(epochs),
                             "--test-freq",  "1",    "--mini",   "50",
                             "--test-range", "3",    "--gpu",    gpus};
}

/// ||a - b|| / ||b||, the largest over all tensors; which must be the same ones.
double difference(const std::string& a, const std::string& b) {
  const TensorFile first = read_safetensors(a), second = read_safetensors(b);
  REQUIRE(first.tensors.size() == second.tensors.size());
  double worst = 0;
  for (const auto& [name, tensor] : second.tensors) {
    INFO(name);
    REQUIRE(first.tensors.contains(name));
    const std::vector<float>& other = first.tensors.at(name).values;
    REQUIRE(other.size() == tensor.values.size());
    double d = 0, n = 1e-30;
    for (std::size_t i = 0; i < other.size(); ++i) {
      d += std::pow(static_cast<double>(other[i]) - static_cast<double>(tensor.values[i]), 2);
      n += std::pow(static_cast<double>(tensor.values[i]), 2);
    }
    worst = test::larger(worst, std::sqrt(d / n));
  }
  return worst;
}

TEST_CASE("checkpoints go from 4 devices to 2, to 1 and back to 4") {
  const Workshop shop;
  shop.write(kDefinition, kParameters);
  run_well(options(shop, shop / "straight", "0", 4));

  // The definition may change where layers run when a run goes on.
  const Args definition = {"--layer-def", shop / "net.cfg"};
  shop.write(placed("gpu=0,1,2,3"), kParameters);
  run_well(options(shop, shop / "moved", "0,1,2,3", 1));
  shop.write(placed("gpu=0,1", "gpu=1"), replaced(kParameters, "wc=0.001\n", "wc=0.001\nupdatePeriod=2\n"));
  run_well(options(shop, shop / "moved", "0,1", 2));
  shop.write(kDefinition, kParameters);
  run_well(options(shop, shop / "moved", "0", 3));
  shop.write(placed("gpu=3", "parallel=model\ngpu=0,1,2,3"), kParameters);
  run_well(options(shop, shop / "moved", "0,1,2,3", 4));
  CHECK(difference(shop / "moved/4.2.safetensors", shop / "straight/4.2.safetensors") < 1e-4);

  // Another net is refused.
  shop.write(replaced(kDefinition, "filters=2\n", "filters=2\nbiases=0\ngpu=0\n"), kParameters);
  const Outcome other = run_program(options(shop, shop / "moved", "0", 5));
  CHECK(other.code == 2);
  CHECK(other.err.find("another net") != std::string::npos);
}

TEST_CASE("without a definition a resumed run needs the devices of the checkpoint's") {
  const Workshop shop;
  shop.write(placed("gpu=0,1"), kParameters);
  run_well(options(shop, shop / "out", "0,1", 1));
  const Outcome one = run_program({"train", "--load-file", shop / "out", "--gpu", "0", "--epochs", "2"});
  CHECK(one.code == 2);
  CHECK(one.err.find("the layers need 2, like --gpu 0,1") != std::string::npos);
  run_well({"train", "--load-file", shop / "out", "--gpu", "0", "--epochs", "2", "--parallel", "data"});
}

TEST_CASE("a run says how its devices change what it learns") {
  const Workshop shop;
  const auto notes = [&](const std::string& definition, const std::string& parameters, const Args& more) {
    static int runs = 0;
    shop.write(definition, parameters);
    const std::string out =
        run_well(options(shop, shop / ("notes" + std::to_string(++runs)), "0,1", 1) + more).out;
    return out.substr(0, out.find("1.1 ("));
  };
  const std::string period = replaced(kParameters, "wc=0.001\n", "wc=0.001\nupdatePeriod=2\n");
  CHECK_THAT(
      notes(placed("gpu=0,1", "gpu=1"), kParameters, {}),
      Catch::Contains("Note: 'fc10' is updated up to 2 times in a minibatch, which takes 2 passes, and "
                      "so learns otherwise than on one device; updatePeriod=2 makes one update of a "
                      "minibatch\n"));
  CHECK_THAT(notes(placed("gpu=0,1", "gpu=1"), period, {}), !Catch::Contains("updated up to"));
  CHECK_THAT(notes(placed("gpu=0,1"), kParameters, {}), !Catch::Contains("updated up to"));
  CHECK_THAT(
      notes(placed("gpu=0,1", "gpu=1"), kParameters, {"--test-only", "1", "--load-file", shop / "notes1"}),
      !Catch::Contains("updated up to"));

  const std::string below = "[bn]\ntype=bnorm\ninputs=conv1\n", read = "[pool1]\ntype=pool\ninputs=";
  const auto normalised = [&](const std::string& gpu, const std::string& fc) {
    return replaced(placed(gpu, fc), read + "conv1", below + read + "bn");
  };
  const std::string learned = period + "[bn]\nepsW=0.01\nepsB=0.01\nmomW=0\nmomB=0\n";
  const std::string whole = normalised("gpu=0,1", "");
  CHECK_THAT(notes(whole, learned, {}), !Catch::Contains("normalises"));
  CHECK_THAT(notes(whole, learned, {"--microbatches", "5"}),
             Catch::Contains("Note: 'bn' normalises over 10 of the 50 images of a minibatch\n"));
  CHECK_THAT(notes(replaced(whole, "inputs=conv1\n[pool1]", "inputs=conv1\nsync=0\n[pool1]"), learned, {}),
             Catch::Contains("Note: 'bn' normalises over 25 of the 50 images of a minibatch\n"));
  CHECK_THAT(notes(normalised("gpu=0", "gpu=0,1"), learned, {}),
             Catch::Contains("Note: 'bn' normalises over 25 of the 50 images of a minibatch\n"));
}

TEST_CASE("devices, slices and passes are printed at the start") {
  const Workshop shop;
  shop.write(placed("gpu=0,1", "gpu=1"), kParameters);
  const Outcome run =
      run_well(options(shop, shop / "out", "5,3", 1) + Args{"--verbose", "--mini", "33", "--threads", "2"});
  INFO(run.out);
  CHECK(run.out.find(
            "Devices: cpu:5,3, 1 thread(s) each; minibatches of 33 images, 17 a replica on 2 replicas, "
            "in 2 passes") != std::string::npos);
  CHECK(run.out.find("% communication") != std::string::npos);
  CHECK(run.out.find("% devices waiting for each other, ") != std::string::npos);
  CHECK(run.out.find("% waiting for data") != std::string::npos);
  const Outcome unused = run_well(options(shop, shop / "out2", "0,1,2", 1));
  CHECK(unused.err.find("the run has 3 devices, but the layers use 2") != std::string::npos);
  shop.write(placed("gpu=2", "gpu=2"), kParameters);
  CHECK_THAT(run_well(options(shop, shop / "out3", "0,1,2", 1)).err,
             Catch::Contains("the run has 3 devices, but the layers use 1"));
}

TEST_CASE("option --parallel data puts every layer on all devices, whatever the file says") {
  const Workshop shop;
  shop.write(kDefinition, kParameters);
  run_well(options(shop, shop / "one", "0", 2));
  shop.write(placed("gpu=7", "parallel=model\ngpu=4,5,6"),
             replaced(kParameters, "wc=0.001\n", "wc=0.001\nupdatePeriod=1\n"));
  const Outcome run = run_well(options(shop, shop / "three", "0,1,2", 2) + Args{"--parallel", "data"});
  CHECK(run.err.find("updatePeriod") == std::string::npos);  // the file's placement has one pass, too
  CHECK(run.out.find("on 3 replicas, in 1 pass") != std::string::npos);
  CHECK(difference(shop / "three/2.2.safetensors", shop / "one/2.2.safetensors") < 1e-4);
}

TEST_CASE(
    "minibatches that are cut into microbatches train the same net, resume bit for bit and are printed") {
  const Workshop shop;
  shop.write(kDefinition, kParameters);
  run_well(options(shop, shop / "whole", "0", 2));
  const Args cut = {"--microbatches", "3"};
  const Outcome one = run_well(options(shop, shop / "cut", "0", 2) + cut);
  CHECK(one.out.find("minibatches of 50 images, in microbatches of 17") != std::string::npos);
  CHECK(difference(shop / "cut/2.2.safetensors", shop / "whole/2.2.safetensors") < 1e-4);
  // The option is stored. Other bits come from sums in another order.
  run_well(options(shop, shop / "resumed", "0", 1) + cut);
  run_well({"train", "--load-file", shop / "resumed", "--epochs", "2"});
  CHECK(difference(shop / "resumed/2.2.safetensors", shop / "cut/2.2.safetensors") == 0);
  CHECK(difference(shop / "cut/2.2.safetensors", shop / "whole/2.2.safetensors") > 0);

  shop.write(placed("gpu=0", "gpu=1"), kParameters);
  const Outcome pipeline = run_well(options(shop, shop / "pipeline", "0,1", 1) + cut);
  CHECK(pipeline.out.find("in microbatches of 17, in a pipeline of 2 stages") != std::string::npos);
  run_well({"train", "--load-file", shop / "pipeline", "--epochs", "2", "--microbatches", "1"});
  CHECK(difference(shop / "pipeline/2.2.safetensors", shop / "whole/2.2.safetensors") < 1e-4);
  shop.write(placed("gpu=0,1", "gpu=1"), kParameters);
  const Outcome passes = run_well(options(shop, shop / "passes", "0,1", 1) + cut);
  CHECK(passes.out.find("25 a replica on 2 replicas, in 2 passes, in microbatches of 9") !=
        std::string::npos);

  const Args of_test = {"--test-only", "--test-range", "3"};
  const auto errors = [&](const Args& more) {
    const Outcome test = run_well(Args{"train", "--load-file", shop / "cut"} + of_test + more);
    return test.out.substr(test.out.find("logprob"));
  };
  CHECK(errors({}) == errors({"--microbatches", "1"}));
  CHECK(errors({}) == errors({"--microbatches", "50"}));
}

TEST_CASE("microbatches without images are refused by every command that takes them") {
  const Workshop shop;
  shop.write(placed("gpu=0,1"), kParameters);
  const Args net = shop.net() + Args{"--data-provider", "dummy-1x8x8-10", "--mini", "9", "--gpu", "0,1"};
  const std::string model = std::string(CONVNET_SOURCE_DIR) + "/bench/models/nvlink-8gpu.json";
  for (const auto& [command, more] : std::map<std::string, Args>{
           {"train", {"--save-file", shop / "out", "--train-range", "1", "--test-range", "2"}},
           {"plan", {}},
           {"bench", {}}}) {
    check_refused(Args{command} + net + more + Args{"--microbatches", "6"},
                  "--microbatches 6: a replica has 5 images of a minibatch of 9 (--mini); use at most 5");
    check_refused(Args{command} + net + more + Args{"--microbatches", "0"},
                  "--microbatches expects an integer between 1 and 1024, not '0'");
  }
  check_refused(Args{"place"} + net + Args{"--model", model, "--microbatches", "10"},
                "--microbatches 10: a replica has");
  for (const std::string command : {"plan", "bench"})
    run_well(Args{command} + net + Args{"--microbatches", "5"} +
             (command == "bench" ? Args{"--steps", "2"} : Args{}));
}

TEST_CASE("plan shows how a minibatch is cut, and that a pipeline is faster for it") {
  const Workshop shop;
  shop.write(placed("gpu=0", "gpu=1"), kParameters);
  const std::string model = std::string(CONVNET_SOURCE_DIR) + "/bench/models/nvlink-8gpu.json";
  const auto plan = [&](const Args& more) {
    return run_well(Args{"plan"} + shop.net() +
                    Args{"--data-provider", "dummy-1x8x8-10", "--mini", "65536", "--model", model} + more);
  };
  const Args two = {"--gpu", "0,1"}, cut = {"--microbatches", "4"}, json = {"--json", "1"};
  CHECK(plan(two + cut).out.find(
            "\n4 microbatches of 16384 images; 1 pass a minibatch; a pipeline of 2 stages\n") !=
        std::string::npos);
  CHECK(plan({"--parallel", "data", "--microbatches", "4"})
            .out.find("\n4 microbatches of 16384 images; 1 pass a minibatch\n") != std::string::npos);
  const auto step_of = [&](const Args& args) {
    const nlohmann::json of = nlohmann::json::parse(plan(args + json).out);
    return of.at("prediction").at("step_seconds").get<double>();
  };
  CHECK(step_of(two + cut) < step_of(two));
}

/// Every cost of a run's history, in order.
std::vector<double> costs_of(const std::string& checkpoint) {
  const auto state = nlohmann::json::parse(read_safetensors(checkpoint).metadata.at("state"));
  std::vector<double> costs;
  for (const nlohmann::json& entry : state.at("history"))
    for (const nlohmann::json& sum : entry.at("sums"))
      for (const nlohmann::json& value : sum.at(1)) costs.push_back(value.get<double>());
  return costs;
}

TEST_CASE("two devices have the costs of one with optimisers, averages, clipping and augmentation together") {
  const Workshop shop;
  shop.write_data();
  // The convolution has no biases: their gradient below bnorm is 0, and optimisers that divide by its size
  // would learn from its rounding.
  const std::string definition =
      replaced(kDefinition, "filters=2\nfilterSize=3\nneuron=relu\n",
               "filters=4\nfilterSize=3\nbiases=0\n[bn]\ntype=bnorm\ninputs=conv1\nneuron=relu\n");
  const std::string net =
      replaced(replaced(definition, "inputs=conv1\npool=max\nchannels=2", "inputs=bn\npool=max\nchannels=4"),
               "dropout=0.25\n", "");
  const std::string rates = "epsW=0.01\nepsB=0.01\nmomW=0.9\nmomB=0.9\nwc=0.01\n";
  const auto layer = [&](const std::string& name, const std::string& optimizer) {
    return "[" + name + "]\noptimizer=" + optimizer + "\n" + rates +
           (optimizer == "rmsprop" ? "adamEpsilon=0.5\n" : "");
  };
  const Args augmented = {"--mixup",    "0.4", "--cutmix",          "1",   "--flip",         "1",
                          "--shuffle",  "1",   "--random-erasing",  "0.5", "--inner-size",   "6",
                          "--crop-pad", "1",   "--trivial-augment", "1",   "--color-jitter", "0.4"},
             learning = {"--ema", "0.8", "--clip-norm", "0.5", "--epochs", "3", "--test-freq", "1"};
  const std::vector<std::string> kinds = {"adamw", "lars", "nesterov", "rmsprop"};
  for (std::size_t first = 0; first < kinds.size(); ++first) {
    shop.write(net, layer("conv1", kinds[first]) + layer("bn", kinds[(first + 1) % 4]) +
                        layer("fc10", kinds[(first + 2) % 4]) +
                        "[logprob]\ncoeff=1\ntopk=2\nsmoothing=0.1\n");
    const auto trained = [&](const std::string& gpus) {
      const std::string folder = shop / (kinds[first] + gpus);
      run_well(shop.mnist() + augmented + learning +
               Args{"--save-file", folder, "--gpu", gpus, "--parallel", "data"});
      return costs_of(folder + "/3.1.safetensors");
    };
    const std::vector<double> one = trained("0"), two = trained("0,1");
    // Three batches and three tests, of three values each.
    REQUIRE(one.size() == 18);
    REQUIRE(two.size() == one.size());
    CHECK(std::abs(one[15] - one[3]) > 3e-4 * one[3]);  // the test's cost: it learns something
    for (std::size_t i = 0; i < one.size(); ++i) {
      INFO(kinds[first] << " below, value " << i << ": " << one[i] << " and " << two[i]);
      CHECK(std::abs(two[i] - one[i]) <= 1e-6 * std::abs(one[i]));
    }
  }
}

TEST_CASE("an update over several minibatches resumes bit for bit") {
  const Workshop shop;
  shop.write(placed("gpu=0,1"), replaced(kParameters, "wc=0.001\n", "wc=0.001\nupdatePeriod=3\n"));
  run_well(options(shop, shop / "straight", "0,1", 2));
  // 20 minibatches a batch: neither batch ends with an update of fc10.
  run_well(options(shop, shop / "resumed", "0,1", 1));
  const TensorFile open = read_safetensors(shop / "resumed/1.2.safetensors");
  CHECK(open.tensors.contains("fc10.weightsGrad.pool1"));
  CHECK(open.tensors.contains("fc10.biasesGrad"));
  CHECK_FALSE(open.tensors.contains("conv1.weightsGrad.data"));
  run_well(options(shop, shop / "resumed", "0,1", 2));
  CHECK(difference(shop / "resumed/2.2.safetensors", shop / "straight/2.2.safetensors") == 0);

  // An edited period starts a new sum.
  shop.write(placed("gpu=0,1"), replaced(kParameters, "wc=0.001\n", "wc=0.001\nupdatePeriod=7\n"));
  run_well(options(shop, shop / "resumed", "0,1", 3));
}

nlohmann::json json_file(const std::string& path) { return nlohmann::json::parse(std::ifstream(path)); }

/// Returns the rows (device, stream) of a Chrome trace that hold tasks.
std::set<std::pair<int, int>> rows_of(const nlohmann::json& trace) {
  std::set<std::pair<int, int>> rows;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") rows.insert({event.at("pid").get<int>(), event.at("tid").get<int>()});
  }
  return rows;
}

TEST_CASE("plan predicts a step from a machine's file, and by timing operations here") {
  const Workshop shop;
  shop.write(placed("gpu=0,1", "gpu=1"), kParameters);
  const Args plan =
      Args{"plan"} + shop.net() + Args{"--data-provider", "dummy-1x8x8-10", "--mini", "64", "--gpu", "0,1"};
  const std::string model = std::string(CONVNET_SOURCE_DIR) + "/bench/models/nvlink-8gpu.json";
  for (const std::string& which : {model, std::string("measured")}) {
    INFO(which);
    const Outcome run = run_well(plan + Args{"--model", which, "--trace", shop / "t.json", "--json"});
    const nlohmann::json prediction = nlohmann::json::parse(run.out).at("prediction");
    CHECK(prediction.at("step_seconds").get<double>() > 0);
    CHECK(prediction.at("step_seconds_on_one_device").get<double>() > 0);
    CHECK(prediction.at("devices").size() == 2);
    CHECK(rows_of(json_file(shop / "t.json")).size() >= 4);
  }
  const Outcome text = run_well(plan + Args{"--model", model});
  CHECK(text.out.find("2 microbatches of 32 images; 2 passes a minibatch") != std::string::npos);
  CHECK(text.out.find("critical path") != std::string::npos);
  // Eight tiny images do not pay for two GPUs.
  CHECK(text.err.find("slower") != std::string::npos);

  CHECK(text.err.find("describes a machine") == std::string::npos);
  const Args nine = {"--data-provider", "dummy-1x8x8-10", "--mini", "90", "--gpu", "0-8",
                     "--parallel",      "data",           "--model"};
  CHECK_THAT(run_well(Args{"plan"} + shop.net() + nine + Args{model}).err,
             Catch::Contains("warning: " + model +
                             " describes a machine of 8 devices, and the prediction is "
                             "for 9: what lies between machines is left out\n"));

  const Outcome no_model = run_program(plan + Args{"--trace", shop / "t.json"});
  CHECK(no_model.code == 2);
  CHECK(no_model.err.find("--model") != std::string::npos);
  const Outcome no_file = run_program(plan + Args{"--model", shop / "none.json"});
  CHECK(no_file.code == 2);
  CHECK(no_file.err.find("none.json") != std::string::npos);
}

TEST_CASE("plan says whether the net fits the memory of a machine, and predicts by precision") {
  const Workshop shop;
  shop.write(placed("gpu=0,1"), kParameters);
  const auto planned = [&](const std::string& more) {
    const std::string file = shop / "machine.json";
    write_file(file, R"({"name": "m", "source": "made up", "memory_bandwidth": 1e15, "link_bandwidth": 1e15,
                         "host_bandwidth": 1e15, )" +
                         more + "}");
    return Args{"plan"} + shop.net() +
           Args{"--data-provider", "dummy-1x8x8-10", "--mini", "4096", "--gpu", "0,1", "--model", file};
  };
  const auto memory_of = [](const Args& args) {
    return nlohmann::json::parse(run_well(args + Args{"--json", "1"}).out).at("prediction").at("memory");
  };
  const Args unknown = planned(R"("flops": 1e9)");
  const double needed = memory_of(unknown).at("needed").get<double>();
  CHECK(needed > 2 << 20);
  CHECK(memory_of(unknown).at("fits").is_null());
  CHECK(run_well(unknown).out.find("the model has no 'memory' that says whether this fits") !=
        std::string::npos);
  const Args large =
      planned(R"("flops": 1e9, "memory": )" + std::to_string(static_cast<std::int64_t>(needed)));
  CHECK(memory_of(large).at("fits").get<bool>());
  const Args small =
      planned(R"("flops": 1e9, "memory": )" + std::to_string(static_cast<std::int64_t>(needed) - 1));
  CHECK_FALSE(memory_of(small).at("fits").get<bool>());
  CHECK(run_well(small).out.find("memory: DOES NOT FIT: the fullest device") != std::string::npos);

  const Args rates = planned(R"("flops": {"fp32": 1e6, "bf16": 1e7})");
  const auto predicted = [&](const std::string& precision) {
    const Args args = rates + Args{"--device", "cpu", "--precision", precision, "--json", "1"};
    return nlohmann::json::parse(run_well(args).out)["prediction"]["step_seconds"].get<double>();
  };
  CHECK(predicted("fp32") == Approx(10 * predicted("bf16")).epsilon(0.01));
  check_refused(rates + Args{"--device", "cuda", "--precision", "tf32"},
                "machine.json: has no 'flops' for tf32");
}

TEST_CASE("plan sums up what many devices do") {
  const Workshop shop;
  shop.write(kDefinition, kParameters);
  const Outcome run = run_well(
      Args{"plan"} + shop.net() +
      Args{"--data-provider", "dummy-1x8x8-10", "--mini", "200", "--gpu", "0-19", "--parallel", "data"});
  INFO(run.out);
  for (const char* part : {"20 microbatches of 10 images; 1 pass a minibatch\n",
                           "devices 0-19: ", "bytes a step that come", "  0-19\n"})
    CHECK(run.out.find(part) != std::string::npos);
  CHECK(run.out.find("from (down) to (across)") == std::string::npos);
  const Outcome eleven = run_well(
      Args{"plan"} + shop.net() +
      Args{"--data-provider", "dummy-1x8x8-10", "--mini", "113", "--gpu", "0-10", "--parallel", "data"});
  INFO(eleven.out);
  CHECK(eleven.out.find("11 microbatches of images: 10 of 11, 1 of 3; 1 pass") != std::string::npos);
  CHECK(eleven.out.find("\n     2 ") < eleven.out.find("\n    10 "));  // rows in the order of numbers
  CHECK(eleven.out.find("\n    10 ") < eleven.out.find("\n  host "));
}

TEST_CASE("option --profile writes the measured timeline") {
  const Workshop shop;
  shop.write(placed("gpu=0,1"), kParameters);
  run_well(options(shop, shop / "out", "0,1", 1) + Args{"--profile", shop / "train.json"});
  CHECK(rows_of(json_file(shop / "train.json")).size() >= 4);
  const Args again = options(shop, shop / "out2", "0,1", 1);
  check_refused(again + Args{"--profile", shop.definition_path() + "/t.json"}, "is not a folder");
  check_refused(again + Args{"--profile", shop.definition_path()}, "is a file that the command reads");
  CHECK_FALSE(std::filesystem::exists(shop / "out2"));
  check_refused({"--load-file", shop / "out", "--test-only", "1", "--profile", shop / "t.json"},
                "--profile is a timeline of training, and --test-only does not train");
  // A run that fails leaves an earlier timeline.
  check_refused(
      Args{"bench"} + shop.net() +
          Args{"--data-provider", "dummy-1x2x2-10", "--gpu", "0,1", "--profile", shop / "train.json"},
      "net.cfg");
  CHECK(rows_of(json_file(shop / "train.json")).size() >= 4);
  run_well(Args{"bench"} + shop.net() +
           Args{"--data-provider", "dummy-1x8x8-10", "--mini", "16", "--steps", "3", "--gpu", "0,1",
                "--profile", shop / "bench.json"});
  CHECK(rows_of(json_file(shop / "bench.json")).size() >= 4);
  run_well(Args{"bench"} + shop.net() +
           Args{"--data-provider", "dummy-1x8x8-10", "--mini", "16", "--steps", "3", "--gpu", "0,1",
                "--profile", shop / "bench.json"});
}

TEST_CASE("gradient checks take all passes of a minibatch, whatever the update period") {
  const std::string net = std::string(CONVNET_SOURCE_DIR) + "/tests/nets/seed-hybrid";
  const TempFolder folder;
  const Outcome run =
      run_well({"train", "--layer-def", net + ".cfg", "--layer-params", net + "-params.cfg",
                "--data-provider", "dummy-3x24x24-10", "--train-range", "1", "--test-range", "2", "--gpu",
                "0,1", "--mini", "6", "--check-grads", "1", "--save-file", folder / "out"});
  CHECK(run.out.find("gradients are right") != std::string::npos);
}

TEST_CASE("a model-parallel layer without gpu= has the devices that its input is divided over") {
  const Workshop shop;
  shop.write(replaced(replaced(kDefinition, "outputs=10\n", "outputs=10\nparallel=model\n"), "[fc10]",
                      "[fc5]\ntype=fc\ninputs=pool1\noutputs=5\nparallel=model\ngpu=1,0\n[fc10]"),
             replaced(kParameters, "[fc10]", "[fc5]\nepsW=0.01\nepsB=0.02\nmomW=0.9\nmomB=0.8\n[fc10]"));
  const std::string text =
      replaced(read_file(shop.definition_path()), "inputs=pool1\noutputs=10", "inputs=fc5\noutputs=10");
  shop.write(text, read_file(shop.parameters_path()));
  const Outcome run = run_well(Args{"plan"} + shop.net() +
                               Args{"--data-provider", "dummy-1x8x8-10", "--mini", "8", "--gpu", "0,1"});
  for (const char* part : {"fc5/0", "fc5/1", "fc10/0", "fc10/1", "fc10_dropout/1"})
    CHECK(run.out.find(part) != std::string::npos);
}

TEST_CASE("conversions go together with another placement") {
  const Workshop shop;
  shop.write(placed("gpu=0,1"), kParameters);
  run_well(options(shop, shop / "out", "0,1", 1));
  shop.write(kDefinition, kParameters);
  run_well(options(shop, shop / "out", "0", 2) + Args{"--conv-to-local", "conv1"});
  CHECK(read_safetensors(shop / "out/2.2.safetensors").tensors.at("conv1.weights.data").dims.size() == 6);
}

TEST_CASE("the multi-device examples repeat their bits") {
  const Workshop shop;
  for (const std::string net : {"seed-data", "seed-model", "seed-two-tower", "seed-hybrid"}) {
    INFO(net);
    const std::string path = std::string(CONVNET_SOURCE_DIR) + "/tests/nets/" + net;
    for (const std::string folder : {"a", "b"})
      run_well({"train",
                "--layer-def",
                path + ".cfg",
                "--layer-params",
                path + "-params.cfg",
                "--data-provider",
                "dummy-3x24x24-10",
                "--train-range",
                "1",
                "--test-range",
                "2",
                "--epochs",
                "1",
                "--test-freq",
                "1",
                "--gpu",
                "0,1,2,3",
                "--mini",
                "90",
                "--save-file",
                shop / (net + folder)});
    CHECK(difference(shop / (net + "a/1.1.safetensors"), shop / (net + "b/1.1.safetensors")) == 0);
  }
}

}  // namespace
}  // namespace convnet
