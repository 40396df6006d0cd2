// Layer files as a whole: several mistakes at once, odd lines that get warnings, files that cannot be read.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "convnet/checkpoint/safetensors.h"
#include "convnet/config/ini.h"
#include "layers/layer.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

TEST_CASE("a reference that fails is the only mistake of its value, whatever reads it") {
  const std::string plain = replaced(kDefinition, "stride=2", "stride=2\ngpu=0");
  const std::string repeated = replaced(kDefinition, "[pool1]", "[pool1]\nrepeat=1");
  for (const std::string& definition : {plain, repeated}) {
    for (const std::string key : {"type=pool", "inputs=pool1", "filters=2", "neuron=relu", "dropout=0.25",
                                  "gpu=0", "pool=max", "sizeX=2", "repeat=1"}) {
      if (definition.find(key) == std::string::npos) continue;
      const Workshop shop;
      const std::string name = key.substr(0, key.find('='));
      shop.write(replaced(definition, key, name + "=%(lost)s"), kParameters);
      INFO(key << " in\n" << definition);
      const Outcome refused = check_refused(planning(shop), "'" + name + "' refers to '%(lost)s', but ");
      CHECK(count(refused.err, "\n") == 1);
    }
  }
  const Workshop shop;
  shop.write(kDefinition, replaced(kParameters, "epsW=0.01", "epsW=%(rate)s"));
  CHECK(count(check_refused(planning(shop), "'epsW' refers to '%(rate)s', but ").err, "\n") == 1);
  shop.write(replaced(kDefinition, "type=softmax", "type=neuron\nneuron=%(lost)s"), kParameters);
  CHECK(count(check_refused(planning(shop), "'neuron' refers to '%(lost)s', but ").err, "\n") == 1);
  shop.write("[DEFAULT]\ninitW=%(spread)s\n" + kDefinition, kParameters);
  CHECK(count(check_refused(planning(shop), "'initW' refers to '%(spread)s', but ").err, "\n") == 1);
}

TEST_CASE("layers whose matrices would have one name in checkpoints are refused with both places") {
  // Both have the tensor a.weights.biases: the weights of one for its input, the biases of the other.
  const Workshop shop;
  const std::string between =
      "[biases]\ntype=fc\ninputs=pool1\noutputs=4\n"  // 21
      "[a]\ntype=fc\ninputs=biases\noutputs=3\n"      // 25
      "[a.weights]\ntype=fc\ninputs=a\noutputs=5\n";  // 29
  const std::string definition = replaced(replaced(kDefinition, "[fc10]", between + "[fc10]"),
                                          "inputs=pool1\noutputs=10", "inputs=a.weights\noutputs=10");
  std::string parameters = kParameters;
  for (const std::string name : {"biases", "a", "a.weights"})
    parameters += "[" + name + "]\nepsW=0.01\nepsB=0.02\nmomW=0.9\nmomB=0.8\n";
  shop.write(definition, parameters);
  const Outcome refused = check_refused(
      planning(shop),
      "net.cfg:29: layer 'a.weights': its tensor 'a.weights.biases' would have the name of one of "
      "layer 'a' (" +
          shop.definition_path() + ":25) in checkpoints; rename one of the layers\n");
  CHECK(count(refused.err, "\n") == 1);
  shop.write(std::regex_replace(definition, std::regex("a\\.weights"), "b"),
             replaced(parameters, "a.weights", "b"));
  CHECK(plan(shop).code == 0);
}

TEST_CASE("a layer with the name of a part of a divided layer is refused with both places") {
  for (const std::string place : {"gpu=0\n", ""}) {  // on one device, or divided itself
    const Workshop shop;
    const std::string definition = replaced(
        replaced(replaced(kDefinition, "outputs=10\ndropout=0.25", "outputs=10\ngpu=0,1\nparallel=model"),
                 "[probs]", "[fc10/1]\ntype=neuron\nneuron=relu\ninputs=fc10\n" + place + "[probs]"),
        "inputs=fc10\n[logprob]", "inputs=fc10/1\n[logprob]");
    shop.write(definition, kParameters);
    check_refused(planning(shop, {"--gpu", "0,1"}),
                  "net.cfg:27: layer 'fc10/1': has the name of a part of layer 'fc10' (" +
                      shop.definition_path() + ":21), which is divided over devices; rename one of them");
  }
}

