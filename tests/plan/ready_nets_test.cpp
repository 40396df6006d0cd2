// The nets of configs/ that have other programs' sizes, and their headers.
#include "convnet/net/ready_nets.h"

#include <filesystem>
#include <map>
#include <set>

#include "convnet/config/ini_flat.h"
#include "convnet/plan/hash.h"
#include "convnet/plan/verify.h"
#include "tests/catch.h"
#include "tests/plan/planned_net.h"

namespace convnet::test {
namespace {

const std::string kFolder = CONVNET_SOURCE_DIR "/configs";

/// Numbers of parameters, counted in torchvision 0.29's models; of `small`, which is our own, counted by
/// hand. `alexnet-owt` has those of torchvision's alexnet. GoogLeNet is without the auxiliary classifiers,
/// whose parameters torchvision's function has only in training.
const std::map<std::string, std::int64_t>& known_parameters() {
  static const std::map<std::string, std::int64_t> numbers = {
      {"alexnet", 61100840},           {"alexnet-owt", 61100840},
      {"densenet121", 7978856},        {"shufflenet_v2_x1_0", 2278604},
      {"efficientnet_b0", 5288548},    {"googlenet", 6624904},
      {"mobilenet-v3-small", 2542856}, {"mobilenet_v2", 3504872},
      {"mobilenet_v3_large", 5483032}, {"resnet18", 11689512},
      {"resnet34", 21797672},          {"resnet50", 25557032},
      {"resnet101", 44549160},         {"resnet152", 60192808},
      {"resnext50_32x4d", 25028904},   {"small", 719658},
      {"squeezenet1_1", 1235496},      {"vgg11", 132863336},
      {"vgg11_bn", 132868840},         {"vgg16", 138357544},
      {"vgg16_bn", 138365992},         {"wide_resnet50_2", 68883240},
      {"wide_resnet101_2", 126886696}};
  return numbers;
}

/// Billions of multiply-adds of an image, from the metadata of torchvision's pretrained weights ("_ops").
const std::map<std::string, double>& known_work() {
  static const std::map<std::string, double> numbers = {{"alexnet", 0.714},
                                                        {"alexnet-owt", 0.714},
                                                        {"densenet121", 2.834},
                                                        {"efficientnet_b0", 0.386},
                                                        {"googlenet", 1.498},
                                                        {"mobilenet-v3-small", 0.057},
                                                        {"mobilenet_v2", 0.301},
                                                        {"mobilenet_v3_large", 0.217},
                                                        {"resnet18", 1.814},
                                                        {"resnet34", 3.664},
                                                        {"resnet50", 4.089},
                                                        {"resnet101", 7.801},
                                                        {"resnet152", 11.514},
                                                        {"resnext50_32x4d", 4.23},
                                                        {"shufflenet_v2_x1_0", 0.145},
                                                        {"squeezenet1_1", 0.349},
                                                        {"vgg11", 7.609},
                                                        {"vgg11_bn", 7.609},
                                                        {"vgg16", 15.47},
                                                        {"vgg16_bn", 15.47},
                                                        {"wide_resnet50_2", 11.398},
                                                        {"wide_resnet101_2", 22.753}};
  return numbers;
}

std::set<std::string> definitions() {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".cfg") && !name.ends_with("-params.cfg")) files.insert(name);
  }
  return files;
}

Graph graph_of(const std::string& text, const IniFile& parameters, const std::vector<MatrixInfo>& matrices) {
  Diagnostics diagnostics;
  const IniFile definition = parse_ini("net.cfg", text, diagnostics);
  GraphOptions strict;
  strict.strict = true;
  Graph graph = build_graph(definition, parameters, matrices, strict, diagnostics);
  diagnostics.throw_if_errors();
  return graph;
}

}  // namespace

TEST_CASE("nets have the parameters and the work of torchvision's") {
  std::set<std::string> seen;
  for (const std::string& file : definitions()) {
    INFO(file);
    const std::optional<ReadyNet> net = ready_net(kFolder, file);
    if (!net) {
      CHECK(config_data().contains(file.substr(0, file.size() - 4)));
      continue;
    }
    seen.insert(net->name);
    CHECK(net->header.summary.size() > 10);
    if (const auto known = known_parameters().find(net->name); known != known_parameters().end())
      CHECK(net->parameters == known->second);
    else
      CHECK(config_data().contains(net->name));
    if (const auto known = known_work().find(net->name); known != known_work().end())
      CHECK(net->multiply_adds == Approx(known->second * 1e9).epsilon(0.01));
  }
  for (const auto& [name, parameters] : known_parameters()) {
    INFO(name);
    CHECK(seen.contains(name));
  }
}

