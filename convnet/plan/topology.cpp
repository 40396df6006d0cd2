#include "convnet/plan/topology.h"

#include <algorithm>
#include <map>
#include <numeric>
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

HostGroups::HostGroups(const Topology& topology, const std::vector<DeviceId>& devices)
    : places_(devices.size()) {
  std::map<int, std::vector<int>> by_host;
  for (std::size_t m = 0; m < devices.size(); ++m)
    by_host[topology.host(devices[m])].push_back(static_cast<int>(m));
  if (by_host.size() == devices.size()) {
    members_.emplace_back(devices.size());
    std::iota(members_[0].begin(), members_[0].end(), 0);
  } else {
    for (auto& [host, members] : by_host) members_.push_back(std::move(members));
  }
  for (int h = 0; h < hosts(); ++h) {
    int place = 0;
    for (const int member : members(h)) places_[static_cast<std::size_t>(member)] = {h, place++};
  }
}

int HostGroups::counterpart(int host, int member) const {
  if (host_of(member) == host) return member;
  const std::vector<int>& there = members(host);
  return there[static_cast<std::size_t>(place_of(member)) % there.size()];
}

std::vector<int> HostGroups::in_turns() const {
  std::vector<int> turns;
  for (std::size_t round = 0; turns.size() < places_.size(); ++round) {
    std::size_t shift = 0;
    for (const std::vector<int>& there : members_) {
      if (round < there.size()) turns.push_back(there[(round + shift) % there.size()]);
      ++shift;
    }
  }
  return turns;
}

}  // namespace convnet
