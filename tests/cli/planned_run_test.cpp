// plan and bench take a command line of training as training would, with its checkpoint and its mistakes.
#include <nlohmann/json.hpp>

#include "providers/pickle_write.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

nlohmann::json planned(const Args& args) {
  return nlohmann::json::parse(run_well(Args{"plan", "--json"} + args).out);
}

/// Training, plan and bench must refuse a command line with the same message.
void check_all_refuse(const Args& line, const std::string& message,
                      const std::vector<Args>& commands = {{}, {"plan"}, {"bench", "--steps", "1"}}) {
  for (const Args& command : commands) check_refused(command + line, message);
}

TEST_CASE("the page of a run shows the plan that it has") {
  const Workshop shop;
  shop.write_data();
  const std::string run = shop / "run";
  run_well(shop.mnist() + Args{"--save-file", run, "--epochs", "1", "--ema", "0.9", "--clip-norm", "1"});
  const std::vector<std::string> lines = lines_of(run_well({"plan", "--load-file", run}).out);
  REQUIRE(lines != lines_of(run_well({"plan", "--load-file", run, "--ema", "0", "--clip-norm", "0"}).out));
  for (const bool has_data : {true, false}) {
    if (!has_data) std::filesystem::remove_all(shop.data_path());
    run_well({"show", run, "--html", shop / "page.html"});
    const std::string page = read_file(shop / "page.html");
    for (const std::string& line : lines) {
      if (line.find_first_of("<>&\"'") == std::string::npos) CHECK_THAT(page, Catch::Contains(line));
    }
  }
}

TEST_CASE("plan and bench report the mistakes that training would report") {
  const Workshop shop;
  shop.write_data();
  const std::string file = shop / "note.txt", run = shop / "run";
  write_file(file, "no folder");
  run_well(shop.mnist() + Args{"--save-file", shop / "other", "--epochs", "1"});
  shop.write(replaced(kDefinition, "filterSize=3", "filterSize=5"), kParameters);
  const Args line = shop.mnist() + Args{"--epochs", "2"}, saved = line + Args{"--save-file", run};
  const std::vector<std::pair<Args, std::string>> mistakes = {
      {{"--keep-best", "logprop"}, "--keep-best logprop: there is no such cost; there are logprob, "},
      {{"--init-from", shop / "none"}, shop / "none"},
      {{"--init-from", file}, "note.txt"},
      {{"--logreg-name", "logprob"}, "--logreg-name is for --test-out, --confusion and --test-only"},
      {{"--patience", "3", "--plateau", "0.1,5"}, "--patience 3 ends training before --plateau 0.1,5"},
      {{"--check-grads", "--save-freq", "2"}, "--save-freq is for the checkpoints of training, and"},
      {{"--write-features", "fc10"}, "--write-features LAYER and --feature-path FOLDER need each other"},
      {{"--test-only"}, "--test-only tests a trained net: --load-file must name its checkpoint"},
      {{"--tensorboard", file}, file + ": is not a folder; event files are to be written to"},
      {{"--train-range", "4"}, "--train-range 4: batch 4 is not in"},
      {{"--multiview-test"}, "--multiview-test needs --inner-size"}};
  for (const auto& [more, message] : mistakes) check_all_refuse(saved + more, message);
  check_all_refuse(line + Args{"--save-file", file},
                   file + ": is not a folder; checkpoints are to be saved in");
  check_all_refuse(saved + Args{"--profile", shop.path()}, shop.path() + ": is a folder, not a file",
                   {{}, {"plan"}});
  check_all_refuse(saved + Args{"--test-range", "4"}, "--test-range 4: batch 4 is not in");
  CHECK_FALSE(std::filesystem::exists(run));
  // Nothing but conv1.biases has the shape that it has here.
  shop.write(replaced(replaced(kDefinition, "filters=2", "filters=3"), "channels=2", "channels=3"),
             kParameters);
  const Args start = shop.mnist() + Args{"--save-file", run, "--epochs", "1", "--init-from", shop / "other"};
  run_well(Args{"plan"} + start + Args{"--set", "conv1.filters=2,pool1.channels=2"});
  check_all_refuse(start + Args{"--set", "fc10.outputs=11"},
                   "no matrix has the name and shape of one of this net");
}