TEST_CASE("all mistakes of both files are reported in one run, in order of their lines") {
  const Workshop shop;
  shop.write(replaced(replaced(replaced(kDefinition, "filterSize=3\nneuron=relu",
                                        "filterSize=x\nneuron=relu\npading=3"),
                               "dataIdx=1", "dataIdx=one"),
                      "[logprob]", "[lost]\ntype=fully\n[logprob]"),
             replaced(kParameters, "epsB=0.02", "epsB=?"));
  const Outcome run = plan(shop);
  INFO(run.err);
  CHECK(run.code == 2);
  std::size_t before = 0;
  for (const char* place :
       {"net.cfg:6: ", "net.cfg:12: ", "net.cfg:14: ", "net.cfg:31: ", "params.cfg:3: "}) {
    const std::size_t at = run.err.find(place);
    INFO(place);
    REQUIRE(at != std::string::npos);
    CHECK(at >= before);
    before = at;
  }
}

TEST_CASE("a layer above a wrong one has its own keys checked, but not what its inputs' shapes decide") {
  // conv1 is wrong, so the shape of all layers above it is unknown. That neither 5 outputs are enough for 10
  // classes nor 77 pixels fit is not said; everything else is.
  const std::string definition = replaced(
      replaced(replaced(replaced(kDefinition, "filterSize=3", "fliterSize=3"), "sizeX=2", "sizeX=77"),
               "pool=max", "pool=min"),
      "outputs=10\ndropout=0.25", "outputs=5\nneuron=reul\ngpu=one\ndropout=2");
  const std::string parameters = replaced(
      replaced(replaced(kParameters, "wc=0.001", "wc=-1\nepsQ=3"), "coeff=1", "coef=1"), "topk=2", "topk=no");
  const std::vector<std::string> all = {
      "net.cfg:12: layer 'conv1': unknown key 'fliterSize'; did you mean 'filterSize'?\n",
      "net.cfg:17: layer 'pool1': pool expects one of max, avg, maxabs, not 'min'; did you mean 'max'?\n",
      "net.cfg:25: layer 'fc10': unknown neuron 'reul'; did you mean 'relu'?",
      "net.cfg:26: layer 'fc10': gpu expects an integer between 0 and 1023, not 'one'\n",
      "net.cfg:27: layer 'fc10': dropout expects a number between 0 and 0.999, not '2'\n",
      "params.cfg:11: layer 'fc10': wc expects a number of at least 0, not '-1'\n",
      "params.cfg:12: warning: layer 'fc10': unknown key 'epsQ' is ignored; the section has 'epsW', too\n",
      "params.cfg:14: layer 'logprob': unknown key 'coef'; did you mean 'coeff'?\n",
      "params.cfg:15: layer 'logprob': topk expects an integer between 1 and 1048576, not 'no'\n"};
  const auto check_all = [&](const Workshop& shop, const std::vector<std::string>& messages) {
    const Outcome run = plan(shop);
    INFO(run.err);
    CHECK(run.code == 2);
    CHECK(count(run.err, "\n") == static_cast<int>(messages.size()));
    std::size_t before = 0;
    for (const std::string& message : messages) {
      INFO(message);
      const std::size_t at = run.err.find(message, before);
      REQUIRE(at != std::string::npos);
      before = at;
    }
  };
  const Workshop shop;
  shop.write(definition, parameters);
  check_all(shop, all);
  // Keys with a value for each input: their number is known if all inputs have names, else any number will
  // do.
  const std::string two = "[conv2]\ntype=conv\ninputs=data,lost\nfilters=2,3\nfilterSize=3\ninitW=1,2,3\n";
  const std::string rates = "[conv2]\nepsW=0.1\nepsB=0.1\nmomW=0,7\nmomB=0\n";
  shop.write(replaced(replaced(kDefinition, "[pool1]", two + "[pool1]"), "inputs=conv1", "inputs=conv2"),
             kParameters + rates);
  check_all(shop,
            {"net.cfg:16: layer 'conv2': unknown input 'lost'\n",
             "net.cfg:19: layer 'conv2': initW has 3 values for 2 inputs; give one value, or one per input\n",
             "params.cfg:18: layer 'conv2': momW expects a number between 0 and 1, not '7'\n"});
  shop.write(replaced(replaced(kDefinition, "[pool1]", replaced(two, "lost", "") + "[pool1]"), "inputs=conv1",
                      "inputs=conv2"),
             kParameters + rates);
  check_all(shop, {"net.cfg:16: layer 'conv2': inputs has an empty entry, ",
                   "params.cfg:18: layer 'conv2': momW expects a number between 0 and 1, not '7'\n"});
}

