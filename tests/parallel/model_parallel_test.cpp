// parallel=model cuts the outputs of an fc layer into shards on several devices; it stays the same layer.
#include <algorithm>

#include "tests/parallel/placed_nets.h"

using namespace convnet;
using namespace convnet::test;

namespace {

const std::vector<std::int64_t> kModelParallelSizes = {8, 8, 3, 8, 1};

/// A convolutional trunk, whose output is "pool1".
std::string trunk() {
  return conv("conv1", "inputs=data channels=3 filters=4 filterSize=5 stride=2 neuron=tanh[1,1]") +
         section("pool1", "pool", "pool=avg inputs=conv1 channels=4 sizeX=2 stride=2");
}

/// Places a net; `shards` gives the devices of each layer that is divided.
PlacedNet model_parallel(const std::string& name, const NetTexts& plain, int devices, const Gpus& shards,
                         const Gpus& others = {}, int passes = 0) {
  PlacedNet net = place(name, plain, devices, others, passes);
  std::map<std::string, std::string> keys;
  for (const auto& [layer, list] : shards) keys[layer] = "parallel=model\ngpu=" + list;
  net.placed.definition = with_keys(net.placed.definition, keys);
  return net;
}

void check_like_plain_layer(const PlacedNet& net) {
  INFO(net.name);
  INFO(net.placed.definition);
  Trained actual;
  REQUIRE_NOTHROW(actual = train(net.placed, net.options, kModelParallelSizes));
  check_same_answer(actual, train(net.plain, {}, kModelParallelSizes));
  check_same_outputs(net);
}

NetTexts one_layer(int outputs, const std::string& above, const std::string& top) {
  return between_data_and_cost(
      trunk() + fc("fc1", "inputs=pool1 neuron=relu outputs=" + std::to_string(outputs)) + above, top,
      kClasses, keys_of("fc1", "epsW=0.05 epsB=0.1 momW=0.9 momB=0.8 wc=0.01 wball=0.7"));
}

NetTexts two_layers(int first, int second) {
  return between_data_and_cost(
      trunk() + fc("fc1", "inputs=pool1 neuron=relu dropout=0.4 outputs=" + std::to_string(first)) +
          fc("fc2", "inputs=fc1 outputs=" + std::to_string(second)) +
          section("drop", "dropout", "inputs=fc2") +
          section("bend", "neuron", "inputs=drop neuron=tanh[1.7,0.6]"),
      "bend", kClasses);
}

/// Returns the rows [begin,end) of a tensor.
NamedTensor rows(const NamedTensor& tensor, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = element_count(tensor.dims) / tensor.dims[0];
  NamedTensor part = tensor;
  part.dims[0] = end - begin;
  part.values.assign(tensor.values.begin() + begin * width, tensor.values.begin() + end * width);
  return part;
}

}  // namespace

TEST_CASE("a model-parallel layer is the layer on one device") {
  const std::string drop = section("drop", "dropout", "inputs=fc1");
  for (const int devices : {2, 3, 4}) {
    const std::string all = device_list(devices);
    // If there are fewer outputs than devices, some devices have none.
    for (const int outputs : {12, 10, 7, 4, 2, 1}) {
      const std::string shape = std::to_string(outputs) + " outputs on " + all;
      check_like_plain_layer(
          model_parallel(shape, one_layer(outputs, drop, "drop"), devices, {{"fc1", all}}));
    }
  }
}

TEST_CASE("what stands above a model-parallel layer may be anywhere") {
  const NetTexts plain = one_layer(
      10, section("drop", "dropout", "inputs=fc1") + fc("fc2", "inputs=drop outputs=9 neuron=tanh[1,1]"),
      "fc2");
  for (const Gpus& others : std::vector<Gpus>{{},
                                              {{"conv1", "2"}},
                                              {{"drop", "1"}},
                                              {{"drop", "2"}, {"fc2", "0"}},
                                              {{"fc2", "2"}, {"top", "1"}},
                                              {{"conv1", "1"}, {"fc2", "1"}, {"top", "0"}}}) {
    std::string name = "others:";
    for (const auto& [layer, gpu] : others) name += " " + layer + " on " + gpu;
    check_like_plain_layer(model_parallel(name, plain, 3, {{"fc1", "0,1"}}, others));
    check_like_plain_layer(model_parallel(name, plain, 3, {{"fc1", "2,0,1"}}, others));
  }
}

