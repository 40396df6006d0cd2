// Several devices give the answer of one: costs, weights, increments and running statistics of nets spread in
// every way, dropout on, for minibatches of any size.
#include <limits>

#include "convnet/plan/verify.h"
#include "tests/every_case.h"
#include "tests/parallel/placed_nets.h"
#include "tests/source_dir.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// A minibatch that most replica counts divide and one that none does; and some with images for few replicas.
const std::vector<std::vector<std::int64_t>> kSizes = {{24, 24, 13, 13, 24}, {2, 1, 3, 2, 5}};

void check_like_one_device(const PlacedNet& net, const std::vector<std::int64_t>& sizes,
                           double tolerance = kSumsTolerance) {
  INFO(net.name << ", " << sizes[0] << " images a minibatch");
  INFO(net.placed.definition);
  SmallNet plain(net.plain, kImage, kClasses, net.plain_options()),
      placed(net.placed, kImage, kClasses, net.options);
  for (const std::int64_t images : sizes) {
    for (const Phase phase : {Phase::train, Phase::test})
      REQUIRE_NOTHROW(verify(placed.prepare(phase, images), placed.graph()));
  }
  check_same_answer(train(placed, sizes, net.options.extra), train(plain, sizes, net.options.extra),
                    tolerance);
}

void check_like_one_device(const std::vector<PlacedNet>& nets) {
  for (const PlacedNet& net : nets)
    for (const std::vector<std::int64_t>& sizes : kSizes) check_like_one_device(net, sizes);
}

}  // namespace

TEST_CASE("replicas of a whole net give the answer of one device") {
  check_like_one_device(data_parallel_nets());
}
TEST_CASE("layers on devices of their own give the answer of one device") {
  check_like_one_device(one_layer_per_device_nets());
}
TEST_CASE("columns on devices of their own give the answer of one device") {
  check_like_one_device(column_per_device_nets());
}
TEST_CASE("two replicated towers give the answer of one device") { check_like_one_device(two_tower_nets()); }
TEST_CASE("fewer replicas above more, updated once a minibatch, give the answer of one device") {
  check_like_one_device(replicated_trunk_nets());
}
TEST_CASE("more replicas above fewer give the answer of one device") {
  check_like_one_device(replicated_head_nets());
}

TEST_CASE("images with dropout are on the devices of the layer that reads them") {
  const NetTexts plain = between_data_and_cost(
      conv("a", "inputs=data channels=3 filters=4 filterSize=3 neuron=relu") + fc("f", "inputs=a outputs=6"),
      "f", kClasses, keys_of("f", "epsW=0.05 epsB=0.1 momW=0.9 momB=0.8"));
  NetTexts drops = plain;
  const std::string images = "dataIdx=0\n";
  drops.definition.insert(plain.definition.find(images) + images.size(), "dropout=0.2\n");
  const PlacedNet net = place("data with dropout", drops, 4, {{"a", "0,1,2,3"}, {"f", "0,1,2,3"}});
  SmallNet placed(net.placed, kImage, kClasses, net.options);
  CHECK(placed.graph().passes == 1);
  CHECK(placed.graph().find("data_dropout")->replicas() == 4);
  check_like_one_device(net, {24, 13});
}

TEST_CASE("dropout of whole maps and images on several devices gives the answer of one") {
  for (const std::string drops : {"maps", "images"}) {
    for (PlacedNet net :
         {data_parallel_nets()[0], one_layer_per_device_nets()[0], replicated_trunk_nets()[0]}) {
      for (std::string* parameters : {&net.plain.parameters, &net.placed.parameters})
        *parameters = with_keys(*parameters, {{"drop1", "drops=" + drops}});
      for (const std::vector<std::int64_t>& sizes : kSizes) check_like_one_device(net, sizes);
    }
  }
}

TEST_CASE("random nets and devices give the answer of one device") {
  for (const std::uint32_t seed : seeds(0, 48, every_net())) {
    const bool few_images = seed % 3 == 2;
    // In some of them the gradients of biases all but cancel.
    check_like_one_device(random_net(seed, !few_images), kSizes[few_images ? 1 : 0], 2 * kSumsTolerance);
  }
}

TEST_CASE("the option --parallel data puts every layer on all devices, whatever the file says") {
  const NetTexts plain = column_net(Normalised::head);
  PlacedNet net = place("--parallel data", plain, 3, {{"conv1", "0,1"}, {"local1", "1"}, {"fcaux", "2"}}, 2);
  net.placed.definition = with_keys(net.placed.definition, {{"fc1", "gpu=0,2\nparallel=model"}});
  net.options.data_parallel = true;
  for (const std::vector<std::int64_t>& sizes : kSizes) check_like_one_device(net, sizes);
}

