// Finds the placement whose step the simulator predicts to be fastest.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convnet/config/ini.h"
#include "convnet/place/choice.h"
#include "convnet/plan/device_model.h"
#include "convnet/plan/net_buffers.h"
#include "convnet/plan/simulate.h"
#include "kernels/target.h"
#include "providers/provider.h"

namespace convnet {

/// A question to the search: the net, the machine, and the limits. References must outlive the search.
struct PlacementQuestion {
  const IniFile &definition, &parameters;
  std::vector<MatrixInfo> matrices = {};
  GraphOptions graph = {};  ///< `devices` are those there are; the fields that move layers are ignored
  PlanOptions plan = {};
  std::int64_t images = 128;  ///< of a minibatch
  /// Returns the target of a plan that uses so many devices. Called by several threads.
  std::function<std::shared_ptr<const Target>(int devices)> target = {};
  /// Predicts a step of a plan for a net on so many devices. Called by several threads if `threads` > 1.
  std::function<Simulation(const Plan& plan, int devices)> predict = {};
  /// Speeds between devices, for what is proposed; predictions do not use it.
  DeviceModel links = {};
  std::int64_t memory_limit = 0;  ///< bytes of each device; 0: no limit
  bool exhaustive = false;        ///< simulate every candidate
  int threads = 1;                ///< that simulate candidates at the same time
};

/// A placement that was simulated.
struct PlacedCandidate {
  std::string name;         ///< "one device", "data", "hybrid", "file", or "" for one of the search
  std::string description;  ///< what runs where, in a line
  Placement placement;
  int devices = 1;          ///< used
  double seconds = 0;       ///< predicted for a step
  std::int64_t memory = 0;  ///< bytes of the fullest device in training; of all but the first one at least
  std::int64_t moved = 0;   ///< bytes between devices in a step
  /// The largest parts of the critical path: "conv2 backward 31%; communication 12%, waiting 3%".
  std::string limited_by;
  bool fits = true;  ///< memory_limit
};

struct PlacementAnswer {
  /// Candidates in order: those that fit come first, and among them the fastest.
  std::vector<PlacedCandidate> candidates;
  std::size_t simulated = 0;  ///< different candidates
  std::size_t possible = 0;   ///< that the rules allow, if they were counted; else 0
  bool exhaustive = false;    ///< all of them were simulated
  /// True if an exhaustive search had too many candidates and kept layers together that cannot be divided.
  bool joined = false;
};

/// Searches. Among the candidates are always one device, data parallelism on any number of devices that
/// divides that of all, fully-connected layers divided over as many beside replicas of the others (unless
/// that is estimated to take several times as long as the best), and the file's own lines. The answer depends
/// on the question alone, not on threads or time. Throws InputError if the files are wrong, or if a layer
/// computes other numbers on several devices (bnorm with sync=0).
PlacementAnswer search_placement(const PlacementQuestion& question);

}  // namespace convnet