TEST_CASE("plan and bench report the mistakes that training would report beside a checkpoint") {
  const Workshop shop;
  shop.write_data();
  const std::string run = shop / "run", other = shop / "other";
  for (const std::string& folder : {run, other})
    run_well(shop.mnist() + Args{"--save-file", folder, "--epochs", "1"});
  const Args load = {"--load-file", run};
  const std::vector<std::pair<Args, std::string>> mistakes = {
      {{"--write-features", "fc11", "--feature-path", shop / "f"},
       "the net has no layer 'fc11'; did you mean 'fc10'?"},
      {{"--test-out", shop / "f", "--logreg-name", "logprop"}, "did you mean 'logprob'?"},
      {{"--test-only", "--patience", "3"}, "--patience ends training, and --test-only does not train"},
      {{"--inner-size", "4"}, "this run has --inner-size 0, for all of its life"},
      {{"--init-from", other}, "--init-from starts a new run, and --load-file goes on with one"},
      {{"--keep-best", "fc10"}, "--keep-best fc10: there is no such cost"},
      {{"--save-file", other}, other + ": holds the checkpoints of a run, which --load-file"},
      {{"--data-path", shop / "none"}, "--data-path " + (shop / "none") + ": no such folder"}};
  for (const auto& [more, message] : mistakes) check_all_refuse(load + more, message);
}

TEST_CASE("plan and bench take changed files beside a checkpoint, as training does") {
  const Workshop shop;
  run_well(shop.dummy() + Args{"--save-file", shop / "run", "--epochs", "1"});
  const Args load = {"--load-file", shop / "run", "--threads", "2"},
             definition = {"--layer-def", shop.definition_path(), "--gpu", "0,1", "--device", "cpu"},
             parameters = {"--layer-params", shop.parameters_path()};
  const std::string replicas = std::regex_replace(kDefinition, std::regex("inputs="), "gpu=0,1\ninputs=");
  shop.write(
      replaced(replaced(replicas, "dataIdx=0", "dataIdx=0\ngpu=0,1"), "dataIdx=1", "dataIdx=1\ngpu=0,1"),
      replaced(kParameters, "topk=2", "topk=3"));
  CHECK(planned(load)["devices"].size() == 1);
  const nlohmann::json plan = planned(load + definition);
  CHECK(plan["devices"].size() == 2);
  // The learning parameters are the checkpoint's unless their file is named.
  CHECK(planned(load + definition + parameters)["hash"] == planned(shop.dummy() + definition)["hash"]);
  const Outcome bench = run_well(Args{"bench", "--json", "--steps", "1"} + load + definition);
  CHECK(nlohmann::json::parse(bench.out)["devices"] == 2);
  run_well(load + definition + Args{"--epochs", "2"});

  run_well(Args{"plan"} + load + Args{"--conv-to-local", "conv1"});
  check_all_refuse(load + Args{"--conv-to-local", "conv2"}, "conv2");
  check_all_refuse(load + Args{"--layer-params", shop / "none.cfg"}, "none.cfg: cannot be read");
  shop.write(replaced(kDefinition, "filterSize=3", "filterSize=5"), kParameters);
  check_all_refuse(load + Args{"--layer-def", shop.definition_path()},
                   shop.definition_path() + ": is another net than that of checkpoint");
  // The same command line goes on with a run that has begun, and is planned so.
  check_all_refuse(shop.dummy() + Args{"--save-file", shop / "run"},
                   shop.definition_path() + ": is another net than that of checkpoint");
  shop.write(kDefinition, kParameters);
  CHECK_THAT(
      run_well(Args{"plan"} + shop.dummy() + Args{"--save-file", shop / "run"}).err,
      Catch::Contains("The run in " + (shop / "run") + " goes on from " + (shop / "run/2.2.safetensors\n")));
}

