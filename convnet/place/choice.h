// The places that a unit can have, and which of them go together.
#pragma once

#include <string>
#include <vector>

#include "convnet/place/units.h"
#include "convnet/plan/topology.h"

namespace convnet {

/// The devices of a unit: `count` of them, from `first` on, `stride` apart.
struct Spread {
  int count = 1, first = 0, stride = 1;
  int parts = 1;  ///< number of devices that each replica of its layers with weights is divided over

  bool divided() const { return parts > 1; }
  int replicas() const { return count / parts; }
  /// Returns whether these are all of `devices` devices, or some of them at equal distances.
  bool covers(int devices) const { return first == 0 && count * stride == devices; }
  std::vector<DeviceId> devices() const;
  /// Returns the same devices with the replicas in another order, for units that cover the same devices as
  /// units with `fewer` replicas (ascending numbers). With 2 fewer replicas, the even replicas of this unit
  /// are on the first half of the devices and the odd ones on the second half, which are the halves of the
  /// two replicas. Then the microbatches of a replica stay in its half of the devices, which may be a host.
  std::vector<DeviceId> devices_near(const std::vector<int>& fewer) const;
  bool operator==(const Spread&) const = default;
  auto operator<=>(const Spread&) const = default;
};

/// A spread for each unit.
using Choice = std::vector<Spread>;

/// Returns the divisors of a number, in ascending order.
std::vector<int> divisors(int number);

/// Returns the spreads that `unit` may have on `devices` devices, of hosts with `of_host` each: as many
/// replicas as any divisor of that number, and if it can be divided, one replica of as many parts, or several
/// replicas each within a host. With several hosts, replicas on some of the devices may be neighbours or
/// spread over the hosts. A unit beside another (beside_another) need not begin at device 0.
std::vector<Spread> spreads_of(const PlacementUnit& unit, int devices, int of_host);

/// Returns whether the spreads are compatible by the rules of docs/parallelism.md, so that the net computes
/// what it computes on one device.
bool allowed(const PlacementUnits& units, const Choice& choice);

/// Returns the largest number of replicas.
int most_replicas(const Choice& choice);
/// Returns 1 + the largest index of a device.
int devices_of(const Choice& choice);

/// Returns the place of each layer. `graph` is the graph that the units come from.
Placement placement_of(const Graph& graph, const PlacementUnits& units, const Choice& choice);

/// Returns a line that says what runs where: "conv1 to pool5 on 4, fc6 to logprob divided over 4".
std::string describe(const Graph& graph, const PlacementUnits& units, const Choice& choice);

}  // namespace convnet
