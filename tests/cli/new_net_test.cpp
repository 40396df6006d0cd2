// Nets made from other nets: fine-tuning, init functions, conversions. And the check of gradients.
#include <limits>
#include <regex>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

const std::string kEveryLayer = std::string(CONVNET_SOURCE_DIR) + "/tests/nets/every-layer";

Args every_layer(const std::string& folder, int epochs) {
  return {"--layer-def",     kEveryLayer + ".cfg",
          "--layer-params",  kEveryLayer + "-params.cfg",
          "--data-provider", "dummy-3x12x12-4",
          "--train-range",   "1",
          "--test-range",    "2",
          "--mini",          "100",
          "--save-file",     folder,
          "--epochs",        std::to_string(epochs)};
}

using Tensors = std::map<std::string, NamedTensor>;

Tensors tensors_of(const std::string& file) { return read_safetensors(file).tensors; }

/// The numbers of the first line that begins with `start`.
std::vector<double> numbers_after(const std::string& out, const std::string& start) {
  const std::size_t at = out.find(start);
  REQUIRE(at != std::string::npos);
  const std::string line = out.substr(at + start.size(), out.find('\n', at) - at - start.size());
  std::vector<double> numbers;
  const std::regex number("-?\\d+\\.\\d+");
  for (std::sregex_iterator i(line.begin(), line.end(), number), end; i != end; ++i)
    numbers.push_back(std::stod(i->str()));
  return numbers;
}

void check_close(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  REQUIRE(!a.empty());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) < 2e-4 * (1 + std::abs(b[i])));
}

TEST_CASE("option --check-grads finds all gradients of a net with every layer type right") {
  const Workshop shop;
  const Outcome run = run_well(every_layer(shop / "out", 1) + Args{"--check-grads", "1"});
  INFO(run.out);
  CHECK(run.out.find("All 13 gradients are right\n") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(shop / "out"));
}

TEST_CASE("option --check-grads says so if nothing learns") {
  const Workshop shop;
  shop.write(kDefinition, std::regex_replace(kParameters, std::regex("eps(.)=0.0."), "eps$1=0"));
  const Args check = {"--data-provider", "dummy-1x8x8-10", "--train-range", "1", "--check-grads"};
  CHECK_THAT(run_well(shop.net() + check).out,
             Catch::EndsWith("No gradient was checked: no layer of this net learns (all rates are 0)\n"));
}

TEST_CASE("option --check-grads needs no folder and no test range") {
  const Workshop shop;
  const Args check =
      shop.net() + Args{"--data-provider", "dummy-1x8x8-10", "--train-range", "1", "--check-grads"};
  CHECK(run_well(check).out.find(" gradients are right") != std::string::npos);
  check_refused(check + Args{"--check-grads", "0"},
                "missing: --test-range, --save-file FOLDER (or --save-path)");
}

TEST_CASE("option --check-grads fails where a cost is not finite") {
  const Workshop shop;
  shop.write(replaced(kDefinition, "neuron=relu", "neuron=log[-1]"), kParameters);
  const Outcome run = run_program(shop.dummy() + Args{"--save-file", shop / "out", "--check-grads"});
  INFO(run.out << run.err);
  CHECK(run.code == 1);
  CHECK(
      run.err.find("a cost is not finite (NaN or infinity) while gradients are checked; the first layer with "
                   "such an output is 'conv1_neuron'") != std::string::npos);
}

TEST_CASE("option --conserve-mem changes no bit of the result") {
  const Workshop shop;
  run_well(every_layer(shop / "kept", 2));
  run_well(every_layer(shop / "conserved", 2) + Args{"--conserve-mem", "1"});
  const Tensors kept = tensors_of(shop / "kept/2.1.safetensors");
  for (const auto& [name, tensor] : tensors_of(shop / "conserved/2.1.safetensors")) {
    INFO(name);
    CHECK(tensor.values == kept.at(name).values);
  }
}

