// Shapes, parameters and work of the nets in configs/, by the size formulas of the documentation.
#include "tests/catch.h"
#include "tests/plan/planned_net.h"

using namespace convnet;
using namespace convnet::test;

namespace {

struct Expected {
  std::string layer, shape;
  std::int64_t parameters;
  double flops;  ///< one image forward
};

// Sides: conv 1 + ceil((2*padding + img - filterSize) / stride), pool ceil((img - start - sizeX) / stride)
// + 1.
const std::map<std::string, std::vector<Expected>>& expected() {
  static const std::map<std::string, std::vector<Expected>> nets = {
      {"lenet",
       {{"data", "1x28x28", 0, 0},
        {"conv1", "32x28x28", 32 * 1 * 25 + 32, 2.0 * 32 * 28 * 28 * 1 * 25},
        {"pool1", "32x14x14", 0, 0},
        {"conv2", "64x14x14", 64 * 32 * 25 + 64, 2.0 * 64 * 14 * 14 * 32 * 25},
        {"pool2", "64x7x7", 0, 0},
        {"fc1", "256", 256 * 3136 + 256, 2.0 * 256 * 3136},
        {"fc2", "10", 10 * 256 + 10, 2.0 * 10 * 256},
        {"probs", "10", 0, 0}}},
      {"cifar-quick",
       {{"conv1", "32x32x32", 32 * 3 * 25 + 32, 2.0 * 32 * 32 * 32 * 3 * 25},
        {"pool1", "32x16x16", 0, 0},  // ceil((32 - 3) / 2) + 1
        {"conv2", "32x16x16", 32 * 32 * 25 + 32, 2.0 * 32 * 16 * 16 * 32 * 25},
        {"pool2", "32x8x8", 0, 0},
        {"conv3", "64x8x8", 64 * 32 * 25 + 64, 2.0 * 64 * 8 * 8 * 32 * 25},
        {"pool3", "64x4x4", 0, 0},
        {"fc64", "64", 64 * 1024 + 64, 2.0 * 64 * 1024},
        {"fc10", "10", 10 * 64 + 10, 2.0 * 10 * 64}}},
      {"alexnet-owt",
       {{"conv1", "64x55x55", 64 * 3 * 121 + 64, 2.0 * 64 * 55 * 55 * 3 * 121},  // 1 + ceil((224 - 11) / 4)
        {"rnorm1", "64x55x55", 0, 0},
        {"pool1", "64x27x27", 0, 0},
        {"conv2", "192x27x27", 192 * 64 * 25 + 192, 2.0 * 192 * 27 * 27 * 64 * 25},
        {"rnorm2", "192x27x27", 0, 0},
        {"pool2", "192x13x13", 0, 0},
        {"conv3", "384x13x13", 384 * 192 * 9 + 384, 2.0 * 384 * 13 * 13 * 192 * 9},
        {"conv4", "256x13x13", 256 * 384 * 9 + 256, 2.0 * 256 * 13 * 13 * 384 * 9},
        {"conv5", "256x13x13", 256 * 256 * 9 + 256, 2.0 * 256 * 13 * 13 * 256 * 9},
        {"pool5", "256x6x6", 0, 0},
        {"fc4096a", "4096", 4096 * 9216 + 4096, 2.0 * 4096 * 9216},
        {"fc4096b", "4096", 4096 * 4096 + 4096, 2.0 * 4096 * 4096},
        {"fc1000", "1000", 1000 * 4096 + 1000, 2.0 * 1000 * 4096},
        {"probs", "1000", 0, 0}}},
      {"cifar10-11pct",
       {{"conv1", "64x32x32", 64 * 3 * 25 + 64, 2.0 * 64 * 32 * 32 * 3 * 25},
        {"pool1", "64x16x16", 0, 0},
        {"rnorm1", "64x16x16", 0, 0},
        {"conv2", "64x16x16", 64 * 64 * 25 + 64, 2.0 * 64 * 16 * 16 * 64 * 25},
        {"rnorm2", "64x16x16", 0, 0},
        {"pool2", "64x8x8", 0, 0},
        {"local3", "64x8x8", 64 * 64 * (64 * 9 + 1), 2.0 * 64 * 64 * 64 * 9},  // filters of each position
        {"local4", "32x8x8", 64 * 32 * (64 * 9 + 1), 2.0 * 64 * 32 * 64 * 9},
        {"fc10", "10", 10 * 2048 + 10, 2.0 * 10 * 2048}}},
      {"wrn-16-4",
       {{"conv0", "16x32x32", 16 * 3 * 9, 2.0 * 16 * 32 * 32 * 3 * 9},
        {"g1b1-bn1", "16x32x32", 2 * 16, 0},
        {"g1b1-conv1", "64x32x32", 64 * 16 * 9, 2.0 * 64 * 32 * 32 * 16 * 9},
        {"g1b1-proj", "64x32x32", 64 * 16, 2.0 * 64 * 32 * 32 * 16},
        {"g1b1", "64x32x32", 0, 0},
        {"g2b1-conv1", "128x16x16", 128 * 64 * 9, 2.0 * 128 * 16 * 16 * 64 * 9},  // modulesX
        {"g2b1-conv2", "128x16x16", 128 * 128 * 9, 2.0 * 128 * 16 * 16 * 128 * 9},
        {"g2b1-proj", "128x16x16", 128 * 64, 2.0 * 128 * 16 * 16 * 64},
        {"g3b1", "256x8x8", 0, 0},
        {"g3b2", "256x8x8", 0, 0},
        {"pool", "256x1x1", 0, 0},
        {"fc10", "10", 2570, 2.0 * 2560}}},
      {"wrn-16-4-fashion",
       {{"conv0", "16x28x28", 16 * 9, 2.0 * 16 * 28 * 28 * 9},
        {"g2b1-conv1", "128x14x14", 128 * 64 * 9, 2.0 * 128 * 14 * 14 * 64 * 9},
        {"g3b1-proj", "256x7x7", 256 * 128, 2.0 * 256 * 7 * 7 * 128},
        {"fc10", "10", 2570, 2.0 * 2560}}},
      {"resnet18-imagenet",
       {{"conv1", "64x112x112", 64 * 3 * 49, 2.0 * 64 * 112 * 112 * 3 * 49},
        {"maxpool", "64x56x56", 0, 0},  // ceil((112 + 1 - 3) / 2) + 1
        {"layer1.1", "64x56x56", 0, 0},
        {"layer2.0.conv1", "128x28x28", 128 * 64 * 9, 2.0 * 128 * 28 * 28 * 64 * 9},
        {"layer2.0.downsample.0", "128x28x28", 128 * 64, 2.0 * 128 * 28 * 28 * 64},
        {"layer3.0", "256x14x14", 0, 0},
        {"layer4.1", "512x7x7", 0, 0},
        {"avgpool", "512x1x1", 0, 0},
        {"fc", "1000", 513000, 2.0 * 512000}}},
      {"resnet50-imagenet",
       {{"conv1", "64x112x112", 64 * 3 * 49, 2.0 * 64 * 112 * 112 * 3 * 49},
        {"layer1.0.downsample.0", "256x56x56", 256 * 64, 2.0 * 256 * 56 * 56 * 64},
        {"layer1.2", "256x56x56", 0, 0},
        {"layer2.0.conv1", "128x56x56", 128 * 256, 2.0 * 128 * 56 * 56 * 256},
        {"layer2.0.conv2", "128x28x28", 128 * 128 * 9, 2.0 * 128 * 28 * 28 * 128 * 9},
        {"layer3.5", "1024x14x14", 0, 0},
        {"layer4.2.conv3", "2048x7x7", 2048 * 512, 2.0 * 2048 * 7 * 7 * 512},
        {"avgpool", "2048x1x1", 0, 0},
        {"fc", "1000", 2049000, 2.0 * 2048000}}},
      {"mobilenet-v3-small-imagenet",
       {{"features.0.0", "16x112x112", 16 * 3 * 9, 2.0 * 16 * 112 * 112 * 3 * 9},
        {"features.1.block.0.0", "16x56x56", 16 * 9, 2.0 * 16 * 56 * 56 * 9},
        {"features.1.block.1.fc1", "8x1x1", 8 * 17, 2.0 * 8 * 16},
        {"features.1.block.1", "16x56x56", 0, 0},
        {"features.4.block.1.0", "96x14x14", 96 * 25, 2.0 * 96 * 14 * 14 * 25},
        {"features.11", "96x7x7", 0, 0},
        {"avgpool", "576x1x1", 0, 0},
        {"classifier.3", "1000", 1025000, 2.0 * 1024000}}}};
  return nets;
}

std::int64_t parameters(const Node& node) {
  std::int64_t sum = 0;
  for (const WeightSpec& w : node.layer->weights) sum += w.state ? 0 : element_count(w.dims);
  return sum;
}

double flops(const Plan& plan, NodeId node) {
  double sum = 0;
  for (const Task& task : plan.tasks) {
    if (task.node == node) sum += task.flops;
  }
  return sum;
}

}  // namespace

