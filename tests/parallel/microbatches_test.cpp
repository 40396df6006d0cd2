// Cutting minibatches into more microbatches changes no answer, on one device, replicas, pipelines and in
// passes.
#include <algorithm>
#include <iterator>
#include <limits>

#include "convnet/graph/schedule.h"
#include "convnet/plan/verify.h"
#include "tests/every_case.h"
#include "tests/parallel/placed_nets.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// Whole minibatches and short ones; the last ones have fewer images than microbatches.
const std::vector<std::int64_t> kCutSizes = {24, 13, 24, 5, 2, 1, 24};

Trained trained(const PlacedNet& net, const std::vector<std::int64_t>& sizes) {
  INFO(net.name);
  SmallNet placed(net.placed, kImage, kClasses, net.options);
  for (const std::int64_t images : sizes) {
    for (const Phase phase : {Phase::train, Phase::test})
      REQUIRE_NOTHROW(verify(placed.prepare(phase, images), placed.graph()));
  }
  return train(placed, sizes, net.options.extra);
}

void check_like_uncut(const PlacedNet& net, const Trained& expected, const std::vector<std::int64_t>& sizes) {
  for (const int microbatches : {2, 3, 5}) {
    INFO(net.name << ", " << microbatches << " microbatches");
    INFO(net.placed.definition);
    check_same_answer(trained(with_microbatches(net, microbatches), sizes), expected);
  }
}

bool has_bnorm(const PlacedNet& net) { return net.plain.definition.find("type=bnorm") != std::string::npos; }

}  // namespace

TEST_CASE("a device that sums gradients over microbatches gives the answer of whole minibatches") {
  for (const NetTexts& texts : {column_net(Normalised::nowhere), two_columns_net(true)}) {
    const PlacedNet net = place("one device", texts, 1, {});
    check_like_uncut(net, trained(net, kCutSizes), kCutSizes);
  }
}

TEST_CASE("pipelines give the answer of one device") {
  for (const PlacedNet& net : pipeline_nets()) {
    INFO(net.name);
    CHECK(pipeline_depth(SmallNet(net.placed, kImage, kClasses, with_microbatches(net, 2).options).graph()) >
          1);
    check_like_uncut(net, train(net.plain, {}, kCutSizes), kCutSizes);
  }
}

TEST_CASE("placed nets give the answer of one device with any number of microbatches") {
  std::size_t compared = 0;
  for (const auto& nets : {data_parallel_nets(), one_layer_per_device_nets(), column_per_device_nets(),
                           two_tower_nets(), replicated_trunk_nets(), replicated_head_nets()}) {
    for (const PlacedNet& net : nets) {
      if (has_bnorm(net)) continue;
      check_like_uncut(net, train(net.plain, {}, kCutSizes), kCutSizes);
      ++compared;
    }
  }
  CHECK(compared >= 10);
}

TEST_CASE("devices of several hosts give the answer of one with any number of microbatches") {
  const NetTexts column = column_net(Normalised::nowhere);
  for (PlacedNet net :
       {place("replicas", column, 4, {{"conv1", "0,1,2,3"}}),
        place("halves of two replicas", column, 4, {{"conv1", "0,2"}, {"fc1", "1,3"}, {"fcaux", "1,3"}}),
        place("a head on one device", column, 4, {{"conv1", "0,1,2,3"}, {"fc1", "3"}, {"fcaux", "0"}}, 4)}) {
    net.options.devices_of_hosts = {2, 2};
    check_like_uncut(net, train(net.plain, {}, kCutSizes), kCutSizes);
  }
  PlacedNet normalised = place("bnorm", column_net(Normalised::trunk), 4, {{"conv1", "0,1,2,3"}});
  normalised.options.devices_of_hosts = {2, 2};
  NetOptions one_device;
  one_device.microbatches = 2;
  check_same_answer(trained(with_microbatches(normalised, 2), {48, 48, 96}),
                    train(normalised.plain, one_device, {48, 48, 96}));
}

TEST_CASE("random nets and devices give the answer of one device with any number of microbatches") {
  for (const std::uint32_t seed : seeds(2000, 48, every_net())) {
    const PlacedNet net = random_net(seed, false);
    const int microbatches = 2 + static_cast<int>(seed % 3);
    INFO(net.placed.definition << microbatches << " microbatches");
    check_same_answer(trained(with_microbatches(net, microbatches), kCutSizes),
                      train(net.plain, {}, kCutSizes), 2 * kSumsTolerance);
  }
}