TEST_CASE(
    "what a layer's own keys contradict is said beside a wrong input, for each type that looks at them") {
  struct Contradiction {
    std::string section, parameters, message;
  };
  const std::string rates = "epsW=0.1\nepsB=0.1\nmomW=0\nmomB=0\n";
  const std::string adam = "optimizer=adamw\nepsW=0.1\nepsB=0.1\nmomW=1\nmomB=0\n";
  const std::vector<Contradiction> all = {
      {"type=pool\npool=max\nsizeX=2\n", "", "'stride' is missing"},
      {"type=pool\npool=max\nsizeX=0\nstart=1\n", "", "sizeX=0 pools the whole map"},
      {"type=pool\npool=max\nsizeX=2\nstride=1\nsum=1\n", "", "sum=1 goes with pool=avg"},
      {"type=rnorm\nsize=3\ncrossMap=1\n", "scale=1\npow=1\n", "crossMap=1 normalises across maps"},
      {"type=neuron\n", "", "'neuron' is missing"},
      {"type=neuron\nneuron=reul\n", "", "unknown neuron 'reul'"},
      {"type=bnorm\n", adam, "momW is the beta1 of optimizer=adamw"},
      {"type=fc\noutputs=3\n", adam, "momW is the beta1 of optimizer=adamw"},
      {"type=fc\noutputs=3\nweightSource=[0]\n", rates, "weightSource entry '[0]' names no layer"},
      {"type=fc\noutputs=3\nweightSource=a,b\n", rates, "weightSource has 2 entries for 1 input"},
      {"type=fc\noutputs=3\ninitWFunc=(\n", rates, "initWFunc must be written function"},
      {"type=fc\noutputs=3\ninitBFunc=(\n", rates, "initBFunc must be written function"},
      {"type=conv\nfilters=3\nfilterSize=1\n", rates + "wcNormMin=3\nwcNormMax=2\n",
       "wcNormMin is larger than wcNormMax"},
  };
  for (const Contradiction& one : all) {
    const Workshop shop;
    INFO(one.section << one.parameters);
    shop.write(kDefinition + "[odd]\ninputs=lost\n" + one.section,
               kParameters + (one.parameters.empty() ? "" : "[odd]\n" + one.parameters));
    const Outcome run = check_refused(planning(shop), "net.cfg:33: layer 'odd': unknown input 'lost'");
    CHECK(run.err.find("layer 'odd': " + one.message) != std::string::npos);
    CHECK(count(run.err, "\n") == 2);
  }
}

TEST_CASE("no layer type looks at the shape of an input that is wrong") {
  for (const LayerType& type : layer_types()) {
    if (type.max_inputs == 0) continue;
    INFO(type.name);
    // The keys of the type's example, with inputs that are not there.
    Diagnostics none;
    const std::size_t parameters = std::min(type.example.find("\n; parameter file"), type.example.size());
    const IniFile defined = parse_ini("", type.example.substr(0, parameters), none);
    const IniFile learned = parse_ini("", type.example.substr(parameters), none);
    const auto section = std::find_if(defined.sections.begin(), defined.sections.end(),
                                      [&](const IniSection& s) { return s.find("type")->text == type.name; });
    REQUIRE(section != defined.sections.end());
    const auto lines_of = [](const IniSection* s) {
      std::string lines;
      if (s == nullptr) return lines;
      for (const IniValue& value : s->values)
        if (value.key != "inputs") lines += value.written + "=" + value.text + "\n";
      return lines;
    };
    const bool two = type.min_inputs > 1;
    const Workshop shop;
    shop.write(kDefinition + "[odd]\ninputs=" + (two ? "lost,gone\n" : "lost\n") + lines_of(&*section),
               kParameters + "[odd]\n" + lines_of(learned.find(section->name)));
    const Outcome run = check_refused(planning(shop), "layer 'odd': unknown input 'lost'");
    CHECK(count(run.err, "\n") == (two ? 2 : 1));
  }
}

