// The same net, devices and seed give the same bits.
#include "tests/parallel/placed_nets.h"

using namespace convnet;
using namespace convnet::test;

namespace {

const std::vector<std::int64_t> kSizesOfPasses = {13, 2, 13};

void check_repeats(const std::vector<PlacedNet>& nets) {
  for (const PlacedNet& net : nets) {
    for (const int threads : {1, 2}) {
      INFO(net.name << ", " << threads << " threads");
      NetOptions options = net.options;
      options.threads = threads;
      check_same_bits(train(net.placed, options, kSizesOfPasses), train(net.placed, options, kSizesOfPasses));
    }
  }
}

}  // namespace

TEST_CASE("replicas of a whole net repeat bit for bit") { check_repeats(data_parallel_nets()); }
TEST_CASE("layers on devices of their own repeat bit for bit") {
  check_repeats(one_layer_per_device_nets());
  check_repeats(column_per_device_nets());
}
TEST_CASE("several replica counts repeat bit for bit") {
  check_repeats(two_tower_nets());
  check_repeats(replicated_trunk_nets());
  check_repeats(replicated_head_nets());
}
TEST_CASE("random nets and devices repeat bit for bit") {
  std::vector<PlacedNet> nets;
  for (std::uint32_t seed = 100; seed < 112; ++seed) nets.push_back(random_net(seed, true));
  check_repeats(nets);
}

TEST_CASE("model-parallel layers repeat bit for bit") {
  PlacedNet net = place("model-parallel head above replicas", column_net(Normalised::trunk), 3,
                        {{"conv1", "0,1,2"}, {"fcaux", "2"}});
  net.placed.definition = with_keys(
      net.placed.definition, {{"fc1", "parallel=model\ngpu=0,1,2"}, {"fc2", "parallel=model\ngpu=0,1"}});
  check_repeats({net});
}

TEST_CASE("which physical device stands behind an index does not change a bit") {
  for (const PlacedNet& net :
       {data_parallel_nets()[2], column_per_device_nets()[1], replicated_trunk_nets()[1]}) {
    INFO(net.name);
    NetOptions other = net.options;
    other.gpu = "2,0,1";
    check_same_bits(train(net.placed, other, kSizesOfPasses), train(net.placed, net.options, kSizesOfPasses));
  }
}

TEST_CASE("devices that no layer uses do not change a bit") {
  for (const PlacedNet& net : {data_parallel_nets()[0], replicated_trunk_nets()[0]}) {
    INFO(net.name);
    NetOptions more = net.options;
    more.gpu = "0,1,2,3,4";
    check_same_bits(train(net.placed, more, kSizesOfPasses), train(net.placed, net.options, kSizesOfPasses));
  }
}