TEST_CASE("bnorm takes the statistics of a microbatch of all replicas") {
  // With sizes that all cuts divide, the replicas' microbatches are those of one device.
  const auto sizes_for = [](int microbatches) {
    const std::int64_t images = 24 * microbatches;
    return std::vector<std::int64_t>{images, images, 2 * images};
  };
  for (const auto& nets : {data_parallel_nets(), replicated_trunk_nets(), replicated_head_nets()}) {
    std::vector<PlacedNet> normalised;
    std::copy_if(nets.begin(), nets.end(), std::back_inserter(normalised), has_bnorm);
    for (const PlacedNet& net : thinned(normalised)) {
      for (const int microbatches : {2, 3}) {
        INFO(net.name << ", " << microbatches << " microbatches");
        NetOptions one_device;
        one_device.microbatches = microbatches;
        const std::vector<std::int64_t> sizes = sizes_for(microbatches);
        check_same_answer(trained(with_microbatches(net, microbatches), sizes),
                          train(net.plain, one_device, sizes));
      }
    }
  }
  // These are other statistics than those of the minibatch.
  const PlacedNet net = place("", column_net(Normalised::trunk), 1, {});
  CHECK(distance(trained(with_microbatches(net, 2), sizes_for(2)), trained(net, sizes_for(2))) > 1e-3);
}

TEST_CASE("replicas of a bnorm track the same statistics even if the first of them has no image") {
  const PlacedNet net =
      place("", column_net(Normalised::trunk), 4, {{"conv1", "0,1,2,3"}, {"fc1", "0"}, {"fcaux", "1"}}, 4);
  // Of three images each pass has one, in the first of its three microbatches, so the second run of the
  // trunk, on microbatches 4 to 7, begins with two empty ones.
  SmallNet placed(net.placed, kImage, kClasses, with_microbatches(net, 3).options);
  REQUIRE(placed.graph().images_of(3, 4) == 0);
  REQUIRE(placed.graph().images_of(3, 6) == 1);
  const Plan& plan = placed.prepare(Phase::train, 3);
  REQUIRE_NOTHROW(verify(plan, placed.graph()));
  const Minibatch batch = random_minibatch(kImage, 3, kClasses, 1);
  const auto before = placed.tensors();
  placed.step(Phase::train, batch, 0);
  std::size_t statistics = 0;
  for (const WeightBuffers& w : placed.net().plans().weights()) {
    if (!placed.graph().weight({w.node, w.index}).state) continue;
    ++statistics;
    const auto first = placed.net().executor().read(nullptr, w.weights[0]);
    CHECK(first != before.at(w.name).values);
    for (const BufferId replica : w.weights) CHECK(placed.net().executor().read(nullptr, replica) == first);
  }
  CHECK(statistics == 2);
}

TEST_CASE("updates in every pass are the same with microbatches") {
  const NetTexts column = column_net(Normalised::nowhere), columns = two_columns_net(true);
  for (const PlacedNet& net :
       {place("head on one device", column, 2, {{"conv1", "0,1"}, {"fc1", "0"}, {"fcaux", "0"}}),
        place("head on one device above four", column, 4,
              {{"conv1", "0,1,2,3"}, {"fc1", "1"}, {"fcaux", "0"}}),
        place("4, 2 and 1 replicas", column, 4,
              {{"conv1", "0,1,2,3"}, {"fc1", "1,2"}, {"fcaux", "0,1"}, {"fc2", "3"}, {"auxprobs", "0"}}),
        place("head on a device of its own", column, 3, {{"conv1", "0,1"}, {"fc1", "2"}, {"fcaux", "2"}}),
        place(
            "more replicas above", columns, 4,
            {{"conv1a", "0"}, {"conv1b", "3"}, {"conv3", "0,1"}, {"fca", "0,1,2,3"}, {"fcb", "3,2,1,0"}})}) {
    INFO(net.name);
    const Trained expected = train(net.placed, net.options, kCutSizes);
    check_like_uncut(net, expected, kCutSizes);
  }
}