TEST_CASE("several users of a model-parallel layer") {
  // Element-wise ones, which stay on the shards, and others, which need everything.
  const std::string layers =
      trunk() + fc("fc1", "inputs=pool1 outputs=9 neuron=relu") +
      fc("fc2", "inputs=pool1 outputs=9 dropout=0.3") +
      section("sum", "eltsum", "inputs=fc1,fc2 coeffs=1,-2 neuron=tanh[1,1]") +
      section("cat", "concat", "inputs=fc1,sum") + section("part", "slice", "inputs=fc1 start=2 maps=5") +
      section("dealt", "shuffle", "inputs=sum groups=3") + section("bn", "bnorm", "inputs=fc2 epsilon=0.1") +
      fc("fc3", "inputs=fc1,sum outputs=6 neuron=tanh[1,1]") + section("aux", "cost.sum2", "inputs=fc1");
  const NetTexts plain =
      between_data_and_cost(layers, "cat,part,dealt,bn,fc3", kClasses, keys_of("aux", "coeff=0.01"));
  check_like_plain_layer(model_parallel("both on 0,1", plain, 2, {{"fc1", "0,1"}, {"fc2", "0,1"}}));
  check_like_plain_layer(model_parallel("one on 0,1", plain, 2, {{"fc1", "0,1"}}));
  check_like_plain_layer(model_parallel("on 0,1 and 1,2", plain, 3, {{"fc1", "0,1"}, {"fc2", "1,2"}}));
  check_like_plain_layer(
      model_parallel("all three", plain, 3, {{"fc1", "0,1,2"}, {"fc2", "0,1,2"}, {"fc3", "2,1"}}));
}

TEST_CASE("two model-parallel layers in a row") {
  const NetTexts plain = two_layers(11, 10);
  for (const auto& [first, second] :
       std::vector<std::pair<std::string, std::string>>{{"0,1", "0,1"},
                                                        {"0,1", "1,0"},
                                                        {"0,1,2", "0,1"},
                                                        {"1,2", "0,1,2"},
                                                        {"0,1", "2,3"},
                                                        {"3,1,0,2", "0,1,2,3"}}) {
    check_like_plain_layer(
        model_parallel(first + " then " + second, plain, 4, {{"fc1", first}, {"fc2", second}}));
  }
}

TEST_CASE("the layer below softmax may be model-parallel") {
  const NetTexts plain = two_layers(11, 10);
  check_like_plain_layer(model_parallel("top", plain, 3, {{"top", "0,1,2"}}));
  check_like_plain_layer(model_parallel("all", plain, 2, {{"fc1", "0,1"}, {"fc2", "0,1"}, {"top", "0,1"}}));
}

TEST_CASE("model-parallel layers above a replicated trunk, updated once a minibatch") {
  const NetTexts plain = two_layers(11, 10);
  for (const int devices : {2, 3, 4}) {
    const std::string all = device_list(devices);
    check_like_plain_layer(model_parallel("above " + all, plain, devices,
                                          {{"fc1", all}, {"fc2", all}, {"top", all}}, {{"conv1", all}},
                                          devices));
  }
  check_like_plain_layer(
      model_parallel("shards elsewhere", plain, 4, {{"fc1", "2,3"}, {"fc2", "3,2"}}, {{"conv1", "0,1"}}, 2));
}

