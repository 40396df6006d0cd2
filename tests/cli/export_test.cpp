// convnet export as a user meets it: what it prints, and what it refuses. tests/onnx computes the models.
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// A run of one epoch, the net of small_net.h unless `definition` is another one.
class TrainedShop : public Workshop {
 public:
  explicit TrainedShop(const std::string& definition = kDefinition,
                       const std::string& parameters = kParameters) {
    write(definition, parameters);
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
  for (const char* file : {"new/net.onnx", "new/net.safetensors"})
    check_refused({"export", shop / "run", shop / file}, (shop / "new") + ": no such folder");
  CHECK_FALSE(fs::exists(shop / "new"));
}

TEST_CASE("export replaces no model of another program") {
  const TrainedShop shop;
  const std::string model = shop / "net.onnx";
  run_well({"export", shop / "run", model});
  run_well({"export", shop / "run", model});
  const std::string of_pytorch = replaced(read_file(model),
                                          "\x12\x07"
                                          "convnet",
                                          "\x12\x07"
                                          "pytorch");
  write_file(model, of_pytorch);
  check_refused(
      {"export", shop / "run", model},
      "convnet export: " + model +
          ": there is another kind of file of that name, or one of another program or that was edited; "
          "remove it or name another file");
  CHECK(read_file(model) == of_pytorch);
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

TEST_CASE("the input of a model is images, also where a layer has that name, unless it is an output") {
  const std::string named =
      replaced(replaced(kDefinition, "[conv1]", "[images]"), "inputs=conv1", "inputs=images");
  TrainedShop shop(named, replaced(kParameters, "[conv1]", "[images]"));
  const std::string model = shop / "net.onnx";
  CHECK_THAT(run_well({"export", shop / "run", model}).out,
             Catch::Contains("from images (N, 1, 8, 8) to probs"));
  const Outcome both = run_well({"export", shop / "run", model, "--output", "images,probs"});
  CHECK_THAT(both.out,
             Catch::Contains("from images.1 (N, 1, 8, 8) to images (N, 2, 6, 6), probs (N, 10), ") &&
                 Catch::EndsWith("  the input is called images.1, because the layer 'images' is an "
                                 "output\n"));
}

TEST_CASE("export refuses what it cannot write") {
  const TrainedShop shop;
  const std::string run = shop / "run", model = shop / "net.onnx";
  check_refused({"export", run},
                "usage: convnet export CHECKPOINT FILE.onnx|FILE.safetensors [--output LAYER,...]");
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

TEST_CASE("export writes the weights with PyTorch's names, and a new run can begin with them") {
  const TrainedShop shop;
  const std::string weights = shop / "net.safetensors";
  CHECK(run_well({"export", shop / "run", weights}).out == weights + ": 4 tensors\n");
  const TensorFile file = read_safetensors(weights),
                   checkpoint = read_safetensors(shop / "run/1.1.safetensors");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file.tensors) names.push_back(name);
  CHECK(names == std::vector<std::string>{"conv1.bias", "conv1.weight", "fc10.bias", "fc10.weight"});
  const NamedTensor &exported = file.tensors.at("fc10.weight"),
                    &trained = checkpoint.tensors.at("fc10.weights.pool1");
  CHECK(exported.dims == trained.dims);
  CHECK(exported.values == trained.values);
  CHECK(file.metadata.at("format") == "pt");
  CHECK(file.metadata.at("checkpoint") == "1.1.safetensors");
  CHECK(file.metadata.at("input_dims") == "[1,8,8]");
  CHECK(file.metadata.at("class_output") == "probs");
  CHECK_FALSE(file.metadata.contains("deviations"));
  // The mean image, exactly.
  const auto mean =
      nlohmann::json::parse(file.metadata.at("mean")).get<std::vector<std::vector<std::vector<float>>>>();
  REQUIRE(mean.size() == 1);
  REQUIRE(mean[0].size() == 8);
  std::vector<float> pixels;
  for (const std::vector<float>& row : mean[0]) pixels.insert(pixels.end(), row.begin(), row.end());
  CHECK(pixels == checkpoint.tensors.at("mnist.mean").values);

  const std::string copied =
      run_well(shop.mnist() + Args{"--init-from", weights, "--save-file", shop / "again", "--epochs", "0",
                                   "--force-save", "1"})
          .out;
  CHECK(count(copied, "copied from") == 4);
  CHECK(read_safetensors(shop / "again/0.0.safetensors").tensors.at("conv1.weights.data").values ==
        checkpoint.tensors.at("conv1.weights.data").values);
}

TEST_CASE("exported weights are those that tests use, with the deviations of pixels") {
  Workshop shop;
  shop.write(replaced(kDefinition, "inputs=data\nchannels=1\nfilters=2\nfilterSize=3\n",
                      "inputs=data,data\nchannels=1,1\nfilters=2\nfilterSize=3,3\n"),
             kParameters);
  shop.write_data();
  run_well(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1", "--ema", "0.9", "--pixel-std",
                               "1", "--scalar-mean", "128"});
  const std::string weights = shop / "net.safetensors";
  CHECK(run_well({"export", shop / "run", weights}).out ==
        weights + ": 5 tensors\n  conv1.weights.data.1 keeps its name: PyTorch has none for it\n");
  const TensorFile file = read_safetensors(weights),
                   checkpoint = read_safetensors(shop / "run/1.1.safetensors");
  CHECK(file.tensors.at("conv1.weight").values == checkpoint.tensors.at("conv1.weightsAvg.data").values);
  CHECK(file.tensors.at("conv1.weights.data.1").values ==
        checkpoint.tensors.at("conv1.weightsAvg.data.1").values);
  const float deviation = checkpoint.tensors.at("mnist.deviations").values.at(0);
  CHECK(nlohmann::json::parse(file.metadata.at("deviations")).at(0).at(0).at(0).get<float>() == deviation);
  CHECK(nlohmann::json::parse(file.metadata.at("mean")) ==
        nlohmann::json({{{checkpoint.tensors.at("mnist.mean").values.at(0)}}}));
}

TEST_CASE("exported weights replace no other file") {
  const TrainedShop shop;
  const std::string run = shop / "run", weights = shop / "net.safetensors";
  check_refused({"export", run, shop / "net.pt"},
                "net.pt: must end with '.onnx' (a model) or '.safetensors' (weights with PyTorch's names)");
  check_refused(
      {"export", run, weights, "--output", "probs"},
      "--output names the outputs of an ONNX model; " + weights + " gets the weights of all layers");
  check_refused({"export", run, run + "/1.1.safetensors"}, "is a file that the command reads");
  check_refused({"export", run, run + "/2.1.safetensors"}, "is a name of checkpoints; name another file");
  for (const std::string& other : {std::string("notes"), read_file(run + "/1.1.safetensors")}) {
    write_file(weights, other);
    check_refused({"export", run, weights}, "there is another kind of file of that name");
    CHECK(read_file(weights) == other);
  }
  fs::remove(weights);
  run_well({"export", run, weights});
  const std::string first = read_file(weights);
  run_well({"export", run, weights});
  CHECK(read_file(weights) == first);
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
  contents = sound;
  contents.tensors.erase("fc10.biases");
  refused(contents, "has no tensor 'fc10.biases', which this net needs");
  check_refused({"export", file, shop / "net.safetensors"},
                "has no tensor 'fc10.biases', which this net needs");
  write_file(file, read_file(file).substr(0, 1000));
  check_refused({"export", file, model}, file);
  CHECK_FALSE(fs::exists(model));
  CHECK_FALSE(fs::exists(shop / "net.safetensors"));
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
