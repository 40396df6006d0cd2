// Products in bf16 read weights that updates round. However a net is spread over devices, they read the
// weights that its checkpoint has.
#include "tests/parallel/placed_nets.h"

using namespace convnet;
using namespace convnet::test;

namespace {

const std::vector<std::int64_t> kSizesInBf16 = {13, 8, 2, 13};

/// Trains a net, gives its tensors to a new one, and lets both go on.
void check_goes_on(PlacedNet net) {
  INFO(net.name);
  INFO(net.placed.definition);
  net.options.precision = Precision::bf16;
  SmallNet first(net.placed, kImage, kClasses, net.options);
  train(first, kSizesInBf16, net.options.extra);
  TensorFile stored;
  first.net().store(stored);
  SmallNet second(net.placed, kImage, kClasses, net.options);
  second.prepare(Phase::train, kSizesInBf16[0]);
  second.net().load(stored, "the first net", first.net().windows());
  check_same_bits(train(second, kSizesInBf16, net.options.extra),
                  train(first, kSizesInBf16, net.options.extra));
}

void check_goes_on(const std::vector<PlacedNet>& nets) {
  for (const PlacedNet& net : nets) check_goes_on(net);
}

/// Replicas share out the weights of "fc1": each updates a part and fetches the others.
PlacedNet wide_net(int devices) {
  PlacedNet net = place("wide matrix on " + std::to_string(devices), wide_matrix_net(), devices, {});
  net.options.data_parallel = true;
  return net;
}

}  // namespace

TEST_CASE("GPUs keep weights in bf16 that no constraint changes") {
  if (!has_gpus()) return;
  PlacedNet net = wide_net(2);
  net.options.precision = Precision::bf16;
  SmallNet small(net.placed, kImage, kClasses, net.options);
  std::map<std::string, int> copies;
  for (const Buffer& b : small.prepare(Phase::train, 8).buffers)
    if (b.kind == BufferKind::rounded) ++copies[small.graph().nodes[b.node].name];
  for (const auto& [name, count] : copies) UNSCOPED_INFO(name << ": " << count);
  // Convolutions have such copies of their biases.
  CHECK(copies == std::map<std::string, int>{{"conv1", 2}, {"fc1", 2}, {"top", 2}});
}

TEST_CASE("replicas in bf16 compute with the weights of their checkpoint") {
  check_goes_on(data_parallel_nets());
  check_goes_on({wide_net(1), wide_net(2), wide_net(3)});
}
TEST_CASE("layers on devices of their own compute in bf16 with the weights of their checkpoint") {
  check_goes_on(column_per_device_nets());
}
TEST_CASE("nets with several passes compute in bf16 with the weights of their checkpoint") {
  check_goes_on(replicated_trunk_nets());
  check_goes_on(replicated_head_nets());
}
TEST_CASE("updates over several minibatches round the weights when they are due") {
  PlacedNet net = wide_net(2);
  net.placed.parameters = with_update_period(net.placed.parameters, 3);
  check_goes_on({net});
}
TEST_CASE("clipped gradients and averages go with weights that are rounded") {
  PlacedNet net = wide_net(3);
  net.options.clip_norm = 0.1;
  net.options.ema = 0.9;
  check_goes_on({net});
}
TEST_CASE("replicas on two hosts compute in bf16 with the weights of their checkpoint") {
  PlacedNet net = wide_net(4);
  net.options.devices_of_hosts = {2, 2};
  check_goes_on({net});
}

TEST_CASE("a test with averaged weights rounds them, and the trained weights come back") {
  PlacedNet net = wide_net(2);
  net.options.precision = Precision::bf16;
  net.options.ema = 0.9;
  const Minibatch batch = random_minibatch(kImage, 8, kClasses, 5);
  SmallNet small(net.placed, kImage, kClasses, net.options);
  train(small, kSizesInBf16);
  const std::vector<double> trained = small.step(Phase::test, batch, 0).costs;
  small.net().use_averages();
  const std::vector<double> averaged = small.step(Phase::test, batch, 0).costs;
  small.net().use_trained();
  CHECK(small.step(Phase::test, batch, 0).costs == trained);
  CHECK(averaged != trained);
  // A net whose weights are the averages gives the same costs.
  TensorFile stored;
  small.net().store(stored);
  SmallNet other(net.placed, kImage, kClasses, net.options);
  other.prepare(Phase::test, 8);
  for (const auto& [name, tensor] : stored.tensors) {
    const std::size_t suffix = name.find("Avg");
    if (suffix != std::string::npos) other.set_weights(std::string(name).erase(suffix, 3), tensor.values);
  }
  CHECK(other.step(Phase::test, batch, 0).costs == averaged);
}