TEST_CASE("replicas of a model-parallel layer are the layer on one device") {
  const NetTexts plain = two_layers(11, 10);
  // Devices and parts of fc1 and fc2, devices of the trunk and of the layers above, and passes of a
  // minibatch.
  struct Placed {
    std::string first, second;
    Gpus others;
    int passes;
  };
  const std::string halves = "0,1,2,3\nparts=2", six = "0,1,2,3,4,5";
  const std::vector<Placed> cases = {
      {halves, halves, {}, 2},
      {halves, halves, {{"conv1", "0,1,2,3"}}, 2},
      {halves, halves, {{"conv1", "0,2"}, {"top", "1,3"}}, 1},
      {halves, halves, {{"conv1", "0,2,1,3"}, {"top", "0,1,2,3"}}, 2},
      {halves, halves, {{"conv1", "3"}, {"top", "2"}}, 2},
      {halves, "2,0,3,1\nparts=2", {{"conv1", "0,1,2,3"}, {"top", "0"}}, 4},
      {halves, "0,1,2,3", {{"conv1", "0,1,2,3"}}, 4},
      {"0,1,2,3", "3,0,1,2\nparts=2", {{"conv1", "0,1"}}, 2},
      {halves, "1,2\nparts=1", {{"conv1", "0,1,2,3"}}, 2},
      {"0,1\nparts=1", halves, {{"conv1", "2"}, {"top", "1,0"}}, 2},
      {halves, halves, {{"conv1", "0,1"}, {"drop", "1,3"}, {"bend", "0,2"}, {"top", "2"}}, 2},
      {six + "\nparts=3", "4,1,0,5\nparts=2", {{"conv1", six}, {"top", "5,2"}}, 3},
      {six + "\nparts=2", "4,1,0,5,2,3\nparts=2", {{"conv1", "0,1,2"}, {"top", "5"}}, 3},
  };
  for (const auto& [first, second, others, passes] : cases)
    check_like_plain_layer(model_parallel(first + " then " + second, plain, 6,
                                          {{"fc1", first}, {"fc2", second}}, others, passes));
}

TEST_CASE("replicas with fewer outputs than parts") {
  const std::string drop = section("drop", "dropout", "inputs=fc1");
  for (const int outputs : {1, 2, 4}) {
    check_like_plain_layer(model_parallel(std::to_string(outputs) + " outputs",
                                          one_layer(outputs, drop, "drop"), 6,
                                          {{"fc1", "0,1,2,3,4,5\nparts=3"}}, {{"conv1", "0,3"}}));
  }
}

TEST_CASE("a model-parallel layer has as many parts as the one that it follows, or as it says") {
  NetTexts texts = two_layers(11, 10);
  texts.definition = with_keys(texts.definition,
                               {{"fc1", "gpu=3,2,1,0\nparallel=model\nparts=2"}, {"fc2", "parallel=model"}});
  NetOptions options;
  options.gpu = "0,1,2,3";
  const auto gpus_of = [](const SmallNet& net, const std::string& layer) {
    return numbers_of(net.graph().find(layer)->gpus);
  };
  SmallNet follows(texts, kImage, kClasses, options);
  CHECK(gpus_of(follows, "fc2/0") == std::vector<int>{3, 1});
  CHECK(gpus_of(follows, "fc2/1") == std::vector<int>{2, 0});
  CHECK(gpus_of(follows, "bend/1") == std::vector<int>{2, 0});
  CHECK(gpus_of(follows, "top") == std::vector<int>{3, 1});
  texts.definition = with_keys(texts.definition, {{"fc2", "parts=4"}});
  SmallNet own(texts, kImage, kClasses, options);
  CHECK(gpus_of(own, "fc2/3") == std::vector<int>{0});
  CHECK(gpus_of(own, "top") == std::vector<int>{3});
}

TEST_CASE("model-parallel layers that share weights") {
  const std::string layers = trunk() + fc("fc1", "inputs=pool1 outputs=10 neuron=tanh[1,1]") +
                             fc("fc2", "inputs=fc1 outputs=10 neuron=relu") +
                             fc("fc3", "inputs=fc2 outputs=10 weightSource=fc2[0] neuron=tanh[1,1]");
  const NetTexts plain = between_data_and_cost(layers, "fc3", kClasses);
  check_like_plain_layer(model_parallel("on 3", plain, 3, {{"fc2", "0,1,2"}, {"fc3", "0,1,2"}}));
  check_like_plain_layer(model_parallel("2 replicas on 2", plain, 4,
                                        {{"fc2", "0,1,2,3\nparts=2"}, {"fc3", "0,1,2,3\nparts=2"}}));
}

TEST_CASE("other ways to run a model-parallel net") {
  PlacedNet net = model_parallel("saving memory", two_layers(11, 10), 2, {{"fc1", "0,1"}, {"fc2", "0,1"}});
  net.options.conserve_memory = true;
  check_like_plain_layer(net);
  net.name = "without fusions";
  net.options = {};
  net.options.gpu = "0,1";
  net.options.rewrites = false;
  check_like_plain_layer(net);
  net.name = "four cores";
  net.options.rewrites = true;
  net.options.threads = 4;
  check_like_plain_layer(net);
}

