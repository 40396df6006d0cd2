// Layer files that the command line names: nets that come with the program, --layer-path and --flat.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {

TEST_CASE("nets that come with the program are found by their names") {
  const Workshop shop;
  const Args data = {"plan", "--data-provider", "dummy-1x28x28-10"};
  const std::string configs =
      std::filesystem::canonical(std::string(CONVNET_SOURCE_DIR) + "/configs").string();
  for (const auto& [definition, parameters] : std::vector<std::pair<std::string, std::string>>{
           {"lenet.cfg", "lenet-params.cfg"}, {"lenet", "lenet-params"}, {"lenet", "lenet"}}) {
    const Outcome run = run_well(data + Args{"--layer-def", definition, "--layer-params", parameters});
    CHECK(run.err == "Note: --layer-def " + definition + " is " + configs +
                         "/lenet.cfg\nNote: --layer-params " + parameters + " is " + configs +
                         "/lenet-params.cfg\n");
  }
  // A file of the user's comes first, in --layer-path, too.
  write_file(shop / "lenet.cfg", replaced(kDefinition, "[conv1]", "[own]"));
  shop.write(replaced(kDefinition, "[conv1]", "[wrong]"), kParameters);
  const Args in_shop = {"--layer-path", shop.path()};
  check_refused(data + in_shop + Args{"--layer-def", "lenet.cfg", "--layer-params", "lenet"},
                (shop / "lenet.cfg") + ":");
  check_refused(data + in_shop + Args{"--layer-def", "lenet", "--layer-params", "lenet"},
                (shop / "lenet.cfg") + ":");
  check_refused(
      data + Args{"--layer-def", "lenett.cfg", "--layer-params", "lenet-param.cfg"},
      "lenett.cfg: cannot be read: No such file or directory; did you mean 'lenet.cfg'?\n"
      "lenet-param.cfg: cannot be read: No such file or directory; did you mean 'lenet-params.cfg'?");
  check_refused(data + Args{"--layer-def", "nets/lenet.cfg", "--layer-params", "lenet"},
                "nets/lenet.cfg: cannot be read: No such file or directory\n");
}

TEST_CASE("a net that comes with the program brings its parameters and takes any images and classes") {
  const std::string configs =
      std::filesystem::canonical(std::string(CONVNET_SOURCE_DIR) + "/configs").string();
  const Args data = {"plan", "--data-provider", "dummy-3x40x40-3"};
  for (const std::string name : {"resnet18", "resnet18-imagenet", "resnet18-imagenet.cfg"}) {
    const Outcome run = run_well(data + Args{"--layer-def", name});
    CHECK_THAT(run.err,
               Catch::Contains("/resnet18-imagenet.cfg\n") &&
                   Catch::Contains(" is " + configs + "/resnet18-imagenet-params.cfg\n") &&
                   Catch::Contains("layer 'logprob': topk=5 is lowered to the 3 outputs of 'probs'\n"));
    CHECK_THAT(run.out, Catch::Contains("fc                   fc                        3         1539"));
  }
  CHECK_THAT(run_well(data + Args{"--layer-def", "wide-resnet50-2"}).err,
             Catch::Contains("/wide_resnet50_2.cfg\n"));
  check_refused(data + Args{"--layer-def", "resnet81", "--layer-params", "lenet"},
                "resnet81: cannot be read: No such file or directory; did you mean 'resnet18'?");
  check_refused(
      data + Args{"--layer-def", "resnet81"},
      "--layer-def resnet81: there is no such file, and no net of this name; did you mean 'resnet18'?");
  const Workshop shop;
  write_file(shop / "lenet.cfg", kDefinition);
  check_refused(
      {"plan", "--data-provider", "dummy-1x8x8-10", "--layer-path", shop.path(), "--layer-def", "lenet"},
      "missing: --layer-params");
}

TEST_CASE("a file that --layer-path hides is named") {
  const Workshop shop;
  shop.write(kDefinition, kParameters);
  // So deep that the relative path leads nowhere from there.
  std::string folder = std::filesystem::current_path().string();
  folder = shop / "nets" + folder + folder;
  std::filesystem::create_directories(folder);
  write_file(folder + "/net.cfg", kDefinition);
  check_refused({"plan", "--data-provider", "dummy-1x8x8-10", "--layer-path", folder, "--layer-def",
                 "net.cfg", "--layer-params", std::filesystem::relative(shop.parameters_path()).string()},
                "is put before it: add --layer-path .");
}