TEST_CASE(
    "more replicas than merge statistics for themselves, or have shards of a matrix, give the answer of "
    "one") {
  NetTexts plain;
  plain.definition = R"(
[data]
type=data
dataIdx=0
[labels]
type=data
dataIdx=1
[conv]
type=conv
inputs=data
filters=8
padding=1
filterSize=3
channels=3
neuron=tanh[1,1]
initW=0.2
[bn]
type=bnorm
inputs=conv
channels=8
epsilon=0.01
neuron=relu
[fc]
type=fc
inputs=bn
outputs=20
initW=0.05
neuron=tanh[1,1]
[fc2]
type=fc
inputs=fc
outputs=4
initW=0.2
[probs]
type=softmax
inputs=fc2
[logprob]
type=cost.logreg
inputs=labels,probs
)";
  plain.parameters = R"(
[conv]
epsW=0.01
epsB=0.01
momW=0.9
momB=0.9
[bn]
epsW=0.01
epsB=0.01
momW=0.9
momB=0.9
[fc]
epsW=0.01
epsB=0.01
momW=0.9
momB=0.9
[fc2]
epsW=0.01
epsB=0.01
momW=0.9
momB=0.9
[logprob]
coeff=1
)";
  PlacedNet net{"19 replicas", plain, plain, {}};
  net.options.gpu = device_list(19);
  net.options.data_parallel = true;
  check_like_one_device(net, {57, 57, 40, 3, 57});
}

TEST_CASE("updates over several minibatches are those of one device with --parallel data") {
  const std::vector<std::int64_t> sizes = {8, 8, 5, 8, 8, 8, 8, 3, 8};
  NetTexts plain = column_net(Normalised::nowhere);
  const Trained each = train(plain, {}, sizes);
  plain.parameters = with_update_period(plain.parameters, 4);
  const Trained expected = train(plain, {}, sizes);
  CHECK(distance(expected, each) > 1e-2);
  for (const int devices : {1, 2, 4}) {
    INFO(devices);
    NetOptions options;
    options.gpu = device_list(devices);
    options.data_parallel = true;
    check_same_answer(train(plain, options, sizes), expected);
  }
}

TEST_CASE("with --parallel data updatePeriod counts the passes that the gpu= lines ask for") {
  const std::vector<std::int64_t> sizes = {8, 8, 5, 8, 8};
  const NetTexts plain = column_net(Normalised::nowhere);
  const Gpus two_passes = {{"conv1", "0,1"}, {"fc1", "0"}, {"fcaux", "0"}};
  for (const int minibatches : {1, 2}) {
    INFO(minibatches);
    NetTexts one_device = plain;
    one_device.parameters = with_update_period(plain.parameters, minibatches);
    const Trained expected = train(one_device, {}, sizes);
    PlacedNet net = place("", plain, 2, two_passes, 2 * minibatches);
    check_same_answer(train(net.placed, net.options, sizes), expected);
    for (const int devices : {1, 2, 4}) {
      INFO(devices);
      net.options.gpu = device_list(devices);
      net.options.data_parallel = true;
      check_same_answer(train(net.placed, net.options, sizes), expected);
    }
  }
}

TEST_CASE("costs of every kind are those of one device") {
  // cost.dce counts over all images before it divides.
  const std::string layers =
      section("onehot", "data", "dataIdx=2") + section("tags", "data", "dataIdx=3 start=1 end=5") +
      conv("conv1", "inputs=data channels=3 filters=4 filterSize=5 stride=2 neuron=tanh[1,1]") +
      fc("tagged", "inputs=conv1 outputs=4 neuron=logistic") + fc("fc1", "inputs=conv1 outputs=4") +
      section("chances", "softmax", "inputs=fc1") + section("ce", "cost.crossent", "inputs=onehot,chances") +
      section("bce1", "cost.bce", "inputs=tags,tagged children=bce2") +
      section("bce2", "cost.bce", "inputs=tags,tagged") + section("dce", "cost.dce", "inputs=tags,tagged") +
      section("squares", "cost.sum2", "inputs=tagged");
  const NetTexts plain = between_data_and_cost(
      layers, "tagged", kClasses,
      keys_of("ce", "coeff=0.7") + keys_of("bce1", "coeff=0.5 posWeight=2") + keys_of("bce2", "coeff=0.1") +
          keys_of("dce", "coeff=0.3 posWeight=0.5") + keys_of("squares", "coeff=0.2"));
  std::vector<PlacedNet> nets = {
      place("replicas", plain, 3, {{"conv1", "0,1,2"}}),
      place("costs on several devices", plain, 3,
            {{"tagged", "1"}, {"bce1", "2"}, {"bce2", "0"}, {"dce", "1"}, {"squares", "2"}}),
      place("single-device costs", plain, 4,
            {{"conv1", "0,1,2,3"}, {"tagged", "1"}, {"fc1", "3"}, {"chances", "2"}}, 4),
      place("replicated costs", plain, 2, {{"conv1", "1"}, {"tagged", "0,1"}, {"fc1", "1,0"}}, 2)};
  for (PlacedNet& net : nets) {
    net.options.extra = {{4, ExtraMatrix::one_hot}, {5, ExtraMatrix::multi_hot}};
    for (const std::vector<std::int64_t>& sizes : kSizes) check_like_one_device(net, sizes);
  }
}