TEST_CASE("shapes, parameters and FLOPs of the nets in configs") {
  const std::map<std::string, std::int64_t> totals = {{"lenet", 857738},
                                                      {"cifar-quick", 145578},
                                                      {"alexnet-owt", 61100840},
                                                      {"cifar10-11pct", 3672906},
                                                      {"wrn-16-4", 2748890},
                                                      {"wrn-16-4-fashion", 2748602},
                                                      {"resnet18-imagenet", 11689512},
                                                      {"resnet50-imagenet", 25557032},
                                                      {"mobilenet-v3-small-imagenet", 2542856}};
  constexpr std::int64_t kImages = 7;
  for (const auto& [config, layers] : expected()) {
    PlannedNet net(config);
    const Plan& train = net.plan(Phase::train, kImages);
    const Plan& test = net.plan(Phase::test, kImages);
    bool first_weights = true;
    for (const Expected& e : layers) {
      INFO(config << ": " << e.layer);
      const Node& node = net.node(e.layer);
      CHECK(node.layer->output.str() == e.shape);
      CHECK(parameters(node) == e.parameters);
      CHECK(flops(test, node.id) == kImages * e.flops);
      // Backward to the weights and to the input; nothing below the first layer learns.
      const int passes = e.parameters > 0 && first_weights ? 2 : 3;
      CHECK(flops(train, node.id) == passes * kImages * e.flops);
      if (e.parameters > 0) first_weights = false;
    }
    std::int64_t total = 0;
    for (const Node& node : net.graph.nodes) total += parameters(node);
    CHECK(total == totals.at(config));
  }
}