TEST_CASE("nets of other programs are recognised") {
  const Workshop shop;
  const auto error = [&](const std::string& text) {
    write_file(shop.definition_path(), text);
    return plan(shop).err;
  };
  const auto says = [&](const std::string& text, const std::string& what, const std::string& section) {
    INFO(what);
    CHECK(error(text) == shop.definition_path() + ": " + what +
                             "; a definition file here has a section with type= for each layer, and "
                             "docs/coming-from.md" +
                             section + " lists what corresponds\n");
  };
  says("[net]\nbatch=64\n\n[convolutional]\nfilters=16\n[convolutional]\n",
       "is a cfg of Darknet; convnet import FILE.cfg --weights FILE.weights makes a net of it "
       "(docs/import.md)",
       "#darknet");
  says("name: \"LeNet\"\nlayer {\n  name: \"conv1\"\n}\n", "is a prototxt, as of Caffe", "#caffe");
  says("net: \"train.prototxt\"\nbase_lr: 0.01\n", "is a solver of Caffe", "#caffe");
  says("{\"class_name\": \"Sequential\"}", "is JSON, as of Keras", "");
  says("import torch.nn as nn\nclass Net(nn.Module):\n", "is a Python program", "#pytorch");
  CHECK_THAT(
      error(std::string("\x08\x07\x12\x07pytorch\0", 12)),
      Catch::EndsWith(": is an ONNX model, not a layer file; convnet import makes a net and a checkpoint "
                      "of it\n"));
  CHECK_THAT(error(std::string("PK\3\4\24\0\0\0", 8) + std::string(22, '\0') + "net/data.pkl"),
             Catch::Contains("is a zip archive, as torch.save (.pth) writes, not a layer file") &&
                 Catch::EndsWith("; a new run takes its weights with --init-from\n"));
  // A layer may have the name of Darknet's section.
  shop.write(replaced(replaced(kDefinition, "[data]", "[net]"), "inputs=data", "inputs=net"), kParameters);
  CHECK(plan(shop).code == 0);
  shop.write(kDefinition, "base_lr: 0.01\nlr_policy: \"fixed\"\n");
  CHECK_THAT(plan(shop).err,
             Catch::Contains(shop.parameters_path() + ": is a solver of Caffe; a parameter file"));
}

TEST_CASE("batch norm of one vector a minibatch gets a warning") {
  const Workshop shop;
  shop.write_data();
  shop.write(replaced(kDefinition, "[fc10]\ntype=fc\ninputs=pool1",
                      "[fc1]\ntype=fc\ninputs=pool1\noutputs=4\n[bn]\ntype=bnorm\ninputs=fc1\n"
                      "[fc10]\ntype=fc\ninputs=bn"),
             "[DEFAULT]\nepsW=0\nepsB=0\nmomW=0\nmomB=0\n");
  const Args data = {"--data-provider", "mnist", "--data-path",  shop.data_path(),
                     "--train-range",   "1",     "--test-range", "2"};
  const auto warning = [&](const std::string& mini) {
    return run_well(shop.net() + data +
                    Args{"--epochs", "1", "--mini", mini, "--save-file", shop / ("run" + mini)})
        .err;
  };
  const auto plan_warning = [&](const Args& more) {
    return run_well(Args{"plan"} + shop.net() + data + more).err;
  };
  const std::string normalises = "warning: layer 'bn' of type 'bnorm' normalises over one image";
  CHECK_THAT(warning("1"), Catch::Contains(normalises) && Catch::Contains("; use a larger --mini\n"));
  CHECK(warning("2").find("normalises") == std::string::npos);
  // plan says the same, and which option cuts the images so finely.
  CHECK_THAT(plan_warning({"--mini", "1"}),
             Catch::Contains(normalises) && Catch::Contains("; use a larger --mini\n"));
  CHECK_THAT(
      plan_warning({"--mini", "2", "--microbatches", "2"}),
      Catch::Contains(normalises) && Catch::Contains("; use fewer --microbatches or a larger --mini\n"));
  CHECK(plan_warning({"--mini", "4", "--microbatches", "2"}).find("normalises") == std::string::npos);
  CHECK(plan_warning({"--mini", "2"}).find("normalises") == std::string::npos);
  // With one image the statistics stay as they began, and with some they move.
  const auto variance = [&](const std::string& mini) {
    return read_safetensors(shop / ("run" + mini + "/1.1.safetensors")).tensors.at("bn.runningVar").values;
  };
  CHECK(variance("1") == std::vector<float>(4, 1.0F));
  CHECK(variance("2") != variance("1"));
}

