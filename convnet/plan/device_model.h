// A model of a machine, from which the time of a step there is predicted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "convnet/base/ids.h"
#include "kernels/target.h"

namespace convnet {

/// A number for each precision of a run; 0 where it is not known.
struct ByPrecision {
  double fp32 = 0, tf32 = 0, bf16 = 0;

  double of(Precision precision) const {
    return precision == Precision::fp32 ? fp32 : precision == Precision::tf32 ? tf32 : bf16;
  }
};

/// The memory that plans must fit.
struct MachineMemory {
  std::int64_t bytes = 0;  ///< of each device; 0: not known, and every plan fits
  bool shared = false;     ///< `bytes` are those of all devices together

  /// Returns whether there is room for what each device needs, in bytes.
  bool holds(const Table<DeviceId, std::int64_t>& needs) const;
};

/// Switches of one level of a machine, like those inside hosts, or the hosts of a network: groups of devices
/// with consecutive indices. What devices of one group exchange passes no link of this level; what leaves or
/// enters a group passes its uplink.
struct SwitchLevel {
  std::vector<int> devices;  ///< of each group; the last number stands for all groups that follow, too
  std::vector<double>
      bandwidth;       ///< bytes/s of each group's uplink, both ways at once; the last one likewise
  double latency = 0;  ///< seconds before the first byte from another group arrives

  /// Returns the index of the group of a device.
  int group(DeviceId device) const;
  double bandwidth_of(int group) const {
    return bandwidth[std::min(static_cast<std::size_t>(group), bandwidth.size() - 1)];
  }
};

/// A machine of devices that are equal but for their links. Rates are those of data sheets; an efficiency is
/// the share of a rate that programs reach.
struct DeviceModel {
  std::string name;
  std::string source;                  ///< where the numbers come from
  int devices = 0;                     ///< number of devices of the machine; 0: not known
  ByPrecision flops;                   ///< FLOP/s of a device
  ByPrecision efficiency = {1, 1, 1};  ///< share of `flops` that convolutions and matrix products reach
  double memory_bandwidth = 0;         ///< bytes/s of a device's own memory, reads and writes together
  double memory_efficiency = 1;
  /// Bytes/s that each device reads from others, while others read as much from it. The last number stands
  /// for all devices that follow, too.
  std::vector<double> link_bandwidth = {0};
  double link_efficiency = 1;
  double link_latency = 0;            ///< seconds before the first byte from another device arrives
  double host_bandwidth = 0;          ///< bytes/s that a device reads from the host's memory
  double memory = 0;                  ///< bytes of a device; 0: not known
  double task_overhead = 0;           ///< seconds that each task takes besides its work
  bool concurrent_streams = true;     ///< the streams of a device run at the same time, as on GPUs
  bool shared_bus = false;            ///< all devices together share link_bandwidth
  std::vector<SwitchLevel> switches;  ///< the innermost level first; each group consists of groups before it

  double link_bandwidth_of(DeviceId device) const {
    return link_bandwidth[std::min(device.index(), link_bandwidth.size() - 1)];
  }
  /// Returns the seconds until the first byte of `from` arrives at `to`.
  double latency(DeviceId from, DeviceId to) const;
};

/// Reads a model: a JSON object with the names above as keys. Throws InputError with everything that is
/// wrong.
DeviceModel read_device_model(const std::string& file);

}  // namespace convnet
