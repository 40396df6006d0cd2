// Which host and which process each device of a plan belongs to.
#pragma once

#include <vector>

#include "convnet/base/ids.h"

namespace convnet {

/// How tensors travel to several devices, or sums from several. direct: each device reads from where a tensor
/// was made. relayed: devices with links of their own hand large tensors on, from one to the next.
enum class Routes { relayed, direct };

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

}  // namespace convnet
