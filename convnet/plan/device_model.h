// A model of a machine, from which the time of a step there is predicted.
#pragma once

#include <cstdint>
#include <string>

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

/// A machine of equal devices. Rates are those of data sheets; an efficiency is the share of a rate that
/// programs reach.
struct DeviceModel {
  std::string name;
  std::string source;                  ///< where the numbers come from
  ByPrecision flops;                   ///< FLOP/s of a device
  ByPrecision efficiency = {1, 1, 1};  ///< share of `flops` that convolutions and matrix products reach
  double memory_bandwidth = 0;         ///< bytes/s of a device's own memory, reads and writes together
  double memory_efficiency = 1;
  double link_bandwidth = 0;  ///< bytes/s that a device reads from others, while others read as much from it
  double link_efficiency = 1;
  double link_latency = 0;         ///< seconds before the first byte from another device arrives
  double host_bandwidth = 0;       ///< bytes/s that a device reads from the host's memory
  double memory = 0;               ///< bytes of a device; 0: not known
  double task_overhead = 0;        ///< seconds that each task takes besides its work
  bool concurrent_streams = true;  ///< the streams of a device run at the same time, as on GPUs
  bool shared_bus = false;         ///< all devices together share link_bandwidth
  int switch_devices = 0;          ///< number of devices with consecutive indices on one switch; 0: all
  double uplink_latency = 0;       ///< seconds before the first byte from another switch arrives
  double uplink_bandwidth = 0;     ///< bytes/s that all devices of a switch read from other switches together

  /// Returns the first device behind the switch of `device`.
  DeviceId first_of_switch(DeviceId device) const {
    return DeviceId(switch_devices > 0 ? device.value() / switch_devices * switch_devices : 0);
  }
  bool same_switch(DeviceId a, DeviceId b) const { return first_of_switch(a) == first_of_switch(b); }
  /// Returns the seconds until the first byte of `from` arrives at `to`.
  double latency(DeviceId from, DeviceId to) const {
    return same_switch(from, to) ? link_latency : uplink_latency;
  }
};

/// Reads a model: a JSON object with the names above as keys. Throws InputError with everything that is
/// wrong.
DeviceModel read_device_model(const std::string& file);

}  // namespace convnet