TEST_CASE("option --conv-to-local goes on with a local layer that computes what the conv layer did") {
  for (const char* biases : {"", "sharedBiases=0\n", "biases=0\n"}) {
    INFO(biases);
    const Workshop shop;
    shop.write(replaced(kDefinition, "filters=2\n", std::string("filters=2\n") + biases), kParameters);
    run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"});
    const Outcome before = run_well({"--load-file", shop / "out", "--test-only"});
    const Outcome after = run_well({"--load-file", shop / "out", "--conv-to-local", "conv1", "--test-only"});
    const std::string start = "Averages-------------------------\nlogprob:";
    check_close(numbers_after(after.out, start), numbers_after(before.out, start));
    const Tensors conv = tensors_of(shop / "out/1.2.safetensors");
    run_well({"--load-file", shop / "out", "--conv-to-local", "conv1", "--epochs", "1", "--force-save", "1"});
    const Tensors local = tensors_of(shop / "out/1.2.safetensors");
    CHECK(local.at("conv1.weights.data").dims == Dims{6, 6, 2, 1, 3, 3});
    CHECK(local.at("conv1.weightsInc.data").dims == Dims{6, 6, 2, 1, 3, 3});
    for (int position : {0, 17, 35}) {
      const std::vector<float>& filters = local.at("conv1.weights.data").values;
      CHECK(std::vector<float>(filters.begin() + position * 18, filters.begin() + (position + 1) * 18) ==
            conv.at("conv1.weights.data").values);
    }
    // Training goes on, with the option or without.
    const Outcome again = run_well(
        shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "2", "--conv-to-local", "conv1"});
    CHECK(again.err.find("--conv-to-local: layer 'conv1' is local already") != std::string::npos);
    run_well({"--load-file", shop / "out", "--epochs", "3"});
  }
}

TEST_CASE("unshared biases of as many maps as rows and columns become those of a local layer") {
  const Workshop shop;
  const std::string cube = replaced(kDefinition, "filters=2\n", "filters=6\nsharedBiases=0\n");
  shop.write(replaced(cube, "channels=2\n", "channels=6\n"), kParameters);
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"});
  const Tensors conv = tensors_of(shop / "out/1.2.safetensors");
  run_well({"--load-file", shop / "out", "--conv-to-local", "conv1", "--epochs", "1", "--force-save", "1"});
  const Tensors local = tensors_of(shop / "out/1.2.safetensors");
  for (const char* name : {"conv1.biases", "conv1.biasesInc"}) {
    const std::vector<float>& from = conv.at(name).values;
    const std::vector<float>& to = local.at(name).values;
    REQUIRE(to.size() == 216);
    for (std::size_t map = 0; map < 6; ++map) {
      for (std::size_t position = 0; position < 36; ++position)
        CHECK(to[position * 6 + map] == from[map * 36 + position]);
    }
  }
}

TEST_CASE("option --unshare-weights goes on with a copy of the shared weights") {
  const Workshop shop;
  run_well(every_layer(shop / "out", 1));
  const Tensors shared = tensors_of(shop / "out/1.1.safetensors");
  CHECK_FALSE(shared.contains("conv1.weights.cut"));
  run_well({"--load-file", shop / "out", "--unshare-weights", "conv1[2]", "--force-save", "1"});
  const Tensors own = tensors_of(shop / "out/1.1.safetensors");
  for (const char* kind : {"conv1.weights.", "conv1.weightsInc."})
    CHECK(own.at(std::string(kind) + "cut").values == shared.at(std::string(kind) + "scaled").values);
  run_well({"--load-file", shop / "out", "--epochs", "2"});
  const Tensors trained = tensors_of(shop / "out/2.1.safetensors");
  CHECK(trained.at("conv1.weights.cut").values != trained.at("conv1.weights.scaled").values);
}

TEST_CASE("conversions of layers that are not there, or not of the kind, are refused") {
  const Workshop shop;
  const auto refused = [&](const Args& args, const std::string& message) {
    check_refused(shop.dummy() + Args{"--save-file", shop / "out"} + args, message);
  };
  refused({"--conv-to-local", "conv2"}, "--conv-to-local: there is no layer 'conv2'; did you mean 'conv1'?");
  refused({"--conv-to-local", "fc10"}, "net.cfg:21: --conv-to-local: layer 'fc10' is not of type conv");
  refused({"--unshare-weights", "cov1"},
          "--unshare-weights: there is no layer 'cov1'; did you mean 'conv1'?");
  refused({"--unshare-weights", "conv1[3]"}, "--unshare-weights: 'conv1[3]': expects an integer");
  refused({"--unshare-weights", "conv1[x]"}, "--unshare-weights: 'conv1[x]': expects an integer");
  // On resume, the mistake is in the definition of the checkpoint and in the file, but is said once.
  const Args run = shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"};
  run_well(run);
  CHECK(run_program(run + Args{"--unshare-weights", "cov1"}).err ==
        "--unshare-weights: there is no layer 'cov1'; did you mean 'conv1'?\n");
  CHECK(run_program({"--load-file", shop / "out", "--unshare-weights", "cov1"}).err ==
        "--unshare-weights: there is no layer 'cov1'; did you mean 'conv1'?\n");
}

