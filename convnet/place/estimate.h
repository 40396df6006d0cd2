// Proposes placements by adding up costs of units and of edges between units. The estimate is fast and rough,
// because it does not know which work overlaps; its proposals are then simulated.
#pragma once

#include <map>
#include <utility>

#include "convnet/place/choice.h"
#include "convnet/plan/device_model.h"

namespace convnet {

/// Measured or predicted costs of a unit.
struct UnitCosts {
  /// Seconds that one microbatch's forward and backward take on one device, by the number of microbatches.
  std::map<int, double> seconds;
  double update_seconds = 0;  ///< time of updating its weights on one device
  double weight_bytes = 0;
};

/// Estimates the seconds of a step for choices of spreads.
class PlacementEstimate {
 public:
  /// `bytes` has, for each edge, the bytes of its output for a whole minibatch. `units`, `links` and
  /// `topology` must outlive the estimate.
  PlacementEstimate(const PlacementUnits& units, std::vector<UnitCosts> costs, std::vector<double> bytes,
                    const DeviceModel& links, const Topology& topology, int devices);

  /// Returns the sum of all costs in seconds.
  double seconds(const Choice& choice) const;
  /// Returns a lower bound of the seconds of a step: the time of computing on the busiest device.
  double least_seconds(const Choice& choice) const;
  /// Returns, for each unit, the index of its run where the units are cut into `count` runs of neighbours.
  /// The run with most seconds on one device has as few as possible.
  std::vector<int> balanced_runs(int count) const;
  /// Returns the `best` choices with least seconds() among those with `most` replicas, best first, from
  /// `spreads` by unit. Choices are made unit by unit, and only the best beginnings are continued.
  std::vector<Choice> propose(const std::vector<std::vector<Spread>>& spreads, int most,
                              std::size_t best) const;

 private:
  double unit_seconds(std::size_t unit, const Spread& spread, int most) const;
  double update_seconds(std::size_t unit, const Spread& spread) const;
  double edge_seconds(std::size_t edge, const Spread& from, const Spread& to) const;
  /// Returns the seconds for each byte of weights to sum gradients and to distribute weights.
  double sum_seconds(const Spread& spread) const;
  /// Returns the seconds for each byte of an output to move the output and its gradient.
  double move_seconds(const Spread& from, const Spread& to) const;

  const PlacementUnits& units_;
  const std::vector<UnitCosts> costs_;
  const std::vector<double> bytes_;
  const DeviceModel& links_;
  const Topology& topology_;
  const int devices_;
  // Caches of sum_seconds() and move_seconds(). Only one thread uses them.
  mutable std::map<Spread, double> sums_;
  mutable std::map<std::pair<Spread, Spread>, double> moves_;
};

}  // namespace convnet
