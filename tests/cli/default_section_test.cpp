// The values of [DEFAULT]: which layers take them, and what is said where a layer lacks some.
#include <algorithm>
#include <filesystem>
#include <map>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {

TEST_CASE("layers without a section take the values of [DEFAULT]") {
  const Workshop shop;
  const std::string defaults = "[DEFAULT]\nepsW=0.01\nepsB=0.02\nmomW=0.9\nmomB=0.8\n";
  const auto numbers = [&](const std::string& parameters) {
    const std::string folder = shop / "run";
    std::filesystem::remove_all(folder);
    shop.write(kDefinition, parameters);
    run_well(shop.dummy() + Args{"--save-file", folder, "--epochs", "1", "--train-range", "1"});
    std::map<std::string, std::vector<float>> found;
    for (const auto& [name, tensor] : read_safetensors(folder + "/1.1.safetensors").tensors)
      found[name] = tensor.values;
    return found;
  };
  const auto with_sections = numbers(defaults + "[conv1]\n[fc10]\n[logprob]\ncoeff=1\n");
  CHECK(numbers(defaults) == with_sections);
  CHECK(numbers(defaults + "coeff=1\n[conv1]\n") == with_sections);
  CHECK(numbers(defaults + "coeff=0.5\n") != with_sections);
}

TEST_CASE("all layers that lack learning parameters are named at once, below and above each other") {
  const Workshop shop;
  const std::string conv2 =
      "[conv2]\ntype=conv\ninputs=conv1\nchannels=2\nfilters=2\nfilterSize=3\nbiases=0\n";
  const std::string definition =
      replaced(kDefinition, "[pool1]\ntype=pool\ninputs=conv1", conv2 + "[pool1]\ntype=pool\ninputs=conv2");
  shop.write(definition, "[logprob]\n");
  CHECK(
      plan(shop).err ==
      shop.definition_path() +
          ":7: 2 layers have no sections in the parameter file, and need epsW, epsB, momW, momB, there or in "
          "[DEFAULT]: conv1, fc10\n" +
          shop.definition_path() +
          ":14: layer 'conv2' has no section [conv2] in the parameter file; it needs epsW, momW, there or in "
          "[DEFAULT]\n");
  shop.write(definition, "[DEFAULT]\nepsW=0.01\nepsB=0.02\nmomB=0.8\n[fc10]\nmomW=0.9\n");
  CHECK(
      plan(shop).err ==
      shop.definition_path() +
          ":7: 2 layers have no sections in the parameter file, and need momW, there or in [DEFAULT]: conv1, "
          "conv2\n");
  std::string many = kDefinition;
  for (int i = 0; i < 9; ++i)
    many += "[f" + std::to_string(i) + "]\ntype=fc\ninputs=data\noutputs=1\n[c" + std::to_string(i) +
            "]\ntype=cost.sum2\ninputs=f" + std::to_string(i) + "\n";
  shop.write(many, "[logprob]\n");
  CHECK(plan(shop).err.ends_with(": conv1, fc10, f0, f1, f2, f3, f4, f5 and 3 more\n"));
}

TEST_CASE("a wrong reference in [DEFAULT] is an error only where a layer takes it") {
  const Workshop shop;
  const std::string defaults = "[DEFAULT]\nepsW=%(rate)s\nepsB=0.02\nmomW=0.9\nmomB=0.8\n";
  shop.write(kDefinition, defaults + "[conv1]\nrate=0.1\n[fc10]\nrate=0.2\n");
  CHECK(plan(shop).code == 0);
  shop.write(kDefinition, defaults + "[conv1]\nrate=0.1\n");
  CHECK_THAT(plan(shop).err,
             Catch::Contains("params.cfg:2: layer 'fc10': epsW ") && Catch::Contains("%(rate)s"));
}

TEST_CASE("layers that need no learning parameters take only their own keys from [DEFAULT]") {
  const Workshop shop;
  const std::string defaults = "[DEFAULT]\nepsW=0.01\nepsB=0.02\nmomW=0.9\nmomB=0.8\n";
  const std::string with_dropout =
      replaced(kDefinition, "[fc10]\ntype=fc\ninputs=pool1",
               "[drop]\ntype=dropout\ninputs=pool1\n[fc10]\ntype=fc\ninputs=drop");
  shop.write(with_dropout, defaults + "dropout=0.5\nkeep=3\n[fc10]\n");
  CHECK_THAT(plan(shop).err, Catch::Contains("params.cfg:7: layer 'drop': keep expects a number"));
  shop.write(with_dropout, defaults + "dropout=0.5\nkeep=0.7\n");
  const Outcome run = plan(shop);
  CHECK(run.code == 0);
  CHECK(count(run.out, "_dropout ") == 2);  // of conv1 and fc10, not of the pool, the dropout and the softmax
}

TEST_CASE("values of --set count for layers without a section and for DEFAULT") {
  const Workshop shop;
  shop.write(kDefinition, "[DEFAULT]\nepsW=0.01\nepsB=0.02\nmomW=0.9\nmomB=0.8\n");
  run_well(planning(shop, {"--set", "conv1.epsW=0.5,DEFAULT.momW=0.1,DEFAULT.wc=0.1"}));
  check_refused(planning(shop, {"--set", "conv1.momW=5"}), "--set conv1.momW=5: layer 'conv1': momW expects");
  check_refused(planning(shop, {"--set", "DEFAULT.momW=5"}),
                "--set DEFAULT.momW=5: layer 'conv1': momW expects");
}

TEST_CASE("a key of [DEFAULT] that looks like a layer's is reported, names of the user's own are not") {
  const Workshop shop;
  const std::string no_key = "of [DEFAULT] belongs to no layer type; did you mean ";
  shop.write("[DEFAULT]\nfilterSise=3\n" + kDefinition,
             kParameters + "[DEFAULT]\nwcc=0.1\nWCC=0.2\nepsW=0.1\nfilters=3\ncolour=red\n");
  const Outcome run = plan(shop);
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(run.err.find("net.cfg:2: warning: key 'filterSise' " + no_key + "'filterSize'?\n") !=
        std::string::npos);
  CHECK(run.err.find("params.cfg:17: warning: key 'WCC' " + no_key + "'wc'?\n") != std::string::npos);
  CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 3);  // these, and that WCC is given twice
  CHECK(plan(shop, {"--strict"}).code == 2);

  // A value refers to it.
  shop.write(kDefinition, replaced(kParameters, "epsW=0.01", "epsW=%(Eps)s") + "[DEFAULT]\neps=0.1\n");
  const Outcome referred = plan(shop, {"--strict"});
  INFO(referred.err);
  CHECK(referred.code == 0);
  CHECK(referred.err.empty());
}

}  // namespace convnet
