// Hosts and processes are those that the counts of their devices say.
#include "convnet/plan/exchange.h"

#include <algorithm>
#include <stdexcept>

#include "tests/catch.h"

using Catch::Matchers::WithinAbs;
using convnet::DeviceId;
using convnet::Exchange;
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
  const Exchange exchange(topology, devices({3, 1, 2, 0, 4}));
  CHECK(exchange.stages() == 2);
  CHECK(exchange.members() == 5);
  CHECK(exchange.neighbours(1, 3));
  CHECK_FALSE(exchange.neighbours(1, 2));
  const auto hop = [&](int member, int owner) {
    const Exchange::Hop of = exchange.hop(member, exchange.whole(owner));
    return std::pair(of.stage, of.receiver);
  };
  CHECK(hop(3, 3) == std::pair(2, 3));  // the owner
  CHECK(hop(1, 3) == std::pair(0, 3));
  CHECK(hop(0, 3) == std::pair(0, 4));  // to the last place on host 1
  CHECK(hop(2, 3) == std::pair(0, 4));
  CHECK(hop(4, 3) == std::pair(1, 3));
  CHECK(hop(1, 4) == std::pair(0, 3));  // the last of three places there is the last of two here
  CHECK(hop(3, 4) == std::pair(1, 4));
  // The middle one of three places is half of each place of two.
  const std::vector<Exchange::Share> shares = exchange.shares(2);
  REQUIRE(shares.size() == 2);
  CHECK_THAT(shares[0].end, WithinAbs(0.5, 1e-12));
  CHECK(exchange.hop(3, shares[0]).receiver == 1);
  CHECK(exchange.hop(1, shares[1]).receiver == 3);
  CHECK(exchange.shares(0).size() == 1);
  CHECK(exchange.senders(0, 4, exchange.whole(3)) == std::vector<int>{0, 2, 4});
  CHECK(exchange.senders(1, 3, exchange.whole(3)) == std::vector<int>{3, 4});
  CHECK(exchange.in_turns() == std::vector<int>{1, 2, 3, 4, 0});
  // Without member 2, member 4 has its place.
  const Exchange fewer = exchange.without(2);
  CHECK(fewer.members() == 4);
  CHECK(fewer.hop(0, fewer.whole(2)).receiver == 3);
}

TEST_CASE("few members on one host, or each on a host of its own, are one group in their order") {
  const Topology topology({2, 2}, {});
  for (const std::vector<int>& of : {std::vector<int>{1, 0}, {3, 1}, {2}}) {
    const Exchange exchange(topology, devices(of));
    CHECK(exchange.stages() == 1);
    CHECK(exchange.in_turns()[0] == 0);
    CHECK(exchange.in_turns().size() == of.size());
  }
  CHECK(Exchange(Topology(), devices({5, 3, 9})).in_turns() == std::vector<int>{0, 1, 2});
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
    const Exchange exchange(topology, all);
    std::size_t most = 0;
    std::vector<int> turns = exchange.in_turns();
    std::sort(turns.begin(), turns.end());
    for (int m = 0; m < exchange.members(); ++m) CHECK(turns[static_cast<std::size_t>(m)] == m);
    for (int owner = 0; owner < exchange.members(); ++owner) {
      double end = 0;
      for (const Exchange::Share& share : exchange.shares(owner)) {
        CHECK(share.owner == owner);
        CHECK(share.begin == end);
        CHECK(share.end > share.begin);
        end = share.end;
        std::vector<int> parts(all.size(), 1);  // how many members' parts of the sum each has
        for (int stage = 0; stage < exchange.stages(); ++stage) {
          for (int member = 0; member < exchange.members(); ++member) {
            const Exchange::Hop hop = exchange.hop(member, share);
            if (hop.stage != stage) continue;
            const std::vector<int> senders = exchange.senders(stage, hop.receiver, share);
            CHECK(std::find(senders.begin(), senders.end(), member) != senders.end());
            CHECK(exchange.hop(hop.receiver, share).stage > stage);
            parts[static_cast<std::size_t>(hop.receiver)] += parts[static_cast<std::size_t>(member)];
            most = std::max(most, senders.size());
          }
        }
        CHECK(parts[static_cast<std::size_t>(owner)] == exchange.members());
      }
      CHECK(end == 1);
    }
    CHECK(most <= 16);
  }
}