TEST_CASE("a layer that shares weights becomes local with weights of its own, or with their owner") {
  const Workshop shop;
  const std::string twin =
      "[conv2]\ntype=conv\ninputs=data\nchannels=1\nfilters=2\nfilterSize=3\nweightSource=conv1[0]\n"
      "[sum]\ntype=eltsum\ninputs=conv1,conv2\n";
  shop.write(
      replaced(kDefinition, "[pool1]\ntype=pool\ninputs=conv1", twin + "[pool1]\ntype=pool\ninputs=sum"),
      kParameters + "[conv2]\nepsW=0.1\nepsB=0.1\nmomW=0\nmomB=0\n");
  const Args plan = Args{"plan", "--data-provider", "dummy-1x8x8-10"} + shop.net();
  check_refused(plan + Args{"--conv-to-local", "conv1"},
                "net.cfg:20: layer 'conv2': weightSource 'conv1[0]' is a layer of type 'local'; weights are "
                "shared between equal types; --unshare-weights conv2 gives 'conv2' weights of its own");
  for (const std::string layer : {"conv1", "conv2"})
    run_well(plan + Args{"--conv-to-local", layer, "--unshare-weights", "conv2"});
  run_well(plan + Args{"--conv-to-local", "conv1,conv2"});

  // The owner of shared weights becomes local with the layer that shares them.
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"});
  const Outcome before = run_well({"--load-file", shop / "out", "--test-only"});
  const Outcome after = run_well({"--load-file", shop / "out", "--conv-to-local", "conv2", "--test-only"});
  CHECK(
      after.err.find("net.cfg:7: warning: --conv-to-local: layer 'conv1' becomes local too, because 'conv2' "
                     "shares its weights") != std::string::npos);
  const std::string start = "Averages-------------------------\nlogprob:";
  check_close(numbers_after(after.out, start), numbers_after(before.out, start));
}

TEST_CASE("option --init-from copies what fits and lists what does not") {
  const Workshop shop;
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"});
  const Tensors from = tensors_of(shop / "out/1.2.safetensors");
  shop.write(replaced(replaced(kDefinition, "outputs=10", "outputs=12"), "[pool1]",
                      "[side]\ntype=conv\ninputs=data\nchannels=1\nfilters=2\nfilterSize=3\n[pool1]") +
                 "[sum]\ntype=cost.sum2\ninputs=side\n",
             kParameters + "[side]\nepsW=0.1\nepsB=0.1\nmomW=0\nmomB=0\n[sum]\ncoeff=0\n");
  const Args args =
      shop.dummy() +
      Args{"--save-file", shop / "tuned", "--init-from", shop / "out", "--epochs", "0", "--force-save", "1"};
  const Outcome run = run_well(args);
  INFO(run.out);
  CHECK(std::regex_search(run.out, std::regex("conv1.weights.data +2x1x3x3 +copied")));
  CHECK(std::regex_search(run.out, std::regex("fc10.weights.pool1 +12x18 +newly made: it is 10x18 in the")));
  CHECK(std::regex_search(run.out, std::regex("side.weights.data +2x1x3x3 +newly made: it is not in the")));
  const Tensors tuned = tensors_of(shop / "tuned/0.0.safetensors");
  CHECK(tuned.at("conv1.weights.data").values == from.at("conv1.weights.data").values);
  CHECK(tuned.at("conv1.weightsInc.data").values == std::vector<float>(18, 0.0F));
  check_refused(args + Args{"--load-file", shop / "tuned"},
                "--init-from starts a new run, and --load-file goes on with one; use one of them");
  const Outcome other = run_program({"--load-file", shop / "out", "--layer-def", shop.definition_path()});
  CHECK(other.code == 2);
  CHECK(other.err.find("--init-from") != std::string::npos);
}