TEST_CASE("option --flat writes the net without templates") {
  const Workshop shop;
  const Args plan = {"plan", "--data-provider", "dummy-3x32x32-10", "--layer-params", "wrn-16-4", "--json"};
  const std::string flat = shop / "flat.cfg";
  const std::string of_templates = run_well(plan + Args{"--layer-def", "wrn-16-4", "--flat", flat}).out;
  const std::string text = read_file(flat);
  CHECK_THAT(text, !Catch::Contains("template") &&
                       Catch::Contains("[g2b1-conv1]\ntype=conv\ninputs=g2b1-bn1\nfilters=128\n"));
  CHECK(run_well(plan + Args{"--layer-def", flat}).out == of_templates);
  // The flat form of a flat file is that file, with one line of its checksum.
  run_well(plan + Args{"--layer-def", flat, "--flat", shop / "again.cfg"});
  CHECK(read_file(shop / "again.cfg") == text);
  // The flat form has what --set gives one of the layers.
  run_well(plan + Args{"--layer-def", "wrn-16-4", "--flat", flat, "--set", "g2b1-conv1.initW=0.5"});
  CHECK_THAT(read_file(flat), Catch::Contains("[g2b1-conv1]\ninitW=0.5\n"));
  check_refused(plan + Args{"--layer-def", flat, "--flat", flat}, "--flat");
  check_refused(plan + Args{"--layer-def", "wrn-16-4", "--flat", shop.path()}, "is a folder");
  // A file that somebody has edited stays, as does one of another kind.
  const std::string edited = replaced(read_file(flat), "filters=128", "filters=96");
  for (const std::string& theirs : {edited, std::string("my notes\n")}) {
    write_file(flat, theirs);
    check_refused(plan + Args{"--layer-def", "wrn-16-4", "--flat", flat}, "or that was edited");
    CHECK(read_file(flat) == theirs);
  }
}

TEST_CASE("nets that come with the program are listed") {
  const std::string text = run_well({"nets"}).out;
  CHECK_THAT(
      text, Catch::Contains(
                "resnet18                     11.7 M        1.81 G    3x224x224  residual net of 18 layers"));
  CHECK_THAT(text, Catch::Contains("measured: 4.8 % test error on Fashion-MNIST"));
  CHECK(text.find("-imagenet ") == std::string::npos);
  const auto nets = nlohmann::json::parse(run_well({"nets", "--json"}).out);
  CHECK(nets.size() >= 20);
  for (const auto& net : nets) CHECK(net["parameters"] > 1000);
  check_refused({"nets", "resnet18"}, "resnet18");
}

TEST_CASE("a run with a net that comes with the program goes on with its parameters") {
  const Workshop shop;
  const Args data = {"--data-provider", "dummy-1x28x28-10", "--train-range", "1", "--test-range", "2"};
  run_well(data + Args{"--layer-def", "lenet", "--layer-params", "lenet", "--epochs", "1", "--save-file",
                       shop / "run"});
  CHECK_THAT(run_well({"--load-file", shop / "run", "--epochs", "2"}).out,
             Catch::Contains("The learning parameters are those of ") &&
                 Catch::Contains("configs/lenet-params.cfg\n"));
  // A file of the user's that has gone is not replaced by an installed one of its name.
  write_file(shop / "lenet.cfg", kDefinition);
  write_file(shop / "lenet-params.cfg", kParameters);
  run_well({"--layer-path", shop.path(), "--layer-def", "lenet.cfg", "--layer-params", "lenet-params.cfg",
            "--data-provider", "dummy-1x8x8-10", "--train-range", "1", "--test-range", "2", "--epochs", "1",
            "--threads", "1", "--save-file", shop / "own"});
  std::filesystem::remove(shop / "lenet-params.cfg");
  CHECK_THAT(
      run_well({"--load-file", shop / "own", "--epochs", "2"}).out,
      Catch::Contains((shop / "lenet-params.cfg") + " is not there: the learning parameters are those of "));
}

}  // namespace convnet