TEST_CASE("concat of maps of unequal sides is a vector, which is said") {
  const Workshop shop;
  const std::string cat = "[cat]\ntype=concat\ninputs=conv1,pool1\n";
  shop.write(replaced(kDefinition, "[fc10]\ntype=fc\ninputs=pool1", cat + "[fc10]\ntype=fc\ninputs=cat"),
             kParameters);
  const std::string sides = "the inputs of 'cat' have maps of unequal sides, 'conv1' 2x6x6 and 'pool1' 2x3x3";
  const Outcome as_vector = run_well(planning(shop, {}));
  CHECK_THAT(as_vector.err, Catch::Contains("net.cfg:23: warning: layer 'cat': " + sides +
                                            ", so its output is a vector of 90 numbers\n"));
  shop.write(replaced(kDefinition, "[fc10]\ntype=fc\ninputs=pool1",
                      cat + "[pool2]\ntype=pool\npool=max\nchannels=4\nsizeX=2\nstride=2\ninputs=cat\n"
                            "[fc10]\ntype=fc\ninputs=pool2"),
             kParameters);
  CHECK_THAT(plan(shop).err,
             Catch::Contains("layer 'pool2': channels=4, but input 'cat' is a vector of 90 numbers, "
                             "which is not 4 square maps: " +
                             sides + "\n"));
}

TEST_CASE("a layer may have the name of another's neuron") {
  const Workshop shop;
  shop.write(replaced(kDefinition, "[pool1]\ntype=pool\ninputs=conv1",
                      "[conv1_neuron]\ntype=neuron\nneuron=abs\ninputs=conv1\n[pool1]\ntype=pool\n"
                      "inputs=conv1_neuron"),
             kParameters);
  const Outcome run = plan(shop);
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(run.err.empty());
  CHECK(run.out.find("\nconv1_neuron.1  ") != std::string::npos);
  CHECK(run.out.find("\nconv1_neuron  ") != std::string::npos);
}

TEST_CASE("plan counts shared weights once, where their owner is") {
  const Workshop shop;
  // conv2 has the two 3x3 filters of 2 channels that conv3 shares, and each its own two biases.
  const std::string keys = "type=conv\nchannels=2\nfilters=2\nfilterSize=3\npadding=1\n";
  const std::string convs = "[conv2]\n" + keys + "inputs=conv1\n[conv3]\n" + keys +
                            "inputs=conv2\nweightSource=conv2[0]\n[conv4]\n" + keys +
                            "inputs=conv3\nweightSource=conv2[0]\nbiases=0\n";
  const std::string rates = "epsW=0.1\nepsB=0.1\nmomW=0\nmomB=0\n";
  shop.write(
      replaced(kDefinition, "[pool1]\ntype=pool\ninputs=conv1", convs + "[pool1]\ntype=pool\ninputs=conv4"),
      kParameters + "[conv2]\n" + rates + "[conv3]\n" + rates + "[conv4]\n" + rates);
  const Outcome table = plan(shop);
  INFO(table.out << table.err);
  REQUIRE(table.code == 0);
  // conv1 20, conv2 36 + 2, conv3 2, fc10 180 + 10.
  CHECK(std::regex_search(table.out, std::regex("\n250 parameters;")));
  CHECK(std::regex_search(table.out, std::regex("\nconv2 +conv +2x6x6 +38 ")));
  CHECK(std::regex_search(table.out, std::regex("\nconv3 +conv +2x6x6 +2 ")));
  CHECK(std::regex_search(table.out, std::regex("\nconv4 +conv +2x6x6 +shared ")));
  const auto json = nlohmann::json::parse(plan(shop, {"--json"}).out);
  CHECK(json["parameters"] == 250);
  for (const auto& layer : json["layers"]) {
    if (layer["name"] == "conv2") CHECK((layer["parameters"] == 38 && layer["shared_parameters"] == 0));
    if (layer["name"] == "conv3") CHECK((layer["parameters"] == 2 && layer["shared_parameters"] == 36));
    if (layer["name"] == "conv4") CHECK((layer["parameters"] == 0 && layer["shared_parameters"] == 36));
  }
}

