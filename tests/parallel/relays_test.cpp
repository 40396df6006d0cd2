// Tensors of any size on routes by way of several devices, as large ones take them, give the answer of one
// device.
#include "convnet/plan/verify.h"
#include "tests/every_case.h"
#include "tests/parallel/placed_nets.h"

using namespace convnet;
using namespace convnet::test;

namespace {

const std::vector<std::int64_t> kRelayedSizes = {24, 13, 2, 24};

/// Returns the number of tasks that hand on chunks.
std::size_t check_with_relays(const PlacedNet& placed, double tolerance = kSumsTolerance) {
  const PlacedNet net = with_relays(placed);
  INFO(net.name);
  INFO(net.placed.definition << net.placed.parameters);
  SmallNet relaying(net.placed, kImage, kClasses, net.options);
  std::size_t relays = 0;
  for (const std::int64_t images : kRelayedSizes) {
    for (const Phase phase : {Phase::train, Phase::test}) {
      const Plan& plan = relaying.prepare(phase, images);
      REQUIRE_NOTHROW(verify(plan, relaying.graph()));
      for (const Task& task : plan.tasks) relays += task.stream == Stream::relay ? 1 : 0;
    }
  }
  check_same_answer(train(relaying, kRelayedSizes), train(net.plain, net.plain_options(), kRelayedSizes),
                    tolerance);
  return relays;
}

}  // namespace

TEST_CASE("placed nets whose tensors are relayed give the answer of one device") {
  std::size_t relays = 0;
  for (const std::vector<PlacedNet>& nets :
       {data_parallel_nets(), one_layer_per_device_nets(), column_per_device_nets(), two_tower_nets(),
        replicated_trunk_nets(), replicated_head_nets()})
    for (const PlacedNet& net : thinned(nets)) relays += check_with_relays(net);
  CHECK(relays > 0);
}

TEST_CASE("pipelines whose tensors are relayed give the answer of one device") {
  for (const PlacedNet& net : thinned(pipeline_nets()))
    for (const int microbatches : {2, 3}) check_with_relays(with_microbatches(net, microbatches));
}

TEST_CASE(
    "chunks of a relayed tensor that are fetched ahead to different places arrive before they are read") {
  check_with_relays(random_training(3102), 1e-5);
}

TEST_CASE("random nets, devices and hosts whose tensors are relayed give the answer of one device") {
  for (const std::uint32_t seed : seeds(3000, 24, every_net())) {
    check_with_relays(random_training(seed), 1e-5);
    check_with_relays(with_microbatches(random_net(seed, false), 2 + static_cast<int>(seed % 3)),
                      2 * kSumsTolerance);
  }
}
