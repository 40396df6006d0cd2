// convnet export as a user meets it: what it prints, and what it refuses. tests/onnx computes the models.
#include <filesystem>
#include <limits>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// A run of one epoch, the net of small_net.h unless `definition` is another one.
class TrainedShop : public Workshop {
 public:
  explicit TrainedShop(const std::string& definition = kDefinition) {
    write(definition, kParameters);
    write_data();
    run_well(mnist() + Args{"--save-file", *this / "run", "--epochs", "1"});
  }
};

}  // namespace

TEST_CASE("export writes a model without the data set and the files of the net") {
  const TrainedShop shop;
  fs::remove_all(shop.data_path());
  fs::remove(shop.definition_path());
  fs::remove(shop.parameters_path());
  const std::string model = shop / "net.onnx";
  CHECK_THAT(run_well({"export", shop / "run", model}).out,
             Catch::Contains(model + ": from images (N, 1, 8, 8) to probs (N, 10), "));
  CHECK(fs::exists(model));
  CHECK_THAT(run_well({"export", shop / "run", model, "--output", "conv1,probs"}).out,
             Catch::Contains("to conv1 (N, 2, 6, 6), probs (N, 10), "));
  // The same bytes each time.
  const std::string first = read_file(model);
  run_well({"export", shop / "run/1.1.safetensors", shop / "again.onnx", "--output", "conv1,probs"});
  CHECK(read_file(shop / "again.onnx") == first);
}

TEST_CASE("the input of a model is images, also where the data layer has that name") {
  const std::string named =
      replaced(replaced(kDefinition, "[data]", "[images]"), "inputs=data", "inputs=images");
  const TrainedShop shop(named);
  const std::string model = shop / "net.onnx";
  CHECK_THAT(run_well({"export", shop / "run", model}).out,
             Catch::Contains("from images (N, 1, 8, 8) to probs"));
  CHECK(count(read_file(model), "images.1") == 0);
}

TEST_CASE("export refuses what it cannot write") {
  const TrainedShop shop;
  const std::string run = shop / "run", model = shop / "net.onnx";
  check_refused({"export", run}, "usage: convnet export CHECKPOINT FILE.onnx [--output LAYER,...]");
  check_refused({"export", run, model, model}, "usage: convnet export");
  check_refused({"export", run, model, "--output", "prob"},
                "the net has no layer 'prob'; did you mean 'probs'?");
  check_refused({"export", run, model, "--output", "labels"},
                "layer 'labels' is of type 'data' and holds labels: it has no features");
  check_refused({"export", run, model, "--output", "probs,conv1,probs"}, "--output names 'probs' twice");
  check_refused({"export", run, shop.definition_path() + "/net.onnx"}, "is not a folder");
  check_refused({"export", run, run + "/1.1.safetensors"}, "is a file that the command reads");
  check_refused({"export", shop / "nothing", model}, "nothing");
  CHECK_FALSE(fs::exists(model));
}

TEST_CASE("export refuses damaged checkpoints") {
  const TrainedShop shop;
  const std::string file = shop / "run/1.1.safetensors", model = shop / "net.onnx";
  const TensorFile sound = read_safetensors(file);
  const auto refused = [&](const TensorFile& contents, const std::string& message) {
    write_safetensors(file, contents);
    check_refused({"export", file, model}, message);
  };
  TensorFile contents = sound;
  contents.tensors.erase("conv1.weights.data");
  refused(contents, "has no tensor 'conv1.weights.data', which this net needs");
  contents = sound;
  contents.tensors["conv1.weights.data"].dims = {18};
  refused(contents, "tensor 'conv1.weights.data' is 18, but this net needs 2x1x3x3");
  contents = sound;
  contents.tensors["mnist.mean"].values[0] = std::numeric_limits<float>::infinity();
  refused(contents, "it holds numbers that are not finite");
  write_file(file, read_file(file).substr(0, 1000));
  check_refused({"export", file, model}, file);
  CHECK_FALSE(fs::exists(model));
}

TEST_CASE("export names each layer that ONNX has no operator for, and how far it can go") {
  std::string definition = kDefinition;
  definition.replace(definition.find("pool=max"), 8, "pool=maxabs");
  const TrainedShop shop(definition);
  const std::string model = shop / "net.onnx";
  check_refused({"export", shop / "run", model},
                shop.definition_path() +
                    ":14: layer 'pool1' of type 'pool': ONNX has no operator for pool=maxabs; --output conv1 "
                    "exports the layers before it");
  CHECK_FALSE(fs::exists(model));
  run_well({"export", shop / "run", model, "--output", "conv1"});
}

}  // namespace convnet