TEST_CASE("a flood of mistakes is cut, and a broken layer after it stays broken") {
  const Workshop shop;
  std::string definition;
  for (int i = 0; i < 1200; ++i) definition += "[layer" + std::to_string(i) + "]\ntype=none\n";
  shop.write(definition + replaced(kDefinition, "filterSize=3", "filterSize=1,2\nstride=0"), kParameters);
  const Outcome run = plan(shop);
  CHECK(run.signal == 0);
  CHECK(run.code == 2);
  CHECK(run.err.find("net.cfg:2: layer 'layer0': unknown layer type 'none'") != std::string::npos);
  CHECK(run.err.ends_with("more follow, which are not shown\n"));
}

TEST_CASE("in a flood of mistakes, only the first unknown inputs are compared with all layers") {
  const Workshop shop;
  std::string wrong;
  for (int i = 0; i < 200; ++i)
    wrong += "[more" + std::to_string(i) + "]\ntype=neuron\nneuron=relu\ninputs=cnov1\n";
  shop.write(kDefinition + wrong, kParameters);
  const Outcome run = plan(shop);
  CHECK(run.code == 2);
  CHECK(run.err.find("layer 'more0': unknown input 'cnov1'; did you mean 'conv1'?\n") != std::string::npos);
  CHECK(run.err.find("layer 'more199': unknown input 'cnov1'\n") != std::string::npos);
}

TEST_CASE("layer files that cannot be read are named, both of them") {
  const Workshop shop;
  std::filesystem::remove(shop.definition_path());
  std::filesystem::remove(shop.parameters_path());
  std::filesystem::create_directory(shop.parameters_path());
  const Outcome run = plan(shop);
  INFO(run.err);
  CHECK(run.code == 2);
  CHECK(run.err.find("net.cfg: cannot be read: No such file or directory") != std::string::npos);
  CHECK(run.err.find("params.cfg: cannot be read: Is a directory") != std::string::npos);
}

TEST_CASE("option --layer-path is put before names that are not absolute") {
  const Workshop shop;
  run_well(planning(shop, {"--layer-path", shop / "none"}));
  for (const std::string& path : {shop.path(), shop.path() + "/"})
    run_well({"plan", "--data-provider", "dummy-1x8x8-10", "--layer-path", path, "--layer-def", "net.cfg",
              "--layer-params", shop.parameters_path()});
  check_refused(planning(shop, {"--layer-path", shop / "none", "--layer-def", "net.cfg"}),
                (shop / "none/net.cfg") + ": cannot be read");
}

TEST_CASE("what is odd but harmless gets a warning, and an error with --strict where it may be a mistake") {
  struct Oddity {
    std::string definition_from, definition_to, parameters_to, warning;
    bool strict;
  };
  const std::vector<Oddity> oddities = {
      {"stride=2", "stride=2\ncolour=red", "",
       "net.cfg:21: warning: layer 'pool1': unknown key 'colour' is ignored", true},
      {"stride=2", "stride=2\nepsW=0.1", "",
       "net.cfg:21: warning: layer 'pool1': unknown key 'epsW' is ignored: it belongs to layers of type fc, "
       "sfc, "
       "conv, local, bnorm",
       true},
      {"filters=2", "filters=2\nmomW=0.5", "",
       "net.cfg:12: warning: layer 'conv1': 'momW' belongs in the parameter file and is ignored here", false},
      {"filters=2", "filters=3\nFilters=2", "",
       "net.cfg:12: warning: section 'conv1': 'Filters' is given twice; this one replaces line 11", false},
      {"stride=2", "stride=4", "",
       "net.cfg:20: warning: layer 'pool1': stride=4 is larger than sizeX=2: pixels between the windows are "
       "not used",
       false},
      {"[pool1]", "[pool1] x", "", "net.cfg:14: warning: the text after the section's ']' is ignored: 'x'",
       false},
      {"stride=2", "stride=2", "[conv9]\nepsW=1\n",
       "params.cfg:15: warning: section [conv9] is ignored: there is no such layer; did you mean 'conv1'?",
       false},
      {"stride=2", "stride=2", "filters=1\n",
       "params.cfg:15: warning: layer 'logprob': unknown key 'filters' is ignored: it belongs to layers of "
       "type "
       "conv, local",
       true},
      {"stride=2", "stride=2", "[conv1]\nfilters=1\n",
       "params.cfg:16: warning: layer 'conv1': 'filters' belongs in the layer definition file and is ignored "
       "here",
       false},
  };
  for (const Oddity& odd : oddities) {
    const Workshop shop;
    shop.write(replaced(kDefinition, odd.definition_from, odd.definition_to),
               kParameters + odd.parameters_to);
    const Outcome lenient = plan(shop);
    INFO(odd.warning << "\n" << lenient.err);
    CHECK(lenient.code == 0);
    const std::size_t at = lenient.err.find(odd.warning);
    CHECK(at != std::string::npos);
    CHECK(lenient.err.find(odd.warning, at + 1) == std::string::npos);  // said once
    const Outcome strict = plan(shop, {"--strict"});
    INFO(strict.err);
    CHECK(strict.code == (odd.strict ? 2 : 0));
  }
}

