// Which host and which process each device of a plan belongs to.
#pragma once

#include <vector>

#include "convnet/base/ids.h"

namespace convnet {

/// The host and the process of each device. Devices of one host have consecutive indices, and so have those
/// of one process. A process is on one host.
class Topology {
 public:
  /// Makes a topology of one host and one process, for any number of devices.
  Topology() = default;
  /// `devices_of_hosts` and `devices_of_processes` are the numbers of devices of each host and process, in
  /// order. An empty list stands for one host or process with all devices. Throws std::logic_error if a
  /// process spans hosts, or if the lists have different sums.
  Topology(const std::vector<int>& devices_of_hosts, const std::vector<int>& devices_of_processes);

  int hosts() const { return hosts_; }
  int processes() const { return processes_; }
  int host(DeviceId device) const { return host_.empty() ? 0 : host_.at(device); }
  int process(DeviceId device) const { return process_.empty() ? 0 : process_.at(device); }
  bool same_process(DeviceId a, DeviceId b) const { return process(a) == process(b); }
  /// Returns the place of a device among those of its process, from 0.
  int index_in_process(DeviceId device) const;
  /// Returns the number of devices of the process that has most; 0 where there is one process.
  int most_devices_in_process() const;

 private:
  int hosts_ = 1, processes_ = 1;
  Table<DeviceId, int> host_, process_;  ///< empty: all 0
};

/// Groups devices, like those of the replicas of a layer, by host, for communication in two steps: within
/// hosts, and between hosts. A member is the index of a device in the list of the constructor.
class HostGroups {
 public:
  /// Two steps save nothing if all devices are on one host, or each is on a host of its own. Then all members
  /// count as members of one host.
  HostGroups(const Topology& topology, const std::vector<DeviceId>& devices);

  int hosts() const { return static_cast<int>(members_.size()); }
  /// Returns the members on a host, in order. Hosts without members are not counted.
  const std::vector<int>& members(int host) const { return members_.at(static_cast<std::size_t>(host)); }
  int host_of(int member) const { return places_.at(static_cast<std::size_t>(member)).host; }
  /// Returns the place of a member among those of its host, from 0.
  int place_of(int member) const { return places_.at(static_cast<std::size_t>(member)).place; }
  /// Returns the member that acts for `member` on a host: `member` itself on its own host; on another host
  /// the one with the same place, modulo the number of members there.
  int counterpart(int host, int member) const;
  /// Returns all members in an order that alternates between hosts, and between the places on them.
  std::vector<int> in_turns() const;

 private:
  struct Place {
    int host, place;
  };
  std::vector<std::vector<int>> members_;  ///< by host
  std::vector<Place> places_;              ///< by member
};

}  // namespace convnet
