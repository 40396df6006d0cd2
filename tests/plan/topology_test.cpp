// Hosts and processes are those that the counts of their devices say.
#include "convnet/plan/topology.h"

#include <stdexcept>

#include "tests/catch.h"

using convnet::DeviceId;
using convnet::HostGroups;
using convnet::Topology;

TEST_CASE("a topology says which host and process a device belongs to") {
  const Topology one;
  CHECK(one.hosts() == 1);
  CHECK(one.processes() == 1);
  CHECK(one.host(DeviceId(7)) == 0);
  CHECK(one.index_in_process(DeviceId(7)) == 7);

  const Topology t({2, 3}, {1, 1, 3});
  CHECK(t.hosts() == 2);
  CHECK(t.processes() == 3);
  CHECK(t.host(DeviceId(1)) == 0);
  CHECK(t.host(DeviceId(2)) == 1);
  CHECK(t.process(DeviceId(1)) == 1);
  CHECK(t.process(DeviceId(4)) == 2);
  CHECK(t.index_in_process(DeviceId(1)) == 0);
  CHECK(t.index_in_process(DeviceId(4)) == 2);
  CHECK_FALSE(t.same_process(DeviceId(0), DeviceId(1)));
  CHECK(t.same_process(DeviceId(2), DeviceId(4)));
}

TEST_CASE("a topology in which a process spans hosts is refused") {
  CHECK_THROWS_AS(Topology({2, 2}, {1, 3}), std::logic_error);
  CHECK_THROWS_AS(Topology({2, 2}, {2, 1}), std::logic_error);
  CHECK_THROWS_AS(Topology({2, 0}, {}), std::logic_error);
}

namespace {

std::vector<DeviceId> devices(const std::vector<int>& numbers) {
  std::vector<DeviceId> ids;
  for (const int n : numbers) ids.emplace_back(n);
  return ids;
}

}  // namespace

TEST_CASE("members of a group speak for those with their place on other hosts") {
  const Topology topology({2, 3, 2}, {});
  // Host 1 has members 0, 2 and 4, host 0 has 1 and 3; host 2 has none.
  const HostGroups groups(topology, devices({3, 1, 2, 0, 4}));
  CHECK(groups.hosts() == 2);
  CHECK(groups.members(0) == std::vector<int>{1, 3});
  CHECK(groups.members(1) == std::vector<int>{0, 2, 4});
  CHECK(groups.host_of(3) == 0);
  CHECK(groups.place_of(3) == 1);
  CHECK(groups.counterpart(0, 3) == 3);
  CHECK(groups.counterpart(1, 3) == 2);
  CHECK(groups.counterpart(0, 4) == 1);  // the third place there is the first here
  CHECK(groups.in_turns() == std::vector<int>{1, 2, 3, 4, 0});
}

TEST_CASE("members on one host, or each on a host of its own, are one group in their order") {
  const Topology topology({2, 2}, {});
  for (const std::vector<int>& of : {std::vector<int>{1, 0}, {3, 1}, {2}}) {
    const HostGroups groups(topology, devices(of));
    CHECK(groups.hosts() == 1);
    CHECK(groups.in_turns() == groups.members(0));
    CHECK(groups.members(0).size() == of.size());
    CHECK(groups.members(0)[0] == 0);
  }
  CHECK(HostGroups(Topology(), devices({5, 3, 9})).in_turns() == std::vector<int>{0, 1, 2});
}