TEST_CASE("ready nets take other images and classes, and their flat forms have the same plans") {
  for (const std::string& file : definitions()) {
    const std::string stem = file.substr(0, file.size() - 4);
    if (config_data().contains(stem) && !stem.starts_with("resnet") && stem != "wrn-16-4") continue;
    INFO(file);
    Diagnostics diagnostics;
    const IniFile definition = read_ini(kFolder + "/" + file, diagnostics);
    const IniFile parameters = read_ini(kFolder + "/" + stem + "-params.cfg", diagnostics);
    diagnostics.throw_if_errors();
    CHECK(diagnostics.warnings().empty());
    const std::int64_t side = stem == "small" || stem == "wrn-16-4" ? 33 : 96;
    const std::vector<MatrixInfo> matrices = {{"data", {3, side, side}, DataType::u8, 0},
                                              {"labels", {1}, DataType::s32, stem == "wrn-16-4" ? 10 : 7}};
    const auto target = make_cpu_target(1, Precision::fp32);
    std::set<std::uint64_t> hashes;
    for (const std::string& text : {definition.text, flat_text(definition)}) {
      const Graph graph = graph_of(text, parameters, matrices);
      PlanSet plans(graph, matrices, *target, {});
      CHECK_NOTHROW(verify(plans.plan(Phase::train, 2), graph));
      hashes.insert(plan_hash(plans.plan(Phase::train, 2)));
    }
    CHECK(hashes.size() == 1);
  }
}

TEST_CASE("ready nets take images as small as torchvision's models do") {
  // The smallest images that torchvision 0.29's models accept. In smaller ones a window would see no pixel.
  const std::map<std::string, std::int64_t> smallest = {
      {"alexnet", 63},       {"densenet121", 29}, {"efficientnet_b0", 1},    {"googlenet", 15},
      {"mobilenet_v2", 1},   {"resnet18", 1},     {"mobilenet_v3_large", 1}, {"shufflenet_v2_x1_0", 1},
      {"squeezenet1_1", 17}, {"vgg11", 32},       {"vgg16_bn", 32}};
  const auto accepts = [](const std::string& name, std::int64_t side) {
    Diagnostics diagnostics;
    const std::string file = name == "resnet18" ? "resnet18-imagenet" : name;
    const IniFile definition = read_ini(kFolder + "/" + file + ".cfg", diagnostics);
    const IniFile parameters = read_ini(kFolder + "/" + file + "-params.cfg", diagnostics);
    const std::vector<MatrixInfo> matrices = {{"data", {3, side, side}, DataType::u8, 0},
                                              {"labels", {1}, DataType::s32, 7}};
    build_graph(definition, parameters, matrices, {}, diagnostics);
    return !diagnostics.has_errors();
  };
  for (const auto& [name, side] : smallest) {
    INFO(name);
    CHECK(accepts(name, side));
    CHECK((side == 1 || !accepts(name, side - 1)));
    CHECK(accepts(name, std::max<std::int64_t>(side, 64)));
  }
}

TEST_CASE("the header of a net says what its images are") {
  const auto header = read_net_header(
      "# a: small net (x: y).\n# more\n# input: 3x8x9, 4 classes\n# measured: 2 %\n\n# input: 1\n");
  REQUIRE(header);
  CHECK(header->summary == "small net (x: y).");
  CHECK(header->image == Dims{3, 8, 9});
  CHECK(header->classes == 4);
  CHECK(header->measured == "2 %");
  for (const char* wrong : {"", "3x8", "3x8x9", "3x8x9, x classes", "3x8x99999, 4 classes",
                            "0x8x9, 4 classes", "3x8x9x1, 4 classes", "3x8x9, 0 classes", "3xx9, 4 classes"})
    CHECK_FALSE(read_net_header("# a: b\n# input: " + std::string(wrong) + "\n"));
}

}  // namespace convnet::test