TEST_CASE("a net too large for the machine is refused before it runs") {
  const Workshop shop;
  shop.write(replaced(kDefinition, "outputs=10", "outputs=16000000"), kParameters);
  const Outcome run = run_program(shop.dummy() + Args{"--save-file", shop / "out", "--mini", "100000"});
  INFO(run.err);
  CHECK(run.code == 3);
  CHECK(run.err.find("images a minibatch does not fit in memory") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(shop / "out"));
}

TEST_CASE("a plan of more bytes than there are numbers is refused") {
  const Workshop shop;
  std::string layers = "[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n", above = "data";
  for (int i = 0; i < 90; ++i) {
    const std::string name = "c" + std::to_string(i);
    layers += "[" + name + "]\ntype=conv\ninputs=" + above + "\nfilters=1020\nfilterSize=1\n";
    above = name;
  }
  shop.write(layers + "[small]\ntype=pool\npool=avg\ninputs=" + above +
                 "\nsizeX=0\n[fc10]\ntype=fc\ninputs=small"
                 "\noutputs=10\n[probs]\ntype=softmax\ninputs=fc10\n[logprob]\ntype=cost.logreg\n"
                 "inputs=labels,probs\n",
             "[DEFAULT]\nepsW=0.01\nepsB=0.01\nmomW=0.9\nmomB=0.9\n[logprob]\ncoeff=1\n");
  check_refused(
      Args{"plan"} + shop.net() + Args{"--data-provider", "dummy-1x1448x1448-10", "--mini", "16777216"},
      "the tensors of this net take more than 2^62 bytes; use a smaller --mini or layers");
}

TEST_CASE("a misspelt input gives one error, and a warning beside it is called so") {
  const Workshop shop;
  shop.write(replaced(kDefinition, "inputs=labels,probs", "inputs=labels,prob"), kParameters + "[nolayer]\n");
  const Outcome run = plan(shop);
  CHECK(run.code == 2);
  CHECK(run.err ==
        shop.definition_path() + ":31: layer 'logprob': unknown input 'prob'; did you mean 'probs'?\n" +
            shop.parameters_path() + ":15: warning: section [nolayer] is ignored: there is no such layer\n");
}