namespace {

/// Returns the parts of a tensor that each member sends in an all-reduce.
std::vector<double> sent_in_all_reduce(const Exchange& exchange) {
  std::vector<double> sent(static_cast<std::size_t>(exchange.members()), 0);
  for (int owner = 0; owner < exchange.members(); ++owner) {
    for (const Exchange::Share& share : exchange.shares(owner)) {
      const double size = exchange.weight(owner) * (share.end - share.begin);
      for (int member = 0; member < exchange.members(); ++member) {
        if (member == owner) continue;
        sent[static_cast<std::size_t>(member)] += size;                                // of the sum
        sent[static_cast<std::size_t>(exchange.hop(member, share).receiver)] += size;  // and back
      }
    }
  }
  return sent;
}

}  // namespace

TEST_CASE("members of one host send equally much, also to hosts of other sizes") {
  for (const std::vector<int>& hosts :
       std::vector<std::vector<int>>{{3, 1}, {4, 4, 2}, {7, 2}, {1, 2, 3, 4}, {8, 3, 5}}) {
    std::vector<DeviceId> all;
    for (const int count : hosts) {
      for (int d = 0; d < count; ++d) all.emplace_back(static_cast<int>(all.size()));
    }
    const std::vector<double> sent = sent_in_all_reduce(Exchange(Topology(hosts, {}), all));
    auto first = sent.begin();
    for (const int count : hosts) {
      const auto [least, most] = std::minmax_element(first, first + count);
      CHECK(*most - *least < 1e-9);
      first += count;
    }
  }
}

TEST_CASE("members send what the speeds of their links allow") {
  // Four members, one of them at half speed: it owns nothing; the others send 1 + w (n - 2) = 1 + 2 / 3.
  const Exchange flat(4, {}, {{2, 2, 2, 1}, {}});
  CHECK(flat.weighted());
  const std::vector<double> sent = sent_in_all_reduce(flat);
  for (int m = 0; m < 3; ++m) CHECK_THAT(sent[static_cast<std::size_t>(m)], WithinAbs(5.0 / 3, 1e-4));
  CHECK_THAT(sent[3], WithinAbs(1, 1e-4));
  CHECK_THAT(flat.weight(0) + flat.weight(1) + flat.weight(2) + flat.weight(3), WithinAbs(1, 1e-9));
  // 6 bytes sent by links that send 7 at a time, if none of them may wait.
  const std::vector<double> faster = sent_in_all_reduce(Exchange(4, {}, {{2, 2, 1.5, 1.5}, {}}));
  CHECK_THAT(faster[0], WithinAbs(2 * 6.0 / 7, 1e-4));
  CHECK_THAT(faster[3], WithinAbs(1.5 * 6.0 / 7, 1e-4));
  // Two groups; the link of the first has half the speed of the other's.
  const std::vector<std::vector<int>> levels = {{0, 0, 0, 1, 1, 1, 2, 2, 2}};
  const Exchange grouped(9, levels, {std::vector<double>(9, 10), {{2, 1, 2}}});
  CHECK(grouped.weight(3) < grouped.weight(0));
  // Members keep their speeds without one of them.
  const Exchange fewer = flat.without(0);
  CHECK(fewer.weighted());
  CHECK(fewer.weight(2) < fewer.weight(0));
}

TEST_CASE("links of different speeds in groups are all busy for about the same time") {
  // Four groups of four; only the links of members are slow. All together they send 2 (n - 1) bytes.
  std::vector<double> rates;
  std::vector<int> level;
  double all = 0;
  for (int m = 0; m < 16; ++m) {
    rates.push_back(12 + m * 5 % 11);
    level.push_back(m / 4);
    all += rates.back();
  }
  const std::vector<double> sent =
      sent_in_all_reduce(Exchange(16, {level}, {rates, {std::vector<double>(4, 1000)}}));
  for (std::size_t m = 0; m < rates.size(); ++m) CHECK(sent[m] / rates[m] < 1.06 * 2 * 15 / all);
}