TEST_CASE("option --init-from finds the matrix of an input that was renamed by its place") {
  const Workshop shop;
  const auto with_two_inputs = [](const std::string& definition, const std::string& first,
                                  const std::string& second) {
    return replaced(definition, "[fc10]\ntype=fc\ninputs=pool1\n",
                    "[" + first + "]\ntype=fc\ninputs=pool1\noutputs=4\n[" + second +
                        "]\ntype=fc\ninputs=pool1\noutputs=4\n[fc10]\ntype=fc\ninputs=" + first + "," +
                        second + "\n");
  };
  const auto parameters = [](const std::string& first, const std::string& second) {
    const std::string keys = "]\nepsW=0.01\nepsB=0.01\nmomW=0\nmomB=0\nwc=0\n";
    return replaced(replaced(kParameters, "[fc10]\nepsW=0.01\nepsB=0.02\nmomW=0.9\nmomB=0.8\nwc=0.001\n",
                             "[fc10]\nepsW=0.01,0.01\nepsB=0.02\nmomW=0,0\nmomB=0\nwc=0,0\n"),
                    "[logprob]", "[" + first + keys + "[" + second + keys + "[logprob]");
  };
  const std::string images =
      replaced(replaced(kDefinition, "[data]", "[images]"), "inputs=data", "inputs=images");
  shop.write(with_two_inputs(images, "left", "right"), parameters("left", "right"));
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1", "--ema", "0.9"});
  const Tensors from = tensors_of(shop / "out/1.2.safetensors");
  const auto tuned_by = [&](const std::string& definition, const std::string& keys) {
    shop.write(definition, keys);
    std::filesystem::remove_all(shop / "tuned");
    return run_well(shop.dummy() + Args{"--save-file", shop / "tuned", "--init-from", shop / "out",
                                        "--epochs", "0", "--force-save", "1"});
  };
  const Outcome run = tuned_by(with_two_inputs(kDefinition, "a", "b"), parameters("a", "b"));
  INFO(run.out);
  // The average is what the other run's tests saw.
  for (const char* line : {"conv1.weights.data +2x1x3x3 +copied from conv1.weights.images\n",
                           "fc10.weights.a +10x4 +copied from fc10.weights.left\n",
                           "fc10.weights.b +10x4 +copied from fc10.weights.right\n",
                           "a.weights.pool1 +4x18 +newly made: it is not in the checkpoint\n",
                           "left.weights.pool1 +4x18 +skipped: this net has no such matrix\n"})
    CHECK(std::regex_search(run.out, std::regex(line)));
  CHECK_FALSE(std::regex_search(run.out, std::regex("(images|fc10.weights.(left|right)) +[0-9x]+ +skipped")));
  const Tensors tuned = tensors_of(shop / "tuned/0.0.safetensors");
  CHECK(tuned.at("conv1.weights.data").values == from.at("conv1.weightsAvg.images").values);
  CHECK(tuned.at("fc10.weights.a").values == from.at("fc10.weightsAvg.left").values);
  CHECK(tuned.at("fc10.weights.b").values == from.at("fc10.weightsAvg.right").values);

  // A matrix with a tensor of its own name takes that one, and a tensor is not taken by a second matrix.
  const Outcome swapped = tuned_by(with_two_inputs(kDefinition, "right", "c"), parameters("right", "c"));
  INFO(swapped.out);
  CHECK(std::regex_search(swapped.out, std::regex("fc10.weights.right +10x4 +copied\n")));
  CHECK(std::regex_search(swapped.out, std::regex("fc10.weights.c +10x4 +newly made: it is not in the")));
  CHECK(std::regex_search(swapped.out, std::regex("fc10.weights.left +10x4 +skipped")));

  // A matrix of another shape is not taken.
  const Outcome larger = tuned_by(replaced(kDefinition, "filterSize=3", "filterSize=5"), kParameters);
  INFO(larger.out);
  CHECK(std::regex_search(larger.out,
                          std::regex("conv1.weights.data +2x1x5x5 +newly made: it is 2x1x3x3 in the "
                                     "checkpoint, as conv1.weights.images\n")));
}