TEST_CASE("every layer type gives the answer of one device") {
  // Biases below a bnorm learn rounding errors only.
  const NetTexts plain = {with_keys(source_text("tests/nets/every-layer.cfg"), {{"conv1", "biases=0"}}),
                          source_text("tests/nets/every-layer-params.cfg")};
  for (const int devices : {2, 3}) {
    PlacedNet replicas = place("--parallel data", plain, devices, {});
    replicas.options.data_parallel = true;
    PlacedNet spread = place("a layer per device", plain, devices, {});
    std::size_t layer = 0;
    Diagnostics diagnostics;
    for (const IniSection& section : parse_ini("net.cfg", plain.definition, diagnostics).sections)
      spread.placed.definition =
          with_gpus(spread.placed.definition,
                    {{section.name, std::to_string(layer++ % static_cast<std::size_t>(devices))}});
    for (const PlacedNet& net : {replicas, spread}) {
      check_like_one_device(net, {7, 7, 4});
      check_like_one_device(net, {2, 1, 2});
    }
  }
}

TEST_CASE("rectangular, dilated and one-sided windows give the answer of one device") {
  const NetTexts plain = between_data_and_cost(
      conv("a",
           "inputs=data channels=3 filters=8 filterSize=3 filterSizeY=1 padding=2 paddingY=0 dilation=2 "
           "neuron=relu") +
          section("p", "pool",
                  "pool=max inputs=a channels=8 sizeX=2 sizeY=3 stride=2 strideY=1 paddingEndY=1") +
          section("l", "local",
                  "inputs=p channels=8 filters=4 filterSize=1 filterSizeY=2 dilationY=2 initW=0.3") +
          fc("f", "inputs=l outputs=6 neuron=relu"),
      "f", kClasses, keys_of("f", "epsW=0.05 epsB=0.1 momW=0.9 momB=0.8"));
  std::vector<PlacedNet> nets = {place("--parallel data", plain, 3, {}),
                                 place("a layer per device", plain, 2, {{"p", "1"}, {"f", "1"}}),
                                 place("a model-parallel layer above", plain, 2, {})};
  nets[0].options.data_parallel = true;
  nets[2].placed.definition = with_keys(nets[2].placed.definition, {{"f", "parallel=model\ngpu=0,1"}});
  for (const PlacedNet& net : nets) check_like_one_device(net, {7, 7, 4});
}

TEST_CASE("gradient checks work on several devices and leave the weights as they were") {
  for (const PlacedNet& net : {data_parallel_nets()[2], column_per_device_nets()[0],
                               replicated_trunk_nets()[0], replicated_head_nets()[0]})
    check_gradients(net);
}

TEST_CASE("initial weights do not depend on devices") {
  for (const PlacedNet& net :
       {data_parallel_nets()[0], replicated_trunk_nets()[2], replicated_head_nets()[0]}) {
    INFO(net.name);
    SmallNet one(net.plain, kImage, kClasses), placed(net.placed, kImage, kClasses, net.options);
    one.prepare(Phase::train, 8);
    placed.prepare(Phase::train, 5);
    const auto expected = one.tensors();
    for (const auto& [name, tensor] : placed.tensors()) {
      INFO(name);
      CHECK(tensor.values == expected.at(name).values);
    }
  }
}

