// Hosts and processes are those that the counts of their devices say.
#include "convnet/plan/topology.h"

#include <stdexcept>

#include "tests/catch.h"

using convnet::DeviceId;
using convnet::Topology;

TEST_CASE("a topology says which host and process a device belongs to") {
  const Topology one;
  CHECK(one.hosts() == 1);
  CHECK(one.processes() == 1);
  CHECK(one.host(DeviceId(7)) == 0);
  CHECK(one.index_on_host(DeviceId(7)) == 7);

  const Topology t({2, 3}, {1, 1, 3});
  CHECK(t.hosts() == 2);
  CHECK(t.processes() == 3);
  CHECK(t.host(DeviceId(1)) == 0);
  CHECK(t.host(DeviceId(2)) == 1);
  CHECK(t.process(DeviceId(1)) == 1);
  CHECK(t.process(DeviceId(4)) == 2);
  CHECK(t.index_on_host(DeviceId(1)) == 1);
  CHECK(t.index_on_host(DeviceId(4)) == 2);
  CHECK(t.same_host(DeviceId(0), DeviceId(1)));
  CHECK_FALSE(t.same_process(DeviceId(0), DeviceId(1)));
  CHECK(t.same_process(DeviceId(2), DeviceId(4)));
}

TEST_CASE("a topology in which a process spans hosts is refused") {
  CHECK_THROWS_AS(Topology({2, 2}, {1, 3}), std::logic_error);
  CHECK_THROWS_AS(Topology({2, 2}, {2, 1}), std::logic_error);
  CHECK_THROWS_AS(Topology({2, 0}, {}), std::logic_error);
}
