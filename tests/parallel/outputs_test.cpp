// Outputs of layers are read whole and in the order of the images, wherever the replicas are.
#include "convnet/net/outputs.h"

#include <algorithm>
#include <stdexcept>

#include "convnet/base/error.h"
#include "tests/parallel/placed_nets.h"
#include "tests/temp_folder.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("outputs of layers on several devices are those of one") {
  for (const auto& nets : {data_parallel_nets(), one_layer_per_device_nets(), column_per_device_nets(),
                           two_tower_nets(), replicated_trunk_nets(), replicated_head_nets()}) {
    for (const PlacedNet& net : nets) {
      INFO(net.name);
      check_same_outputs(net);
    }
  }
}

TEST_CASE("outputs that are stored as bf16 are read as numbers") {
  const PlacedNet net = replicated_trunk_nets()[0];
  const Minibatch batch = random_minibatch(kImage, 8, kClasses, 1);
  const auto expected = SmallNet(net.plain, kImage, kClasses).read_outputs(batch);
  NetOptions bf16 = net.options;
  bf16.precision = Precision::bf16;
  const auto actual = SmallNet(net.placed, kImage, kClasses, bf16).read_outputs(batch);
  REQUIRE(actual.size() == expected.size());
  for (const auto& [layer, values] : expected) {
    INFO("output of " << layer);
    CHECK(distance(actual.at(layer), values) < 0.03);
    if (layer == "data") CHECK(distance(actual.at(layer), values) < 1.0 / 256);
  }
}

TEST_CASE("steps whose outputs are read do the same as others, before and after") {
  SmallNet net(column_net(Normalised::trunk), kImage, kClasses);
  const Minibatch a = random_minibatch(kImage, 8, kClasses, 1), b = random_minibatch(kImage, 8, kClasses, 2);
  const std::vector<double> costs = net.step(Phase::test, a, 0).costs;
  const auto outputs = net.read_outputs(a);
  CHECK(net.step(Phase::test, a, 0).costs == costs);
  CHECK(net.read_outputs(b) != outputs);
  CHECK(net.read_outputs(a) == outputs);
  CHECK(net.step(Phase::test, a, 0).costs == costs);
}

TEST_CASE("the output of a layer below a relu of its own layer is what the relu reads") {
  const NetTexts texts = between_data_and_cost(
      conv("conv1", "inputs=data channels=3 filters=4 filterSize=3") +
          section("relu1", "neuron", "inputs=conv1 neuron=relu") + fc("fc1", "inputs=relu1 outputs=6") +
          section("relu2", "neuron", "inputs=fc1 neuron=relu"),
      "relu2", kClasses);
  const Minibatch batch = random_minibatch(kImage, 7, kClasses, 1);
  NetOptions plain;
  plain.rewrites = false;
  const auto expected = SmallNet(texts, kImage, kClasses, plain).read_outputs(batch);
  SmallNet fused(texts, kImage, kClasses);
  CHECK_FALSE(fused.read_outputs(batch).contains("conv1"));
  CHECK_THROWS_AS(OutputReader(fused.net(), {"conv1"}), std::logic_error);
  for (const char* layer : {"conv1", "fc1"}) {
    for (const bool parallel : {false, true}) {
      NetOptions options;
      options.read = layer;
      if (parallel) {
        options.gpu = "0,1";
        options.data_parallel = true;
      }
      const auto actual = SmallNet(texts, kImage, kClasses, options).read_outputs(batch);
      CHECK(distance(actual.at(layer), expected.at(layer)) < kSumsTolerance);
      CHECK(*std::min_element(actual.at(layer).begin(), actual.at(layer).end()) < 0);
      for (const auto& [other, values] : actual) CHECK(distance(values, expected.at(other)) < kSumsTolerance);
    }
  }
}

TEST_CASE("layers answer to cuda-convnet2's names of their neurons, ident ones too") {
  const NetTexts texts = between_data_and_cost(
      conv("conv1", "inputs=data channels=3 filters=4 filterSize=3 dropout=0.25 neuron=relu") +
          fc("fc1", "inputs=conv1 outputs=6 neuron=ident") +
          fc("fc2", "inputs=fc1 outputs=5 neuron=tanh[1,1]"),
      "fc2", kClasses);
  const Minibatch batch = random_minibatch(kImage, 7, kClasses, 1);
  for (const bool parallel : {false, true}) {
    NetOptions options;
    if (parallel) {
      options.gpu = "0,1";
      options.data_parallel = true;
    }
    SmallNet small(texts, kImage, kClasses, options);
    auto read = small.read_outputs(
        batch, {"conv1", "conv1_dropout", "conv1_neuron", "fc1", "fc1_neuron", "fc2", "fc2_neuron"});
    const std::vector<float>&conv1 = read["conv1"], &masked = read["conv1_dropout"];
    CHECK(read["conv1_neuron"] == conv1);
    CHECK(read["fc1_neuron"] == read["fc1"]);
    CHECK(read["fc2_neuron"] == read["fc2"]);
    // Below the neuron.
    REQUIRE(masked.size() == conv1.size());
    CHECK(*std::min_element(masked.begin(), masked.end()) < 0);
    for (std::size_t i = 0; i < conv1.size(); ++i) CHECK(conv1[i] == std::max(0.0F, masked[i]));
  }
}

TEST_CASE("layers without outputs are refused by name") {
  SmallNet small(between_data_and_cost(fc("fc1", "inputs=data outputs=6 neuron=relu"), "fc1", kClasses),
                 kImage, kClasses);
  const auto error = [&](const std::string& layer) {
    return message_of<InputError>([&] { OutputReader(small.net(), {layer}); });
  };
  CHECK(error("fc2") == "the net has no layer 'fc2'; did you mean 'fc1'?");
  CHECK(error("fc2_neuron") == "the net has no layer 'fc2_neuron'; its layers are data, fc1, top, probs");
  CHECK(error("_neuron") == "the net has no layer '_neuron'; its layers are data, fc1, top, probs");
  CHECK(error("labels_neuron") ==
        "layer 'labels_neuron' is of type 'data' and holds labels: it has no features");
  CHECK(error("labels") == "layer 'labels' is of type 'data' and holds labels: it has no features");
  CHECK(error("logprob") == "layer 'logprob' is of type 'cost.logreg': it has no features");
}

TEST_CASE("the mean of views is that of neighbours") {
  const std::vector<float> rows = {1, 2, 3, 4, 5, 9, 0, 0, 1, -1, 2, 4};
  CHECK(mean_of_views(rows, 2, 1) == rows);
  CHECK(mean_of_views(rows, 2, 3) == std::vector<float>{3, 5, 1, 1});
}
