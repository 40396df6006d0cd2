#include "convnet/plan/topology.h"

#include <algorithm>
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

}  // namespace convnet