TEST_CASE("the weights' memory is what the parameters need, twice with increments") {
  for (const auto& [config, data] : config_data()) {
    INFO(config);
    for (const bool learns : {true, false}) {
      PlannedNet net(config, learns);
      const Plan& plan = net.plan(learns ? Phase::train : Phase::test, 7);
      // Every replica has the weights; the increments exist once.
      std::int64_t total = 0;
      for (const Node& node : net.graph.nodes) total += 4 * parameters(node) * node.replicas();
      std::map<BufferKind, std::int64_t> by_kind;
      for (const DeviceMemoryNeeds& needs : plan.memory) {
        for (const auto& [kind, bytes] : needs.by_kind) by_kind[kind] += bytes;
      }
      // Blocked layouts may pad channels to a multiple of 16; no more than that.
      CHECK(by_kind.at(BufferKind::weights) >= total);
      CHECK(by_kind.at(BufferKind::weights) <= total + total / 20 + 16384);
      CHECK(by_kind.contains(BufferKind::increment) == learns);
      // Running statistics are kept, not learned.
      std::int64_t learned = 0;
      for (const WeightBuffers& w : net.plans->weights()) {
        if (!w.shards.empty()) learned += net.plans->persistent()[w.weights[0]].bytes;
      }
      if (learns) CHECK(by_kind.at(BufferKind::increment) == learned);
    }
  }
}