TEST_CASE("a part updated in every pass is another training") {
  const NetTexts plain = column_net(Normalised::trunk);
  const Gpus gpus = {{"conv1", "0,1"}, {"fc1", "0"}, {"fcaux", "0"}};
  const PlacedNet once = place("", plain, 2, gpus, 2), each_pass = place("", plain, 2, gpus, 1);
  const Trained expected = train(once.placed, once.options, {8, 8, 8});
  CHECK(distance(train(each_pass.placed, each_pass.options, {8, 8, 8}), expected) > 1e-2);
  // As often as possible is the default.
  const PlacedNet by_default = place("", plain, 2, gpus);
  check_same_bits(train(by_default.placed, by_default.options, {8, 8, 8}),
                  train(each_pass.placed, each_pass.options, {8, 8, 8}));
}

TEST_CASE("shared weights are updated when all their users have seen the same images") {
  // The owner alone could be updated in every pass; the layer that shares its weights lies below two
  // replicas.
  const std::string keys = " channels=3 filters=4 filterSize=5 stride=2 neuron=tanh[1,1]";
  const NetTexts plain = between_data_and_cost(
      conv("a", "inputs=data" + keys) + section("squares", "cost.sum2", "inputs=a") +
          conv("b", "inputs=data weightSource=a[0]" + keys) + fc("f", "inputs=b outputs=8 neuron=tanh[1,1]"),
      "f", kClasses, keys_of("squares", "coeff=0.01"));
  const Gpus gpus = {{"a", "1"}, {"b", "1"}, {"f", "0,1"}};
  for (const std::vector<std::int64_t>& sizes : kSizes)
    check_like_one_device(place("no updatePeriod", plain, 2, gpus), sizes);
}

TEST_CASE("a checkpoint goes on on other devices") {
  std::vector<PlacedNet> nets = {data_parallel_nets()[0], data_parallel_nets()[4],
                                 replicated_trunk_nets()[0]};
  for (std::size_t from = 0; from < nets.size(); ++from) {
    for (std::size_t to = 0; to < nets.size(); ++to) {
      // The same net, on other devices.
      if (nets[from].plain.definition != nets[to].plain.definition) continue;
      INFO("from '" << nets[from].name << "' to '" << nets[to].name << "'");
      SmallNet first(nets[from].placed, kImage, kClasses, nets[from].options);
      const Minibatch batch = random_minibatch(kImage, 11, kClasses, 5);
      for (std::uint64_t i = 0; i < 3; ++i) first.step(Phase::train, batch, i);
      TensorFile file;
      first.net().store(file);
      SmallNet second(nets[to].placed, kImage, kClasses, nets[to].options);
      second.prepare(Phase::test, 3);
      second.net().load(file, "f", first.net().windows());
      TensorFile again;
      second.net().store(again);
      for (const auto& [name, tensor] : file.tensors) {
        INFO(name);
        CHECK(again.tensors.at(name).values == tensor.values);
      }
      const std::vector<double> expected = first.step(Phase::train, batch, 3).costs;
      CHECK(relative_difference(second.step(Phase::train, batch, 3).costs, expected) < kSumsTolerance);
      check_same_answer({{}, second.tensors()}, {{}, first.tensors()});
    }
  }
}

TEST_CASE("a broken image in any replica's share stops the updates of all") {
  for (const PlacedNet& net :
       {data_parallel_nets()[4], one_layer_per_device_nets()[2], column_per_device_nets()[0],
        two_tower_nets()[0], replicated_trunk_nets()[2], replicated_head_nets()[2]}) {
    INFO(net.name);
    SmallNet placed(net.placed, kImage, kClasses, net.options);
    const Minibatch good = random_minibatch(kImage, 8, kClasses, 2);
    placed.step(Phase::train, good, 0);
    const auto before = placed.tensors();
    for (std::size_t image = 0; image < 8; ++image) {
      INFO("image " << image);
      Minibatch bad = good;
      bad.data[image * 3 * 12 * 12 + 7] = std::numeric_limits<float>::quiet_NaN();
      StepInputs inputs;
      inputs.matrices = {reinterpret_cast<const std::byte*>(bad.data.data()),
                         reinterpret_cast<const std::byte*>(bad.labels.data())};
      inputs.iteration = 1;
      inputs.rates = placed.net().rates(0);
      CHECK_FALSE(placed.net().run(placed.prepare(Phase::train, 8), inputs).finite());
      const auto after = placed.tensors();
      for (const auto& [name, tensor] : before) {
        // Running statistics follow the images as they come.
        if (name.find(".running") != std::string::npos) continue;
        INFO(name);
        CHECK(after.at(name).values == tensor.values);
      }
      if (image % 3 == 0)
        CHECK(placed.net().first_non_finite(Phase::train, 8, inputs).text ==
              "the data set itself has such numbers, where layer 'data' reads it");
    }
  }
}
