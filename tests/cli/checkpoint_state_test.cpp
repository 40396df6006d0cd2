// What checkpoints hold of the state of training: only numbers that can be read again, and nothing of frozen
// matrices.
#include <cstring>
#include <fstream>

#include "convnet/checkpoint/checkpoint.h"
#include "tests/cli/equal_tensors.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

/// Writes arrays of 60 float32 images. The first number of one is `largest`.
void write_floats(const Workshop& shop, float largest) {
  std::filesystem::create_directories(shop.data_path());
  std::vector<float> values;
  for (int i = 0; i < 60 * 64; ++i) values.push_back(static_cast<float>((i * 37) % 101) / 101 - 0.5F);
  values[64 + 27] = largest;
  std::string bytes(values.size() * sizeof(float), '\0'), labels;
  std::memcpy(bytes.data(), values.data(), bytes.size());
  for (int i = 0; i < 60; ++i) labels += static_cast<char>(i * 7 % 10);
  write_file(shop.data_path() + "/images.npy", npy_file("<f4", "60, 1, 8, 8", bytes));
  write_file(shop.data_path() + "/labels.npy", npy_file("|u1", "60,", labels));
}

Args floats(const Workshop& shop, const std::string& folder) {
  return shop.net() + Args{"--data-provider", "npy",    "--data-path",  shop.data_path(),
                           "--train-range",   "1",      "--test-range", "1",
                           "--scalar-mean",   "0",      "--mini",       "10",
                           "--save-file",     folder,   "--test-freq",  "1",
                           "--keep-best",     "logprob"};
}

/// The bytes of the files in a folder, by name.
std::map<std::string, std::string> contents_of(const std::string& folder) {
  std::map<std::string, std::string> contents;
  for (const std::string& name : files_in(folder)) contents[name] = read_file(folder + "/" + name);
  return contents;
}

const std::string kWithNorm =
    replaced(replaced(kDefinition, "[pool1]", "[bn1]\ntype=bnorm\ninputs=conv1\n[pool1]"),
             "inputs=conv1\npool=max", "inputs=bn1\npool=max");
const std::string kNormParameters = "[bn1]\nepsW=0.01\nepsB=0.01\nmomW=0.9\nmomB=0.9\n";

bool holds(const TensorFile& file, const std::string& tensor) { return file.tensors.contains(tensor); }

}  // namespace

TEST_CASE(
    "state that overflows while costs and weights stay finite ends the run and replaces no checkpoint") {
  struct Case {
    std::string definition, parameters, tensor, kind;
  };
  for (const Case& c : {Case{kDefinition, "[DEFAULT]\noptimizer=adamw\n" + kParameters,
                             "conv1.weightsSqr.data", "the mean of squared gradients"},
                        Case{kDefinition, "[DEFAULT]\noptimizer=rmsprop\n" + kParameters,
                             "conv1.weightsMsq.data", "the mean of squared gradients"},
                        Case{kWithNorm, kParameters + kNormParameters, "bn1.runningVar",
                             "a running statistic of its inputs"}}) {
    INFO(c.tensor);
    const Workshop shop;
    shop.write(c.definition, c.parameters);
    write_floats(shop, 0.5F);
    const std::string run = shop / "run";
    run_well(floats(shop, run) + Args{"--epochs", "3"});
    const auto before = contents_of(run);
    REQUIRE(before.size() >= 2);
    write_floats(shop, 1e24F);
    const Outcome ended = run_program(floats(shop, run) + Args{"--epochs", "9"});
    INFO(ended.out << ended.err);
    CHECK(ended.signal == 0);
    CHECK(ended.code == 1);
    CHECK_THAT(ended.err, Catch::Contains("'" + c.tensor + "', " + c.kind) && Catch::Contains("not finite") &&
                              Catch::Contains("the last good checkpoint is " + run + "/3."));
    CHECK_THAT(ended.err, !Catch::Contains("is saved in"));
    CHECK(contents_of(run) == before);
    write_floats(shop, 0.5F);
    run_well({"--load-file", run, "--epochs", "4"});
  }
}

TEST_CASE("frozen matrices keep no increments, squares and averages") {
  const Workshop shop;
  write_floats(shop, 0.5F);
  const std::string adamw = "[DEFAULT]\noptimizer=adamw\n" + kParameters,
                    frozen = replaced(adamw, "[conv1]\nepsW=0.01", "[conv1]\nepsW=0");
  shop.write(kDefinition, frozen);
  const std::string run = shop / "run";
  run_well(floats(shop, run) + Args{"--epochs", "2", "--ema", "0.9"});
  const TensorFile first = read_checkpoint(run).tensors;
  for (const char* suffix : {"Inc", "Sqr", "Avg"}) {
    INFO(suffix);
    CHECK_FALSE(holds(first, std::string("conv1.weights") + suffix + ".data"));
    CHECK(holds(first, std::string("conv1.biases") + suffix));
    CHECK(holds(first, std::string("fc10.weights") + suffix + ".pool1"));
  }
  // The averages of the others are used beside it.
  run_well({"--load-file", run, "--test-only", "1"});
  // It learns from now on, and then its state goes on, too.
  shop.write(kDefinition, adamw);
  const Outcome thawed = run_well({"--load-file", run, "--epochs", "3"});
  CHECK_THAT(thawed.err,
             Catch::Contains("Note: " + run + "/2.") &&
                 Catch::Contains("has no increments of 'conv1.weights.data', as of a frozen matrix; these"));
  const TensorFile second = read_checkpoint(run).tensors;
  CHECK(second.tensors.at("conv1.weights.data").values != first.tensors.at("conv1.weights.data").values);
  for (const char* suffix : {"Inc", "Sqr", "Avg"})
    CHECK(holds(second, std::string("conv1.weights") + suffix + ".data"));
  CHECK(run_well({"--load-file", run, "--epochs", "4"}).err.find("a frozen matrix") == std::string::npos);
  // Squares without their increments are no state of a frozen matrix.
  TensorFile damaged = read_checkpoint(run).tensors;
  damaged.tensors.erase("conv1.weightsInc.data");
  write_safetensors(shop / "damaged.safetensors", damaged);
  check_refused({"--load-file", shop / "damaged.safetensors", "--epochs", "9"},
                "has no tensor 'conv1.weightsInc.data', which this net needs");
  // Checkpoints of a matrix that is frozen later, and those of older versions, hold what is not needed.
  shop.write(kDefinition, frozen);
  CHECK(run_well({"--load-file", run, "--epochs", "5"}).err.find("a frozen matrix") == std::string::npos);
  const TensorFile last = read_checkpoint(run).tensors;
  CHECK_FALSE(holds(last, "conv1.weightsInc.data"));
}

}  // namespace convnet
