// Hosts and processes are those that the counts of their devices say.
#include "convnet/plan/topology.h"

#include <stdexcept>

#include "tests/catch.h"

using convnet::DeviceId;
using convnet::ExchangeGroups;
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

TEST_CASE("a sum goes to the owner's place on each host, and then from host to host") {
  const Topology topology({2, 3, 2}, {});
  // Host 1 has members 0, 2 and 4, host 0 has 1 and 3; host 2 has none.
  const ExchangeGroups groups(topology, devices({3, 1, 2, 0, 4}));
  CHECK(groups.groups() == 2);
  CHECK(groups.last_stage() == 1);
  CHECK(groups.members(0) == std::vector<int>{1, 3});
  CHECK(groups.members(1) == std::vector<int>{0, 2, 4});
  CHECK(groups.group_of(3) == 0);
  CHECK(groups.place_of(3) == 1);
  const auto hop = [&](int member, int owner) {
    const ExchangeGroups::Hop of = groups.hop(member, owner);
    return std::pair(of.stage, of.receiver);
  };
  CHECK(hop(3, 3) == std::pair(2, 3));  // the owner
  CHECK(hop(1, 3) == std::pair(0, 3));
  CHECK(hop(0, 3) == std::pair(0, 2));  // to its place on host 1
  CHECK(hop(4, 3) == std::pair(0, 2));
  CHECK(hop(2, 3) == std::pair(1, 3));
  CHECK(hop(3, 4) == std::pair(0, 1));  // the third place there is the first here
  CHECK(hop(1, 4) == std::pair(1, 4));
  CHECK(groups.senders(0, 2, 3) == std::vector<int>{0, 2, 4});
  CHECK(groups.senders(1, 3, 3) == std::vector<int>{2, 3});
  CHECK(groups.in_turns() == std::vector<int>{1, 2, 3, 4, 0});
}

TEST_CASE("few members on one host, or each on a host of its own, are one group in their order") {
  const Topology topology({2, 2}, {});
  for (const std::vector<int>& of : {std::vector<int>{1, 0}, {3, 1}, {2}}) {
    const ExchangeGroups groups(topology, devices(of));
    CHECK(groups.groups() == 1);
    CHECK(groups.last_stage() == 0);
    CHECK(groups.in_turns() == groups.members(0));
    CHECK(groups.members(0).size() == of.size());
    CHECK(groups.members(0)[0] == 0);
  }
  CHECK(ExchangeGroups(Topology(), devices({5, 3, 9})).in_turns() == std::vector<int>{0, 1, 2});
}

TEST_CASE("in any exchange every member's share reaches every owner, stage by stage, by few messages") {
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{16},
                                                                     {17},
                                                                     {64},
                                                                     {100},
                                                                     {2, 3},
                                                                     {8, 8},
                                                                     {1, 2, 3, 4, 5},
                                                                     std::vector<int>(64, 2),
                                                                     std::vector<int>(37, 1)}) {
    const Topology topology(hosts, {});
    std::vector<DeviceId> all;
    for (const int count : hosts) {
      for (int d = 0; d < count; ++d) all.emplace_back(static_cast<int>(all.size()));
    }
    const ExchangeGroups groups(topology, all);
    const auto members = static_cast<int>(all.size());
    std::size_t most = 0;
    for (int owner = 0; owner < members; ++owner) {
      std::vector<int> shares(all.size(), 1);  // how many members' gradients each has summed
      for (int stage = 0; stage <= groups.last_stage(); ++stage) {
        for (int member = 0; member < members; ++member) {
          const ExchangeGroups::Hop hop = groups.hop(member, owner);
          const std::vector<int> senders = groups.senders(stage, hop.receiver, owner);
          if (hop.stage != stage) continue;
          CHECK(std::find(senders.begin(), senders.end(), member) != senders.end());
          CHECK(groups.hop(hop.receiver, owner).stage > stage);
          shares[static_cast<std::size_t>(hop.receiver)] += shares[static_cast<std::size_t>(member)];
          most = std::max(most, senders.size());
        }
      }
      CHECK(shares[static_cast<std::size_t>(owner)] == members);
    }
    INFO(hosts.size());
    CHECK(most <= (hosts.size() == 37 ? 37U : 17U));
  }
}
