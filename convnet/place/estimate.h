// Proposes placements by costs that add up: a unit's own, and those of edges between units. Fast and rough,
// because it does not know what overlaps; candidates are then simulated.
#pragma once

#include <map>
#include <utility>

#include "convnet/place/choice.h"
#include "convnet/plan/device_model.h"

namespace convnet {

/// Measured or predicted costs of a unit, from which the estimate is made.
struct UnitCosts {
  /// Seconds that one microbatch's forward and backward take on one device, by the number of microbatches.
  std::map<int, double> seconds;
  double update_seconds = 0;  ///< time of updating its weights on one device
  double weight_bytes = 0;
};

class PlacementEstimate {
 public:
  /// `bytes` are those of an edge's output for a whole minibatch, by edge. All must outlive the estimate.
  PlacementEstimate(const PlacementUnits& units, std::vector<UnitCosts> costs, std::vector<double> bytes,
                    const DeviceModel& links, const Topology& topology, int devices);

  /// Returns the sum of all costs in seconds.
  double seconds(const Choice& choice) const;
  /// Returns seconds that no plan for the choice can be faster than: of computing on its busiest device.
  double least_seconds(const Choice& choice) const;
  /// Returns the `best` choices with least seconds() among those with `most` replicas, best first, from
  /// `spreads` by unit. Choices are made unit by unit, and only the best beginnings are continued.
  std::vector<Choice> propose(const std::vector<std::vector<Spread>>& spreads, int most,
                              std::size_t best) const;

 private:
  double unit_seconds(std::size_t unit, const Spread& spread, int most) const;
  double update_seconds(std::size_t unit, const Spread& spread) const;
  double edge_seconds(std::size_t edge, const Spread& from, const Spread& to) const;
  /// Seconds for each byte of weights in which gradients are summed and weights passed on.
  double sum_seconds(const Spread& spread) const;
  /// Seconds for each byte of an output in which it and its gradient move.
  double move_seconds(const Spread& from, const Spread& to) const;

  const PlacementUnits& units_;
  const std::vector<UnitCosts> costs_;
  const std::vector<double> bytes_;
  const DeviceModel& links_;
  const Topology& topology_;
  const int devices_;
  // Computed once for each spread; one thread alone asks.
  mutable std::map<Spread, double> sums_;
  mutable std::map<std::pair<Spread, Spread>, double> moves_;
};

}  // namespace convnet
