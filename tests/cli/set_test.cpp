// --set gives single keys of the two files other values.
#include <nlohmann/json.hpp>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/config/ini_edit.h"
#include "convnet/graph/settings.h"
#include "tests/catch.h"
#include "tests/cli/equal_tensors.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

std::vector<Setting> settings_of(const std::string& text) {
  std::vector<Setting> settings;
  CHECK(parse_settings(text, {}, settings).empty());
  return settings;
}

TEST_CASE("a comma separates settings only where LAYER.KEY= follows it") {
  using Settings = std::vector<Setting>;
  CHECK(settings_of("") == Settings{});
  CHECK(settings_of("conv1.epsW=0.01") == Settings{{"conv1", "epsW", "0.01"}});
  CHECK(settings_of("a.gpu=0,1,b.gpu=2, 3 , c.wc = 0") ==
        Settings{{"a", "gpu", "0,1"}, {"b", "gpu", "2, 3"}, {"c", "wc", "0"}});
  CHECK(settings_of("a.epsW=step[base=0.1;at=0.5,1.5;factor=0.1],a.neuron=tanh[1,2]") ==
        Settings{{"a", "epsW", "step[base=0.1;at=0.5,1.5;factor=0.1]"}, {"a", "neuron", "tanh[1,2]"}});
  CHECK(settings_of("layer1.0.conv1.wc=0,layer1.0.conv1.neuron=") ==
        Settings{{"layer1.0.conv1", "wc", "0"}, {"layer1.0.conv1", "neuron", ""}});
  CHECK(settings_of("a.wc=1,b.wc=2,a.WC=3") == Settings{{"b", "wc", "2"}, {"a", "WC", "3"}});
  std::vector<Setting> none;
  for (const char* wrong :
       {"conv1", "conv1.epsW", "epsW=1", ".epsW=1", "conv1.=1", "conv1.eps W=1", "=", ","})
    CHECK_THAT(parse_settings(wrong, {}, none), Catch::Contains("expects LAYER.KEY=VALUE"));
  CHECK(parse_settings("a.b=1\n[c]", {}, none) == "may not have a line break");
}

TEST_CASE("settings of a resumed run follow and replace those before") {
  CHECK(joined_settings("", "a.wc=1") == "a.wc=1");
  CHECK(joined_settings("a.wc=1,a.gpu=0,1", "b.wc=2,a.wc=3") == "a.gpu=0,1,b.wc=2,a.wc=3");
  CHECK(joined_settings("a.wc=1", "a.wc=1") == "a.wc=1");
  CHECK(joined_settings("a.wc=1", "").empty());
}

TEST_CASE("a value is set in place, or below another header at the end") {
  Diagnostics diagnostics;
  const IniFile file =
      parse_ini("x.cfg", "\xEF\xBB\xBF[a]\nk=1\n  2\n# c\n[DEFAULT]\nd=3\n[b]\nm=4", diagnostics);
  CHECK(has_own_key(file, "a", "K"));
  CHECK(has_own_key(file, "DEFAULT", "d"));
  CHECK_FALSE(has_own_key(file, "b", "d"));
  CHECK(with_value(file, "a", "k", "9", diagnostics).text ==
        "\xEF\xBB\xBF[a]\nk=9\n\n# c\n[DEFAULT]\nd=3\n[b]\nm=4");
  const IniFile all = with_value(file, "DEFAULT", "d", "9", diagnostics);
  CHECK(all.find("b")->find("d")->text == "9");
  CHECK(all.find("b")->find("d")->from_default);
  const IniFile own = with_value(file, "b", "d", "9", diagnostics);
  CHECK(own.text == file.text + "\n[b]\nd=9\n");
  CHECK(own.find("a")->find("d")->text == "3");
  // Comments within a value do not end it.
  const IniFile parted = parse_ini("x.cfg", "[a]\nk=1,\n# c\n  2\n; d\n\nl=3", diagnostics);
  CHECK(parted.find("a")->find("k")->text == "1,\n2");
  CHECK(with_value(parted, "a", "k", "9", diagnostics).text == "[a]\nk=9\n\n\n; d\n\nl=3");
  CHECK(own.find("b")->find("d")->text == "9");
  CHECK(with_value(own, "b", "d", "8", diagnostics).text == file.text + "\n[b]\nd=8\n");
  CHECK(with_value(file, "new", "k", "1", diagnostics).find("new")->find("k")->text == "1");
}