TEST_CASE("option --init-from takes weights of PyTorch's names from a safetensors file of another program") {
  const Workshop shop;
  shop.write(replaced(kDefinition, "[pool1]\ntype=pool\ninputs=conv1\n",
                      "[stage.0.bn]\ntype=bnorm\ninputs=conv1\nchannels=2\n"
                      "[pool1]\ntype=pool\ninputs=stage.0.bn\n"),
             kParameters + "[stage.0.bn]\nepsW=0.1\nepsB=0.1\nmomW=0\nmomB=0\nwc=0\n");
  TensorFile other;
  const auto values = [](std::size_t count, float first) {
    std::vector<float> made(count);
    for (std::size_t i = 0; i < count; ++i) made[i] = first + 0.125F * static_cast<float>(i);
    return made;
  };
  other.metadata["format"] = "pt";
  other.tensors["conv1.weight"] = {{2, 1, 3, 3}, values(18, -1)};
  other.tensors["conv1.bias"] = {{2}, values(2, 5)};
  other.tensors["stage.0.bn.weight"] = {{2}, values(2, 2)};
  other.tensors["stage.0.bn.bias"] = {{2}, values(2, 3)};
  other.tensors["stage.0.bn.running_mean"] = {{2}, values(2, 4)};
  other.tensors["stage.0.bn.running_var"] = {{2}, values(2, 6)};
  other.tensors["fc10.weight"] = {{7, 18}, values(7 * 18, 0)};
  other.tensors["head.weight"] = {{3}, values(3, 0)};
  const std::string file = shop / "other.safetensors";
  write_safetensors(file, other);
  const Args args =
      shop.dummy() +
      Args{"--save-file", shop / "tuned", "--init-from", file, "--epochs", "0", "--force-save", "1"};
  const Outcome run = run_well(args);
  INFO(run.out);
  for (const char* line : {"conv1.weights.data +2x1x3x3 +copied from conv1.weight\n",
                           "conv1.biases +2 +copied from conv1.bias\n",
                           "fc10.weights.pool1 +10x18 +newly made: it is 7x18 in the file\n",
                           "fc10.biases +10 +newly made: it is not in the file\n",
                           "head.weight +3 +skipped: this net has no such matrix\n"})
    CHECK(std::regex_search(run.out, std::regex(line)));
  const Tensors tuned = tensors_of(shop / "tuned/0.0.safetensors");
  for (const auto& [here, there] :
       std::map<std::string, std::string>{{"conv1.weights.data", "conv1.weight"},
                                          {"conv1.biases", "conv1.bias"},
                                          {"stage.0.bn.scale", "stage.0.bn.weight"},
                                          {"stage.0.bn.shift", "stage.0.bn.bias"},
                                          {"stage.0.bn.runningMean", "stage.0.bn.running_mean"},
                                          {"stage.0.bn.runningVar", "stage.0.bn.running_var"}})
    CHECK(tuned.at(here).values == other.tensors.at(there).values);
  // Nothing else takes such a file.
  check_refused({"--load-file", file},
                "a new run can take the weights of another program's file with --init-from");
  std::filesystem::remove_all(shop / "tuned");
  std::erase_if(other.tensors, [](const auto& tensor) { return !tensor.first.starts_with("head"); });
  write_safetensors(file, other);
  check_refused(args,
                "no matrix has the name and shape of one of this net; in a file of another program, layer");
  other.tensors["conv1.weight"] = {{2, 1, 3, 3},
                                   std::vector<float>(18, std::numeric_limits<float>::infinity())};
  write_safetensors(file, other);
  check_refused(args, "tensor 'conv1.weight' holds numbers that are not finite");
}

TEST_CASE("option --init-from takes the state_dict in a file of PyTorch's, and names where it was") {
  const Workshop shop;
  shop.write(replaced(kDefinition, "[pool1]\ntype=pool\ninputs=conv1\n",
                      "[stage.0.bn]\ntype=bnorm\ninputs=conv1\nchannels=2\n"
                      "[pool1]\ntype=pool\ninputs=stage.0.bn\n"),
             kParameters + "[stage.0.bn]\nepsW=0.1\nepsB=0.1\nmomW=0\nmomB=0\nwc=0\n");
  const auto init_from = [&](const std::string& file) {
    std::filesystem::remove_all(shop / "tuned");
    const Outcome run = run_well(shop.dummy() + Args{"--save-file", shop / "tuned", "--init-from", file,
                                                     "--epochs", "0", "--force-save", "1"});
    const Tensors tuned = tensors_of(shop / "tuned/0.0.safetensors");
    CHECK(tuned.at("conv1.weights.data").values.at(17) == 1.125F);
    CHECK(tuned.at("stage.0.bn.runningVar").values == std::vector<float>{6, 6.125F});
    return run.out;
  };
  const std::string folder = std::string(CONVNET_SOURCE_DIR) + "/tests/train/data/";
  const std::map<std::string, std::string> notes = {
      {"small.pth", ":\n"},
      {"small-old.pth", ":\n"},
      {"small-parallel.pth", " ('state_dict' in it, whose names begin with 'module.'):\n"},
      {"small-parallel-old.pth", " ('state_dict' in it, whose names begin with 'module.'):\n"},
      {"small-ema.pth", " ('model_ema' in it, whose names begin with 'module.'):\n"},
      {"small-whole.pth", " ('net' in it):\n"},
      {"small-trainer.pth", " ('model' in it):\n"}};
  for (const auto& [name, note] : notes) {
    const std::string out = init_from(folder + name);
    INFO(out);
    CHECK(out.find("Weights from " + folder + name + note) != std::string::npos);
    CHECK(
        std::regex_search(out, std::regex("fc10.weights.pool1 +10x18 +newly made: it is 7x18 in the file")));
    CHECK(out.find("  6 of 8 matrices copied, 2 newly made; 0 tensors of the file skipped\n") !=
          std::string::npos);
  }

  // Names of safetensors files may begin with several such words, and have other tensors beside them.
  TensorFile lightning;
  for (const auto& [name, tensor] : read_initial_weights(folder + "small.pth").tensors.tensors)
    lightning.tensors["model.module." + name] = tensor;
  lightning.tensors["module.conv1.weight"] = {{2, 1, 3, 3}, std::vector<float>(18, 0.0F)};
  const std::string file = shop / "lightning.safetensors";
  write_safetensors(file, lightning);
  const std::string out = init_from(file);
  INFO(out);
  CHECK(out.find("lightning.safetensors (whose names begin with 'model.module.'):\n") != std::string::npos);
  CHECK(std::regex_search(out, std::regex("conv1.biases +2 +copied from model.module.conv1.bias\n")));
  CHECK(std::regex_search(out, std::regex("module.conv1.weight +2x1x3x3 +skipped: this net has no such")));
}