TEST_CASE("weights of a model-parallel layer are made, kept and stored as one") {
  const NetTexts plain = two_layers(11, 10);
  const PlacedNet net = model_parallel("", plain, 3, {{"fc1", "0,1,2"}, {"fc2", "2,0"}, {"top", "0,1"}});
  SmallNet one(plain, kImage, kClasses), cut(net.placed, kImage, kClasses, net.options);
  one.prepare(Phase::train, 4);
  cut.prepare(Phase::train, 4);
  const auto initial = one.tensors();
  const auto tensors = cut.tensors();
  REQUIRE(tensors.size() == initial.size());
  for (const auto& [name, tensor] : initial) {
    INFO(name);
    REQUIRE(tensors.contains(name));
    CHECK(tensors.at(name).dims == tensor.dims);
    CHECK(tensors.at(name).values == tensor.values);
  }
  // A checkpoint of one device goes on on several, and back.
  const Minibatch batch = random_minibatch(kImage, 5, kClasses, 1);
  one.step(Phase::train, batch, 0);
  TensorFile file, again;
  one.net().store(file);
  cut.net().load(file, "f", one.net().windows());
  cut.net().store(again);
  for (const auto& [name, tensor] : file.tensors) CHECK(again.tensors.at(name).values == tensor.values);
  CHECK(relative_difference(cut.step(Phase::train, batch, 1).costs, one.step(Phase::train, batch, 1).costs) <
        kSumsTolerance);
  check_same_answer({{}, cut.tensors()}, {{}, one.tensors()});
}

TEST_CASE("parallel=model is the net cut by hand") {
  // The first shard takes the remainder: 11 = 6 + 5, 9 = 5 + 4. Without dropout, whose masks go by name.
  const std::string tanh = " neuron=tanh[1,1]";
  const NetTexts whole = between_data_and_cost(
      trunk() + fc("fc1", "inputs=pool1 outputs=11" + tanh) + fc("fc2", "inputs=fc1 outputs=9" + tanh), "fc2",
      kClasses);
  const NetTexts halves = between_data_and_cost(
      trunk() + fc("fc1a", "inputs=pool1 outputs=6" + tanh) + fc("fc1b", "inputs=pool1 outputs=5" + tanh) +
          section("fc1", "pass", "inputs=fc1a,fc1b") + fc("fc2a", "inputs=fc1 outputs=5" + tanh) +
          fc("fc2b", "inputs=fc1 outputs=4" + tanh) + section("fc2", "pass", "inputs=fc2a,fc2b"),
      "fc2", kClasses);
  const PlacedNet model = model_parallel("", whole, 2, {{"fc1", "0,1"}, {"fc2", "0,1"}});
  const PlacedNet hand = place("", halves, 2, {{"fc1a", "0"}, {"fc1b", "1"}, {"fc2a", "0"}, {"fc2b", "1"}});
  SmallNet a(model.placed, kImage, kClasses, model.options), b(hand.placed, kImage, kClasses, hand.options);
  a.prepare(Phase::train, 8);
  b.prepare(Phase::train, 8);
  for (const std::string parts :
       {"'fc1' is divided over 2 devices: 6+5", "'fc2' is divided over 2 devices: 5+4"})
    CHECK(std::any_of(a.graph().rewrites.begin(), a.graph().rewrites.end(),
                      [&](const std::string& line) { return line.starts_with(parts); }));
  const auto cut = [](const std::map<std::string, NamedTensor>& tensors) {
    std::map<std::string, NamedTensor> parts;
    for (const auto& [name, tensor] : tensors) {
      const std::int64_t outputs = tensor.dims[0];
      if (name.starts_with("fc1.") || name.starts_with("fc2.")) {
        const std::int64_t first = (outputs + 1) / 2;
        parts[std::string(name).insert(3, "a")] = rows(tensor, 0, first);
        parts[std::string(name).insert(3, "b")] = rows(tensor, first, outputs);
      } else {
        parts[name] = tensor;
      }
    }
    return parts;
  };
  TensorFile file;
  a.net().store(file);
  file.tensors = cut(file.tensors);
  b.net().load(file, "f", {});
  const Trained of_model = train(a, kModelParallelSizes), of_hand = train(b, kModelParallelSizes);
  check_same_answer(of_hand, {of_model.costs, cut(of_model.tensors)});
}