nlohmann::json layers_of(const Args& args) {
  return nlohmann::json::parse(run_well(Args{"plan", "--json"} + args).out)["layers"];
}

TEST_CASE("option --set gives the net of edited files") {
  const Workshop shop, edited;
  edited.write(
      replaced(replaced(kDefinition, "filters=2", "filters=4"), "channels=2", "channels=4"),
      replaced(replaced(kParameters, "epsW=0.01", "epsW=0.001"), "[fc10]\n", "[fc10]\nupdatePeriod=2\n"));
  const Args set = {"--set", "conv1.filters=4,pool1.channels=4", "--set=conv1.EPSW=0.001", "--set",
                    "fc10.updatePeriod=2"};
  const auto planned = [](const Workshop& files, const Args& more) {
    return layers_of(files.net() + Args{"--data-provider", "dummy-1x8x8-10"} + more);
  };
  CHECK(planned(shop, set) == planned(edited, {}));
  CHECK(planned(shop, {}) != planned(edited, {}));
  run_well(Args{"bench", "--steps", "1", "--data-provider", "dummy-1x8x8-10"} + shop.net() + set);
  run_well(Args{"place", "--data-provider", "dummy-1x8x8-10", "--gpu", "0,1", "--model",
                std::string(CONVNET_SOURCE_DIR) + "/bench/models/nvlink-8gpu.json", "--out",
                shop / "placed.cfg", "--out-params", shop / "placed-params.cfg"} +
           shop.net() + set);
  CHECK_THAT(read_file(shop / "placed.cfg"), Catch::Contains("filters=4"));

  const Args train = {"--epochs", "1"};
  run_well(shop.dummy() + train + set + Args{"--save-file", shop / "run"});
  run_well(edited.dummy() + train + Args{"--save-file", edited / "run"});
  const Checkpoint a = read_checkpoint(shop / "run"), b = read_checkpoint(edited / "run");
  check_equal_tensors(a.tensors, b.tensors);
  CHECK(a.definition_text == b.definition_text);
  CHECK_THAT(a.parameters_text, Catch::Contains("EPSW=0.001") || Catch::Contains("epsW=0.001"));
}

