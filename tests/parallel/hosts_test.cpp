// Devices of several hosts, which communicate within hosts first, give the answer of one device.
#include <numeric>

#include "convnet/plan/verify.h"
#include "tests/parallel/placed_nets.h"

using namespace convnet;
using namespace convnet::test;

namespace {

const std::vector<std::vector<std::int64_t>> kMinibatches = {{24, 24, 13, 13, 24}, {2, 1, 3, 2, 5}};

/// Trains `net` on hosts of devices as `devices_of_hosts` counts, whatever the net itself says of hosts.
void check_on_hosts(PlacedNet net, const std::vector<int>& devices_of_hosts) {
  for (const std::vector<std::int64_t>& sizes : kMinibatches) {
    INFO(net.name << " on " << devices_of_hosts.size() << " hosts, " << sizes[0] << " images a minibatch");
    const Trained expected = train(net.plain, {}, sizes);
    net.options.devices_of_hosts = {};
    const Trained flat = train(net.placed, net.options, sizes);
    net.options.devices_of_hosts = devices_of_hosts;
    SmallNet placed(net.placed, kImage, kClasses, net.options);
    for (const std::int64_t images : sizes) {
      for (const Phase phase : {Phase::train, Phase::test})
        REQUIRE_NOTHROW(verify(placed.prepare(phase, images), placed.graph()));
    }
    const Trained trained = train(placed, sizes);
    check_same_answer(trained, expected);
    check_same_answer(trained, flat);
  }
}

PlacedNet data_parallel(const NetTexts& plain, int devices) {
  PlacedNet net = place("--parallel data", plain, devices, {});
  net.options.data_parallel = true;
  return net;
}

}  // namespace

TEST_CASE("replicas on two hosts give the answer of one device") {
  for (const Normalised bnorm : {Normalised::trunk, Normalised::head}) {
    check_on_hosts(data_parallel(column_net(bnorm), 4), {2, 2});
    check_on_hosts(data_parallel(column_net(bnorm), 8), {4, 4});
  }
}

TEST_CASE("replicas on hosts of different sizes give the answer of one device") {
  check_on_hosts(data_parallel(column_net(Normalised::trunk), 6), {1, 3, 2});
  check_on_hosts(place("fewer replicas than devices", column_net(Normalised::trunk), 6,
                       {{"conv1", "5,1,0"}, {"fc1", "4,3,0"}}),
                 {2, 2, 2});
}

TEST_CASE("hybrid nets on two hosts give the answer of one device") {
  for (const PlacedNet& net : replicated_trunk_nets()) {
    const int devices = static_cast<int>(split_list(net.options.gpu).size());
    if (devices == 4) check_on_hosts(net, {2, 2});
    if (devices == 3) check_on_hosts(net, {2, 1});
  }
}

TEST_CASE("gradients from the parts of a layer on several hosts are those of one device") {
  // The activation is large enough for a route, and the host in the middle adds to what it got from another.
  const NetTexts texts = between_data_and_cost(
      "[conv1]\ntype=conv\ninputs=data\nchannels=3\nfilters=32\nfilterSize=3\npadding=1\ninitW=0.1\n"
      "neuron=relu\n[fc1]\ntype=fc\ninputs=conv1\noutputs=12\ninitW=0.1\n"
      "[fc2]\ntype=fc\ninputs=conv1\noutputs=12\ninitW=0.1\n[sum]\ntype=eltsum\ninputs=fc1,fc2\n",
      "sum", kClasses);
  for (const std::vector<int>& hosts :
       std::vector<std::vector<int>>{{1, 2, 1}, {1, 1, 2}, {2, 2, 2}, {1, 2, 2, 1}}) {
    const int devices = std::accumulate(hosts.begin(), hosts.end(), 0);
    for (const bool backward : {false, true}) {
      std::string others;
      for (int d = 1; d < devices; ++d)
        others += (d == 1 ? "" : ",") + std::to_string(backward ? devices - d : d);
      check_on_hosts(place("parts on " + others, texts, devices,
                           {{"conv1", "0"}, {"fc1", others + "\nparallel=model"}, {"sum", "0"}}),
                     hosts);
    }
  }
}

TEST_CASE("a dropout layer on another device than its input hands it on in tests") {
  // In tests its users read the output of conv1, fc1 on conv1's own device, in another layout.
  const NetTexts texts = between_data_and_cost(
      conv("conv1", "inputs=data channels=3 filters=32 filterSize=3 padding=1 neuron=tanh[1,1]") +
          section("drop", "dropout", "inputs=conv1") + fc("fc1", "inputs=drop outputs=6") +
          fc("fc2", "inputs=drop outputs=6") + fc("fc3", "inputs=drop outputs=6") +
          section("sum", "eltsum", "inputs=fc1,fc2,fc3"),
      "sum", kClasses);
  check_on_hosts(
      place("dropout", texts, 4,
            {{"conv1", "0"}, {"drop", "1"}, {"fc1", "0"}, {"fc2", "2"}, {"fc3", "3"}, {"sum", "0"}}),
      {2, 2});
}

TEST_CASE("many replicas on several hosts give the answer of one device") {
  check_on_hosts(data_parallel(column_net(Normalised::trunk), 18), {6, 6, 6});
}

TEST_CASE("updates over several minibatches on two hosts are those of one device") {
  const std::vector<std::int64_t> sizes = {8, 8, 5, 8, 8, 8, 8, 3, 8};
  PlacedNet net = data_parallel(column_net(Normalised::nowhere), 4);
  net.plain.parameters = net.placed.parameters = with_update_period(net.plain.parameters, 4);
  net.options.devices_of_hosts = {2, 2};
  check_same_answer(train(net.placed, net.options, sizes), train(net.plain, {}, sizes));
}

TEST_CASE("every missing dependency of a net with bnorm on two hosts is found") {
  PlacedNet net = data_parallel(column_net(Normalised::trunk), 4);
  net.options.devices_of_hosts = {2, 2};
  SmallNet placed(net.placed, kImage, kClasses, net.options);
  const Plan& good = placed.prepare(Phase::train, 8);
  Plan bad = good;
  int dropped = 0;
  for (const TaskId t : good.tasks.ids()) {
    for (std::size_t k = 0; k < good.tasks[t].after.size(); ++k) {
      bad.tasks[t].after.erase(bad.tasks[t].after.begin() + static_cast<std::ptrdiff_t>(k));
      INFO(describe(good, good.tasks[t], placed.graph())
           << " no longer waits for " << describe(good, good.tasks[good.tasks[t].after[k]], placed.graph()));
      CHECK_THROWS_AS(verify(bad, placed.graph()), std::logic_error);
      bad.tasks[t].after = good.tasks[t].after;
      ++dropped;
    }
  }
  CHECK(dropped > 50);
}