TEST_CASE("option --init-from takes the weights of an ONNX model") {
  const Workshop shop;
  const std::string with_norm = replaced(kDefinition, "[pool1]\ntype=pool\ninputs=conv1\n",
                                         "[bn]\ntype=bnorm\ninputs=conv1\nchannels=2\n"
                                         "[pool1]\ntype=pool\ninputs=bn\n");
  const std::string rates = kParameters + "[bn]\nepsW=0.1\nepsB=0.1\nmomW=0\nmomB=0\nwc=0\n";
  shop.write(with_norm, rates);
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"});
  run_well({"export", shop / "out", shop / "net.onnx"});
  const auto init_from = [&](const std::string& folder) {
    return run_well(shop.dummy() + Args{"--save-file", shop / folder, "--init-from", shop / "net.onnx",
                                        "--seed", "7", "--epochs", "0", "--force-save", "1"});
  };
  const Outcome run = init_from("same");
  INFO(run.out << run.err);
  CHECK_THAT(run.out, Catch::Contains("Weights from " + (shop / "net.onnx") + ":\n"));
  CHECK_THAT(run.out,
             Catch::Contains("8 of 8 matrices copied, 0 newly made; 0 tensors of the file skipped\n"));
  CHECK_FALSE(run.err.find("batch norms") != std::string::npos);
  const Tensors trained = tensors_of(shop / "out/1.2.safetensors"),
                tuned = tensors_of(shop / "same/0.0.safetensors");
  for (const char* name :
       {"conv1.weights.data", "conv1.biases", "bn.scale", "bn.runningVar", "fc10.weights.pool1"})
    CHECK(tuned.at(name).values == trained.at(name).values);

  // A net without batch norms, as exporters make them, and one that has them.
  shop.write(kDefinition, kParameters);
  std::filesystem::remove_all(shop / "out");
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"});
  run_well({"export", shop / "out", shop / "net.onnx"});
  shop.write(with_norm, rates);
  CHECK_THAT(init_from("other").err, Catch::Contains("net.onnx has no batch norms, which exporters join"));

  // The reverse, from a checkpoint and from a file with PyTorch's names.
  for (const char* name : {"same", "norms.safetensors"}) {
    if (name == std::string("norms.safetensors")) run_well({"export", shop / "same", shop / name});
    shop.write(kDefinition, kParameters);
    std::filesystem::remove_all(shop / "folded");
    const Args folded = {"--save-file", shop / "folded", "--init-from", shop / name, "--epochs", "0"};
    CHECK_THAT(run_well(shop.dummy() + folded).err,
               Catch::Contains("warning: this net lacks 1 of the batch norms of ") &&
                   Catch::Contains(", like 'bn', so the copied layers do not compute what they did there"));
  }
  // A net that takes the layers above a batch norm alone lacks the convolution below it as well.
  const std::string first =
      replaced(replaced(kDefinition, "[conv1]", "[first]"), "inputs=conv1", "inputs=first");
  shop.write(first, replaced(kParameters, "[conv1]", "[first]"));
  const Outcome upper = run_well(
      shop.dummy() + Args{"--save-file", shop / "upper", "--init-from", shop / "same", "--epochs", "0"});
  CHECK_THAT(upper.out, Catch::Contains("bn.runningMean") && Catch::Contains("2 of 4 matrices copied"));
  CHECK_FALSE(upper.err.find("batch norms") != std::string::npos);
  shop.write(with_norm, rates);

  // Files that end too early, and a model with other names.
  write_file(shop / "cut.onnx", read_file(shop / "net.onnx").substr(0, 200));
  check_refused(shop.dummy() + Args{"--save-file", shop / "new", "--init-from", shop / "cut.onnx"},
                shop / "cut.onnx: is no ONNX model, or is damaged");
  const auto renamed = [](const std::string& text) {
    return std::regex_replace(std::regex_replace(text, std::regex("conv1"), "first"), std::regex("fc10"),
                              "last");
  };
  shop.write(renamed(kDefinition), renamed(kParameters));
  check_refused(shop.dummy() + Args{"--save-file", shop / "new", "--init-from", shop / "net.onnx"},
                "no matrix has the name and shape of one of this net; in a file of another program, layer");
}