TEST_CASE("warnings are printed beside the errors that they explain") {
  const Workshop shop;
  const auto plan_error = [&](const std::string& definition, const std::string& parameters) {
    shop.write(definition, parameters);
    const Outcome run = plan(shop);
    INFO(run.err);
    CHECK(run.code == 2);
    return std::regex_replace(run.err, std::regex(shop.path() + "/"), "");
  };
  const std::string indented = " continues the value of ";
  const std::string above = " above; begin it in the first column if it is a key of its own\n";
  CHECK(
      plan_error(replaced(kDefinition, "inputs=conv1\npool=max", "inputs=conv1\n  pool=max"), kParameters) ==
      "net.cfg:16: layer 'pool1': unknown input 'conv1 pool=max'\n"
      "net.cfg:17: warning: the indented line 'pool=max'" +
          indented + "'inputs'" + above);
  // The number of inputs is not known then, so nothing is said about values for each of them either.
  CHECK(plan_error(replaced(kDefinition, "inputs=data\nchannels=1\nfilters=2\n",
                            "inputs=data\n  Filters=2\nchannels=1,2\n"),
                   kParameters) ==
        "net.cfg:9: layer 'conv1': unknown input 'data Filters=2'\n"
        "net.cfg:10: warning: the indented line 'Filters=2'" +
            indented + "'inputs'" + above);
  CHECK_THAT(
      plan_error(replaced(kDefinition, "type=pool\ninputs=conv1", "type=pool\n inputs=conv1"), kParameters),
      Catch::Contains("net.cfg:15: layer 'pool1': unknown layer type 'pool inputs=conv1'; known: ") &&
          Catch::Contains("net.cfg:16: warning: the indented line 'inputs=conv1'" + indented + "'type'" +
                          above));
  CHECK_THAT(plan_error(kDefinition, replaced(kParameters, "momW=0.9\n", "momW=0.9\n\t")),
             Catch::Contains("params.cfg:5: warning: the indented line "));
  // A section that was copied, and whose name was not changed.
  const std::string copied =
      plan_error(replaced(kDefinition, "[pool1]\ntype=pool", "[conv1]\ntype=pool"), kParameters);
  CHECK_THAT(copied, Catch::Contains("net.cfg:15: warning: section 'conv1': 'type' is given twice; this one "
                                     "replaces line 8, because the section continues that of line 7\n") &&
                         Catch::Contains("net.cfg:16: layer 'conv1': reads itself\n"));
  CHECK_THAT(plan_error(replaced(kDefinition, "stride=2", "colour=red"), kParameters),
             Catch::Contains("net.cfg:20: warning: layer 'pool1': unknown key 'colour' is ignored\n") &&
                 Catch::Contains("net.cfg:14: layer 'pool1': 'stride' is missing; "));
}

TEST_CASE(
    "that a layer has no user is said of the layer that the file has, and only if nothing else is wrong") {
  const Workshop shop;
  const auto errors = [&](const std::string& definition, const std::string& parameters) {
    shop.write(definition, parameters);
    return plan(shop).err;
  };
  const std::string unused = "no layer uses its output";
  const std::string around =
      replaced(kDefinition, "inputs=conv1\npool=max\nchannels=2", "inputs=data\npool=max");
  CHECK(errors(around, kParameters) ==
        shop.definition_path() + ":7: layer 'conv1': " + unused + "; name it in an inputs= or remove it\n");
  // The other mistakes of the same file: an input, a type, a section, a value, and a reference.
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"inputs=pool1", "inputs=pooling"},
                                                        {"type=fc", "type=fully"},
                                                        {"[fc10]", "fc10]"},
                                                        {"[fc10]", "[fc10"},
                                                        {"outputs=10", "outputs=ten"},
                                                        {"outputs=10", "outputs=%(n)s"}}) {
    INFO(to);
    const std::string text = errors(replaced(around, from, to), kParameters);
    CHECK(text.find(shop.definition_path() + ":2") != std::string::npos);
    CHECK(text.find(unused) == std::string::npos);
    CHECK(text.find("reads itself") == std::string::npos);
  }
  const std::string without_cost =
      replaced(kDefinition, "[logprob]\ntype=cost.logreg\ninputs=labels,probs\n", "");
  CHECK(errors(without_cost, replaced(kParameters, "[logprob]\ncoeff=1\ntopk=2\n", "")) ==
        shop.definition_path() + ": the net has no cost layer; add one, like type=cost.logreg\n");
  // A layer without its learning parameters is not made, so nothing is known of its input.
  const std::string lacking = errors(kDefinition, replaced(kParameters, "[conv1]", "[default]"));
  CHECK(lacking == shop.definition_path() +
                       ":7: layer 'conv1' has no section [conv1] in the parameter file; it needs epsW, epsB, "
                       "momW, momB, there or in [DEFAULT]\n" +
                       shop.parameters_path() +
                       ":1: warning: section [default] is ignored: there is no such layer; did you mean "
                       "[DEFAULT]?\n");
}

}  // namespace
}  // namespace convnet
