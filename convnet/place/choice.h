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
  bool divided = false;  ///< its layers with weights are divided over them (parallel=model)

  int replicas() const { return divided ? 1 : count; }
  std::vector<DeviceId> devices() const;
  bool operator==(const Spread&) const = default;
  auto operator<=>(const Spread&) const = default;
};

/// A spread for each unit.
using Choice = std::vector<Spread>;

/// Returns the divisors of a number, in ascending order.
std::vector<int> divisors(int number);

/// Returns the spreads that `unit` may have on `devices` devices: as many replicas as any divisor of that
/// number, and as many parts if it can be divided. With several hosts, replicas on some of the devices may be
/// neighbours or spread over the hosts. A unit beside another (beside_another) need not begin at device 0.
std::vector<Spread> spreads_of(const PlacementUnit& unit, int devices, bool several_hosts);

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