TEST_CASE("the command line of a run with --init-from goes on with it") {
  const Workshop shop;
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"});
  const auto run = [&](const std::string& folder, const std::string& epochs) {
    return run_well(shop.dummy() +
                    Args{"--save-file", shop / folder, "--init-from", shop / "out", "--epochs", epochs});
  };
  run("straight", "2");
  run("tuned", "1");
  const Outcome again = run("tuned", "2");
  CHECK(again.out.find("--init-from is not used: this run has begun, and goes on from " +
                       (shop / "tuned/1.2.safetensors")) != std::string::npos);
  CHECK(again.out.find("Weights from") == std::string::npos);
  const Tensors straight = tensors_of(shop / "straight/2.2.safetensors");
  for (const auto& [name, tensor] : tensors_of(shop / "tuned/2.2.safetensors"))
    CHECK(tensor.values == straight.at(name).values);
}

TEST_CASE("option --init-from names the tensor with a number that is not finite, be it an average") {
  const Workshop shop;
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1", "--ema", "0.9"});
  TensorFile damaged = read_safetensors(shop / "out/1.2.safetensors");
  damaged.tensors.at("conv1.weightsAvg.data").values[3] = std::numeric_limits<float>::infinity();
  const std::string file = shop / "damaged.safetensors";
  write_safetensors(file, damaged);
  check_refused(
      shop.dummy() + Args{"--save-file", shop / "tuned", "--init-from", file},
      file + ": tensor 'conv1.weightsAvg.data' holds numbers that are not finite (NaN or infinity)");
}

TEST_CASE("init functions make weights from checkpoints, and errors say where") {
  const Workshop shop;
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"});
  const Tensors from = tensors_of(shop / "out/1.2.safetensors");
  const auto made = [&](const std::string& keys, const std::string& filters) {
    std::string definition = replaced(kDefinition, "filters=2\n", "filters=" + filters + "\n" + keys);
    definition = replaced(definition, "channels=2\n", "channels=" + filters + "\n");
    shop.write(definition, kParameters);
    std::filesystem::remove_all(shop / "made");
    return run_program(shop.dummy() +
                       Args{"--save-file", shop / "made", "--epochs", "0", "--force-save", "1"});
  };
  const auto tensor = [&](const std::string& name) {
    return tensors_of(shop / "made/0.0.safetensors").at(name).values;
  };
  const std::string checkpoint = shop / "out";
  CHECK(made("initWFunc=winit.makew(" + checkpoint + ")\ninitBFunc=winit.makeb(" + checkpoint + ")\n", "2")
            .code == 0);
  CHECK(tensor("conv1.weights.data") == from.at("conv1.weights.data").values);
  CHECK(tensor("conv1.biases") == from.at("conv1.biases").values);
  CHECK(made("initWFunc=makewcat(" + checkpoint + ",conv1,conv1)\ninitBFunc=makeb_vec(1,-2,0.5,4)\n", "4")
            .code == 0);
  std::vector<float> twice = from.at("conv1.weights.data").values;
  twice.insert(twice.end(), twice.begin(), twice.end());
  CHECK(tensor("conv1.weights.data") == twice);
  CHECK(tensor("conv1.biases") == std::vector<float>{1, -2, 0.5F, 4});
  const auto refused = [&](const std::string& keys, const std::string& message) {
    const Outcome run = made(keys, "2");
    INFO(run.err);
    CHECK(run.code == 2);
    CHECK(run.err.find("net.cfg:12: conv1.") != std::string::npos);
    CHECK(run.err.find(message) != std::string::npos);
  };
  refused("initWFunc=makew(nowhere)\n", "makew: nowhere: there is no such checkpoint");
  refused("initWFunc=makewcat(" + checkpoint + ",conv1,conv1)\n", "makewcat: gives 4 outputs, not 2");
  refused("initWFunc=makewcat(" + checkpoint + ",fc10,conv1)\n", "makewcat: ");
  refused("initBFunc=makeb_vec(1,2,3)\n", "makeb_vec: gives 3 values instead of 2");
  refused("initWFunc=gauss(1)\n", "conv1.weights.data: there is no function 'gauss' here");
  refused("initWFunc=w.makew(0.5,3)\n",
          "makew takes a checkpoint alone; the weights cannot be made from scratch");
  // All that is wrong is said, and `plan` warns.
  shop.write(
      replaced(kDefinition, "neuron=relu\n", "neuron=relu\ninitWFunc=makew(a,b)\ninitBFunc=makebcat(a)\n"),
      kParameters);
  const Outcome both = run_program(shop.dummy() + Args{"--save-file", shop / "none"});
  CHECK(both.code == 2);
  for (const char* said : {"makew takes a checkpoint alone", "makebcat needs a checkpoint and layers"})
    CHECK(count(both.err, std::string(said) + "; the weights cannot be made from scratch\n") == 1);
  const Outcome planned = run_well(Args{"plan", "--data-provider", "dummy-1x8x8-10"} + shop.net());
  CHECK(count(planned.err, "warning: ") == 2);
}