TEST_CASE("optimisers, clipped gradients, averages and long periods are the same with microbatches") {
  struct Way {
    std::string optimizer;
    double clip_norm, ema;
    int period;
  };
  for (const Way& way : {Way{"sgd", 0.3, 0.9, 1}, Way{"nesterov", 0, 0, 2}, Way{"adamw", 0.3, 0.9, 1},
                         Way{"adamw", 0, 0, 3}, Way{"lars", 0, 0.5, 1}}) {
    NetTexts texts = column_net(Normalised::nowhere);
    texts.parameters =
        "[DEFAULT]\noptimizer=" + way.optimizer + "\nadamEpsilon=1e-3\ntrust=0.01\n" + texts.parameters;
    for (PlacedNet net :
         {place("one device", texts, 1, {}, way.period),
          place("pipeline", texts, 2, {{"conv1", "0"}, {"fc1", "1"}, {"fcaux", "1"}}, way.period),
          place("passes", texts, 2, {{"conv1", "0,1"}, {"fc1", "1"}, {"fcaux", "1"}}, 2 * way.period)}) {
      net.name += ", " + way.optimizer;
      net.options.clip_norm = way.clip_norm;
      net.options.ema = way.ema;
      check_like_uncut(net, trained(net, kCutSizes), kCutSizes);
    }
  }
}

TEST_CASE("outputs are read from every microbatch") {
  for (PlacedNet net : {pipeline_nets()[0], pipeline_nets()[3], replicated_trunk_nets()[2],
                        place("one device", column_net(Normalised::head), 1, {})}) {
    for (const int microbatches : {2, 3}) check_same_outputs(with_microbatches(net, microbatches));
  }
}

TEST_CASE("gradient checks work with microbatches and leave the weights as they were") {
  for (const PlacedNet& net : {place("one device", column_net(Normalised::nowhere), 1, {}),
                               pipeline_nets()[0], pipeline_nets()[4], replicated_trunk_nets()[7]})
    check_gradients(with_microbatches(net, 2));
}

TEST_CASE("a broken image in any microbatch stops all updates") {
  for (const PlacedNet& net :
       {place("one device", column_net(Normalised::nowhere), 1, {}), pipeline_nets()[0], pipeline_nets()[2],
        pipeline_nets()[7], replicated_trunk_nets()[7]}) {
    INFO(net.name);
    SmallNet placed(net.placed, kImage, kClasses, with_microbatches(net, 4).options);
    placed.step(Phase::train, random_minibatch(kImage, 8, kClasses, 2), 0);
    const auto before = placed.tensors();
    for (std::size_t image = 0; image < 8; ++image) {
      INFO("image " << image);
      Minibatch bad = random_minibatch(kImage, 8, kClasses, 2);
      bad.data[image * 3 * 12 * 12 + 7] = std::numeric_limits<float>::quiet_NaN();
      CHECK_FALSE(placed.net().run(placed.prepare(Phase::train, 8), placed.inputs_of(bad, 1)).finite());
      for (const auto& [name, tensor] : placed.tensors()) {
        INFO(name);
        CHECK(tensor.values == before.at(name).values);
      }
    }
  }
}

TEST_CASE("the same command gives the same bits with microbatches, and a checkpoint goes on without them") {
  for (const PlacedNet& net : {pipeline_nets()[0], pipeline_nets()[3]}) {
    INFO(net.name);
    check_same_bits(trained(with_microbatches(net, 3), kCutSizes),
                    trained(with_microbatches(net, 3), kCutSizes));
    SmallNet first(net.placed, kImage, kClasses, with_microbatches(net, 4).options),
        second(net.plain, kImage, kClasses, {});
    const Minibatch batch = random_minibatch(kImage, 11, kClasses, 5);
    for (std::uint64_t i = 0; i < 3; ++i) first.step(Phase::train, batch, i);
    TensorFile file;
    first.net().store(file);
    second.prepare(Phase::test, 3);
    second.net().load(file, "f", first.net().windows());
    first.step(Phase::train, batch, 3);
    second.step(Phase::train, batch, 3);
    check_same_answer({{}, second.tensors()}, {{}, first.tensors()});
  }
}

TEST_CASE("a device needs less memory for smaller microbatches") {
  const NetTexts texts = column_net(Normalised::nowhere);
  std::int64_t before = std::numeric_limits<std::int64_t>::max();
  for (const int microbatches : {1, 2, 4, 8}) {
    NetOptions options;
    options.microbatches = microbatches;
    SmallNet net(texts, kImage, kClasses, options);
    // Workspaces of GPUs do not depend on the number of images.
    const std::int64_t bytes = net.prepare(Phase::train, 256).memory[0].by_kind.at(BufferKind::activation);
    CHECK(bytes < before / 3 * 2);
    before = bytes;
  }
}
