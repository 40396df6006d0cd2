// Which host and which process each device of a plan belongs to.
#pragma once

#include <vector>

#include "convnet/base/ids.h"

namespace convnet {

/// Where devices are. Devices of one host have neighbouring indices, and so have those of one process, which
/// is on one host.
class Topology {
 public:
  /// Makes a topology of one host and one process, for any number of devices.
  Topology() = default;
  /// `devices_of_hosts` and `devices_of_processes` count the devices of each host and process, in order. An
  /// empty list stands for a single one that has them all. Throws std::logic_error if a process spans hosts
  /// or both lists count other devices.
  Topology(const std::vector<int>& devices_of_hosts, const std::vector<int>& devices_of_processes);

  int hosts() const { return hosts_; }
  int processes() const { return processes_; }
  int host(DeviceId device) const { return host_.empty() ? 0 : host_.at(device); }
  int process(DeviceId device) const { return process_.empty() ? 0 : process_.at(device); }
  bool same_host(DeviceId a, DeviceId b) const { return host(a) == host(b); }
  bool same_process(DeviceId a, DeviceId b) const { return process(a) == process(b); }
  /// Return the place of a device among those of its host or process, from 0.
  int index_on_host(DeviceId device) const { return index_in(host_, device); }
  int index_in_process(DeviceId device) const { return index_in(process_, device); }
  /// Returns the number of devices of the process that has most; 0 where there is one process.
  int most_devices_in_process() const;

 private:
  static int index_in(const Table<DeviceId, int>& groups, DeviceId device);

  int hosts_ = 1, processes_ = 1;
  Table<DeviceId, int> host_, process_;  ///< empty: all 0
};

/// The members of a group, like the replicas of a layer, by host: who speaks for whom where they communicate
/// in two steps, within hosts and between them. Members are counted as their devices are listed.
class HostGroups {
 public:
  /// All members count as one host where two steps would save nothing: where they are on one host, or each is
  /// on a host of its own.
  HostGroups(const Topology& topology, const std::vector<DeviceId>& devices);

  int hosts() const { return static_cast<int>(members_.size()); }
  /// Returns the members on a host, in order. Hosts without members are not counted.
  const std::vector<int>& members(int host) const { return members_.at(static_cast<std::size_t>(host)); }
  int host_of(int member) const { return places_.at(static_cast<std::size_t>(member)).host; }
  /// Returns the place of a member among those of its host, from 0.
  int place_of(int member) const { return places_.at(static_cast<std::size_t>(member)).place; }
  /// Returns the member that speaks for `member` on a host: itself on its own host, elsewhere the one with
  /// its place, counted on from the first where the host has fewer members.
  int counterpart(int host, int member) const;
  /// Returns all members in an order in which hosts take turns, and so do the places on them.
  std::vector<int> in_turns() const;

 private:
  struct Place {
    int host, place;
  };
  std::vector<std::vector<int>> members_;  ///< by host
  std::vector<Place> places_;              ///< by member
};

}  // namespace convnet