TEST_CASE("plan and bench read the data set that the command line names beside a checkpoint") {
  const Workshop shop, other;
  shop.write_data();
  other.write_data();
  run_well(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1"});
  const Args load = {"--load-file", shop / "run", "--mini", "500"};
  CHECK(planned(load)["images"] == 500);
  CHECK(planned(load + Args{"--data-path", other.data_path()})["images"] == 40);
  CHECK(planned(load + Args{"--train-range", "1"})["images"] == 40);
  check_all_refuse(load + Args{"--train-range", "4"}, "--train-range 4: batch 4 is not in");
  check_all_refuse(load + Args{"--test-range", "4"}, "--test-range 4: batch 4 is not in");
  check_all_refuse(load + Args{"--color-noise", "0.1"}, "--color-noise");
  std::filesystem::remove_all(shop.data_path());
  CHECK(planned(load)["images"] == 500);
  check_all_refuse(load + Args{"--data-provider", "mnist"},
                   shop.data_path() + " is in the options of " + (shop / "run/1.1.safetensors"));
}

TEST_CASE("a folder that another provider can read is said to be one") {
  const Workshop shop;
  shop.write_arrays();
  const Args line =
      shop.net() + Args{"--data-path", shop.data_path(), "--save-file", shop / "run", "--epochs", "1"};
  for (const char* wrong : {"mnist", "cifar", "image"})
    check_all_refuse(line + Args{"--data-provider", wrong},
                     shop.data_path() + " can be read with --data-provider npy\n");
  run_well(line + Args{"--data-provider", "npy"});
  check_all_refuse({"--load-file", shop / "run", "--data-provider", "mnist"},
                   shop.data_path() + " can be read with --data-provider npy\n");
  // No provider reads batches of cifar that are damaged, and least of all the one for batches of JPEGs.
  const std::string batches = shop / "batches";
  std::filesystem::create_directory(batches);
  using namespace pickles;
  write_file(batches + "/batches.meta",
             pickle_file(dict({{"label_names", list({str("a"), str("b")})}, {"num_vis", integer(3072)}})));
  write_file(batches + "/data_batch_1", "\x80\2}q\1(U\4da");
  const Outcome damaged = run_program(line + Args{"--data-provider", "cifar", "--data-path", batches});
  CHECK(damaged.code == 2);
  CHECK_THAT(damaged.err, Catch::Contains("data_batch_1: byte 6: the file is truncated"));
  CHECK_THAT(damaged.err, !Catch::Contains("can be read with"));
  const Outcome none = run_program(line + Args{"--data-provider", "npy", "--data-path", shop.path()});
  CHECK(none.code == 2);
  CHECK_THAT(none.err, !Catch::Contains("can be read with"));
}

TEST_CASE("plan makes the plan of several processes") {
  const Workshop shop;
  const Args line =
      shop.dummy() + Args{"--parallel", "data", "--mini", "40", "--gpu", "0-3", "--device", "cpu"};
  const auto messages = [&](const Args& more) {
    std::size_t found = 0;
    const std::string text = run_well(Args{"plan", "--verbose"} + line + more).out;
    for (std::size_t at = 0; (at = text.find(" receive", at)) != std::string::npos; ++at) ++found;
    return found;
  };
  CHECK(messages({}) == 0);
  CHECK(messages({"--processes", "1"}) == 0);
  const std::size_t two = messages({"--processes", "2"});
  CHECK(two > 0);
  CHECK(messages({"--processes", "4", "--hosts", "2x2"}) > 0);
  CHECK(messages({"--processes", "4"}) > two);
  const Args model = {"--model", std::string(CONVNET_SOURCE_DIR) + "/bench/models/k20-pcie-8gpu.json"};
  const nlohmann::json one = planned(line + model), four = planned(line + model + Args{"--processes", "4"});
  CHECK(one["prediction"]["step_seconds_on_one_device"] == four["prediction"]["step_seconds_on_one_device"]);
  check_refused(
      Args{"plan"} + line + Args{"--processes", "3"},
      "--processes 3 cannot have as many of the 4 devices of --gpu each; list a multiple of 3 devices");
  check_refused(Args{"plan"} + line + Args{"--processes", "2", "--hosts", "4x1"},
                "rank 0 has 2 devices, but by --hosts 4x1 they are on several hosts");
  check_refused(Args{"plan"} + line + Args{"--processes", "2", "--model", "measured"},
                "--model measured times operations in this process, but not messages");
}

}  // namespace
}  // namespace convnet