TEST_CASE("option --set stays with the run") {
  const Workshop shop;
  const auto train = [&](const Args& more) {
    return run_well(shop.dummy() + Args{"--set", "fc10.wc=0.5"} + more);
  };
  const auto resume = [&](const Args& more) {
    return run_well(Args{"--load-file", shop / "run", "--epochs"} + more);
  };
  train({"--save-file", shop / "whole", "--epochs", "2"});
  CHECK_THAT(train({"--save-file", shop / "run", "--epochs", "1"}).out,
             Catch::Contains("Keys that --set gives: fc10.wc=0.5\n"));
  CHECK_THAT(read_checkpoint(shop / "run").parameters_text, Catch::Contains("wc=0.5"));
  const Outcome resumed = resume({"2"});
  CHECK_THAT(resumed.out, Catch::Contains("Keys that --set gives: fc10.wc=0.5\n"));
  CHECK_THAT(resumed.out, !Catch::Contains("has changed since"));
  check_equal_tensors(read_checkpoint(shop / "run").tensors, read_checkpoint(shop / "whole").tensors);

  resume({"3", "--set", "conv1.momB=0.5", "--set", "fc10.wc=0"});
  const Checkpoint added = read_checkpoint(shop / "run");
  CHECK(added.options.at("set") == "conv1.momB=0.5,fc10.wc=0");
  CHECK(added.parameters_text == replaced(replaced(kParameters, "momB=0.8", "momB=0.5"), "wc=0.001", "wc=0"));
  CHECK_THAT(run_well({"--load-file", shop / "run", "--test-only", "--json", "--set", "logprob.topk=3"}).out,
             Catch::Contains("top-3 error"));
  resume({"4", "--set", ""});
  CHECK(read_checkpoint(shop / "run").parameters_text == kParameters);
  train({"--save-file", shop / "gone", "--epochs", "1", "--set", "conv1.filters=4,pool1.channels=4"});
  CHECK_THAT(run_well({"--load-file", shop / "gone", "--epochs", "2"}).out,
             !Catch::Contains("differs from it"));
  const Args ended = {"--load-file", shop / "gone", "--save-file", shop / "ended",
                      "--epochs",    "3",           "--set",       ""};
  CHECK_THAT(run_well(ended).out,
             Catch::Contains("--set '' leaves the net as it is, with conv1.filters=4,pool1.channels=4\n"));
  std::filesystem::remove(shop.parameters_path());
  check_refused({"--load-file", shop / "gone", "--epochs", "3", "--set", ""},
                "--set '' gives keys the values of the parameter file again, but " + shop.parameters_path() +
                    " is not there; name it with --layer-params");
  check_refused({"--load-file", shop / "run", "--epochs", "5", "--set", "fc10.outputs=20"},
                "fc10.outputs=20: is another net than that of checkpoint " + (shop / "run"));
}

TEST_CASE("mistakes in --set are named") {
  const Workshop shop;
  const Args plan = Args{"plan", "--data-provider", "dummy-1x8x8-10"} + shop.net();
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"conv1", "--set expects LAYER.KEY=VALUE, like conv1.epsW=0.01"},
      {"=", "or several with commas between them, not '='"},
      {"a.b", "or several with commas between them, not 'a.b'"},
      {"conv2.epsW=1", "--set conv2.epsW=1: there is no layer 'conv2'; did you mean 'conv1'?"},
      {"conv1.espW=1", "--set conv1.espW=1: a layer of type 'conv' has no key 'espW'; did you mean 'epsW'?"},
      {"conv1.colour=red", "has no key 'colour'; 'convnet layers conv' lists its keys"},
      {"DEFAULT.espW=1", "--set DEFAULT.espW=1: no layer type has a key 'espW'; did you mean 'epsW'?"},
      {"conv1.epsW=fast", "--set conv1.epsW=fast: layer 'conv1': epsW has a wrong value: 'fast'"},
      {"DEFAULT.wc=heavy", "--set DEFAULT.wc=heavy: layer 'conv1': wc"},
      {"conv1.type=cnv",
       "--set conv1.type=cnv: layer 'conv1': unknown layer type 'cnv'; did you mean 'conv'?"},
      {"conv1.epsW=%(rate)s",
       "--set conv1.epsW=%(rate)s: section 'conv1': 'epsW' refers to '%(rate)s', but neither the section nor "
       "[DEFAULT] has that key"},
      {"fc10.inputs=pool2", "--set fc10.inputs=pool2: layer 'fc10': unknown input 'pool2'"},
  };
  for (const auto& [set, message] : mistakes) check_refused(plan + Args{"--set", set}, message);
  check_refused(plan + Args{"--set", "DEFAULT.keep=0.5"}, "no layer of this net has the key 'keep'");
  check_refused(
      plan + Args{"--set", "DEFAULT.filters=9"},
      "changes nothing, because all layers that have this key have a value of their own; name a layer, "
      "like conv1.filters");
  check_refused(plan + Args{"--set", "conv1.espW=1", "--set", "conv2.wc=1"}, "there is no layer 'conv2'");
  // Lines keep their numbers.
  shop.write(replaced(kDefinition, "outputs=10", "outputs=ten"), kParameters);
  check_refused(plan + Args{"--set", "conv1.stride=1,data.dropout=0"}, shop.definition_path() + ":24: ");
}

}  // namespace
}  // namespace convnet