TEST_CASE("makew takes no matrix of as many numbers in another shape") {
  const Workshop shop;
  const auto definition = [](const std::string& filters, const std::string& size, const std::string& keys) {
    return replaced(replaced(replaced(kDefinition, "filters=2\n", "filters=" + filters + "\n" + keys),
                             "filterSize=3", "filterSize=" + size),
                    "channels=2\n", "channels=" + filters + "\n");
  };
  shop.write(definition("4", "1", ""), kParameters);
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"});
  shop.write(definition("1", "2", "initWFunc=makew(" + (shop / "out") + ")\n"), kParameters);
  check_refused(shop.dummy() + Args{"--save-file", shop / "made"},
                "net.cfg:12: conv1.weights.data: makew: a matrix of 4x1x1x1 does not fit one of 1x1x2x2: "
                "outputs, and weights of each, must be as many");
}

TEST_CASE("makew finds a layer's matrices by the place of its inputs, and those that it shares") {
  const Workshop shop;
  const auto fc = [](const std::string& name, const std::string& inputs, const std::string& keys) {
    return "[" + name + "]\ntype=fc\ninputs=" + inputs + "\noutputs=10\n" + keys;
  };
  // z is before a in the list, and after it by name.
  const auto net = [&](const std::string& z, const std::string& keys_b, const std::string& keys_c) {
    const std::string layers = fc("a", "pool1", "") + fc(z, "a", "") + fc("b", z, keys_b) +
                               fc("c", z + ",a", keys_c) + "[both]\ntype=eltsum\ninputs=b,c\n";
    shop.write(
        replaced(replaced(kDefinition, "[fc10]\ntype=fc\ninputs=pool1\noutputs=10\ndropout=0.25\n", layers),
                 "inputs=fc10", "inputs=both"),
        kParameters + "[DEFAULT]\nepsW=0.01\nepsB=0.02\nmomW=0\nmomB=0\n[a]\n[" + z + "]\n[b]\n[c]\n");
  };
  net("z", "weightSource=z\n", "");
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"});
  const Tensors from = tensors_of(shop / "out/1.2.safetensors");
  const std::string makew = "initWFunc=makew(" + (shop / "out") + ")\n";
  net("y", makew, makew);
  run_well(shop.dummy() + Args{"--save-file", shop / "made", "--epochs", "0", "--force-save", "1"});
  const Tensors made = tensors_of(shop / "made/0.0.safetensors");
  CHECK(made.at("b.weights.y").values == from.at("z.weights.a").values);
  CHECK(made.at("c.weights.y").values == from.at("c.weights.z").values);
  CHECK(made.at("c.weights.a").values == from.at("c.weights.a").values);
  // A matrix too many is named.
  net("y", "", makew);
  const std::string more = replaced(read_file(shop.definition_path()), "inputs=y,a", "inputs=y,a,pool1");
  shop.write(more, read_file(shop.parameters_path()));
  check_refused(
      shop.dummy() + Args{"--save-file", shop / "more"},
      "c.weights.pool1: makew: layer 'c' of the checkpoint has 2 weight matrices, and none for input 3");
}

TEST_CASE("init functions concatenate the outputs of local layers position by position") {
  const Workshop shop;
  const std::string local = replaced(kDefinition, "type=conv", "type=local");
  shop.write(local, kParameters);
  run_well(shop.dummy() + Args{"--save-file", shop / "out", "--epochs", "1"});
  const std::vector<float> from = tensors_of(shop / "out/1.2.safetensors").at("conv1.weights.data").values;
  shop.write(replaced(replaced(local, "filters=2\n",
                               "filters=4\ninitWFunc=makewcat(" + (shop / "out") + ",conv1,conv1)\n"),
                      "channels=2\n", "channels=4\n"),
             kParameters);
  run_well(shop.dummy() + Args{"--save-file", shop / "made", "--epochs", "0", "--force-save", "1"});
  const NamedTensor made = tensors_of(shop / "made/0.0.safetensors").at("conv1.weights.data");
  REQUIRE(made.dims == Dims{6, 6, 4, 1, 3, 3});
  for (std::size_t position = 0; position < 36; ++position)
    for (std::size_t filter = 0; filter < 4; ++filter)
      for (std::size_t k = 0; k < 9; ++k)
        CHECK(made.values[(position * 4 + filter) * 9 + k] == from[(position * 2 + filter % 2) * 9 + k]);
}

}  // namespace
}  // namespace convnet
