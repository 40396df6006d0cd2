#include "convnet/plan/topology.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <stdexcept>

namespace convnet {
namespace {

/// Returns the index of the group that each device belongs to; empty for no groups.
Table<DeviceId, int> groups_of(const std::vector<int>& devices_of_groups) {
  Table<DeviceId, int> group;
  for (std::size_t g = 0; g < devices_of_groups.size(); ++g) {
    if (devices_of_groups[g] < 1) throw std::logic_error("topology: a host or process without devices");
    group.insert(group.end(), static_cast<std::size_t>(devices_of_groups[g]), static_cast<int>(g));
  }
  return group;
}

constexpr std::size_t kMostOnHost = 16, kMostHosts = 4;  // that all exchange data with each other

/// Returns the levels of an exchange: hosts, if there are several and some have several members, and blocks.
std::vector<std::vector<int>> levels_of(const Topology& topology, const std::vector<DeviceId>& devices) {
  std::set<int> hosts;
  for (const DeviceId device : devices) hosts.insert(topology.host(device));
  const bool by_host = hosts.size() > 1 && hosts.size() < devices.size();
  std::vector<std::vector<int>> levels;
  std::vector<int> group;  // of each member, in the outermost level so far
  for (std::size_t m = 0; m < devices.size(); ++m)
    group.push_back(
        by_host ? static_cast<int>(std::distance(hosts.begin(), hosts.find(topology.host(devices[m]))))
                : static_cast<int>(m));
  std::size_t count = by_host ? hosts.size() : devices.size();
  if (by_host) levels.push_back(group);
  if (hosts.size() == 1 && count <= kMostOnHost) return levels;
  while (count > kMostHosts) {
    // Blocks of neighbours, as equal as possible.
    const std::size_t blocks = (count + kMostHosts - 1) / kMostHosts;
    for (int& g : group) g = static_cast<int>(static_cast<std::size_t>(g) * blocks / count);
    levels.push_back(group);
    count = blocks;
  }
  return levels;
}

}  // namespace

Topology::Topology(const std::vector<int>& devices_of_hosts, const std::vector<int>& devices_of_processes)
    : hosts_(std::max(1, static_cast<int>(devices_of_hosts.size()))),
      processes_(std::max(1, static_cast<int>(devices_of_processes.size()))),
      host_(groups_of(devices_of_hosts)),
      process_(groups_of(devices_of_processes)) {
  if (process_.empty()) return;
  if (!host_.empty() && host_.size() != process_.size())
    throw std::logic_error("topology: hosts and processes have different numbers of devices");
  for (std::size_t d = 1; d < process_.size(); ++d) {
    if (!host_.empty() && process_[d] == process_[d - 1] && host_[d] != host_[d - 1])
      throw std::logic_error("topology: a process spans two hosts");
  }
}

int Topology::index_in_process(DeviceId device) const {
  if (process_.empty()) return device.value();
  const auto first = std::lower_bound(process_.begin(), process_.end(), process_.at(device));
  return device.value() - static_cast<int>(first - process_.begin());
}

int Topology::most_devices_in_process() const {
  int most = 0;
  for (const DeviceId device : process_.ids()) most = std::max(most, index_in_process(device) + 1);
  return most;
}

Exchange::Exchange(const Topology& topology, const std::vector<DeviceId>& devices)
    : Exchange(devices.size(), levels_of(topology, devices)) {}

Exchange::Exchange(std::size_t members, const std::vector<std::vector<int>>& levels)
    : groups_of_(levels), paths_(members) {
  groups_of_.emplace_back(members, 0);  // all of them
  std::vector<int> inner(members);
  std::iota(inner.begin(), inner.end(), 0);
  for (const std::vector<int>& outer : groups_of_) {
    std::vector<std::set<int>> children(at(*std::max_element(outer.begin(), outer.end())) + 1);
    for (std::size_t m = 0; m < members; ++m) children[at(outer[m])].insert(inner[m]);
    for (std::size_t m = 0; m < members; ++m) {
      const std::set<int>& siblings = children[at(outer[m])];
      paths_[m].push_back(static_cast<int>(std::distance(siblings.begin(), siblings.find(inner[m]))));
    }
    groups_.emplace_back();
    for (const std::set<int>& of_group : children)
      groups_.back().emplace_back(of_group.begin(), of_group.end());
    inner = outer;
  }
}

Exchange Exchange::without(int member) const {
  std::vector<std::vector<int>> levels(groups_of_.begin(), groups_of_.end() - 1);
  for (std::vector<int>& level : levels) {
    level.erase(level.begin() + member);
    // Groups that are empty now leave no gap.
    std::vector<int> kept = level;
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (int& group : level)
      group = static_cast<int>(std::lower_bound(kept.begin(), kept.end(), group) - kept.begin());
  }
  return {paths_.size() - 1, levels};
}

/// Returns the member of a group that acts for `owner` there: the one with the same path from the group on,
/// modulo the number of children where that is smaller. That is the owner itself in its own groups.
int Exchange::counterpart(int stage, int group, int owner) const {
  for (; stage >= 0; --stage) {
    const std::vector<int>& children = groups_[at(stage)][at(group)];
    group = children[at(paths_[at(owner)][at(stage)]) % children.size()];
  }
  return group;  // a child of an innermost group is a member
}

Exchange::Hop Exchange::hop(int member, int owner) const {
  for (int stage = 0; stage < stages(); ++stage) {
    const int receiver = counterpart(stage, group_of(stage, member), owner);
    if (receiver != member) return {stage, receiver};
  }
  return {stages(), owner};
}

std::vector<int> Exchange::senders(int stage, int receiver, int owner) const {
  const int group = group_of(stage, receiver);
  if (counterpart(stage, group, owner) != receiver) return {receiver};
  std::vector<int> members;
  for (const int child : groups_[at(stage)][at(group)])
    members.push_back(counterpart(stage - 1, child, owner));
  std::sort(members.begin(), members.end());
  return members;
}

std::vector<Exchange::Sum> Exchange::sums(int stage, int owner) const {
  std::vector<Sum> all;
  for (int member = 0; member < members(); ++member) {
    if (hop(member, owner).stage <= stage) continue;  // it has sent its share
    Sum sum{member, senders(stage, member, owner)};
    if (sum.senders.size() > 1) all.push_back(std::move(sum));
  }
  return all;
}

std::vector<int> Exchange::in_turns() const {
  std::vector<int> turns(paths_.size());
  std::iota(turns.begin(), turns.end(), 0);
  if (stages() == 1) return turns;
  // The places on a host begin elsewhere on each host, so that the first owners have different neighbours.
  const auto turn = [&](int member) {
    const std::vector<int>& path = paths_[at(member)];
    std::vector<int> key(path.begin() + 1, path.end());
    const auto places = static_cast<int>(groups_[0][at(group_of(0, member))].size());
    key.insert(key.begin(), (path[0] - group_of(0, member) % places + places) % places);
    return key;
  };
  std::stable_sort(turns.begin(), turns.end(), [&](int a, int b) { return turn(a) < turn(b); });
  return turns;
}

}  // namespace convnet
