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
  std::int64_t images = 128;  ///< images of a minibatch
  /// Returns the target of a plan that uses `devices` devices. Called by several threads.
  std::function<std::shared_ptr<const Target>(int devices)> target = {};
  /// Predicts a step of a plan that uses `devices` devices. Called by several threads if `threads` > 1.
  std::function<Simulation(const Plan& plan, int devices)> predict = {};
  /// Speeds between devices for PlacementEstimate, which makes proposals; predictions do not use them.
  DeviceModel links = {};
  MachineMemory memory = {};  ///< what candidates must fit
  bool exhaustive = false;    ///< simulate every candidate
  int threads = 1;            ///< number of threads that simulate candidates at the same time
};

/// A placement that was simulated.
struct PlacedCandidate {
  std::string name;  ///< "one device", "data on 4", "hybrid on 4", "pipeline of 4 stages", "file", or "" for
                     ///< one of the search
  std::string description;  ///< what runs where, in a line
  Placement placement;
  int devices = 1;          ///< number of devices that it uses
  double seconds = 0;       ///< predicted time of a step
  std::int64_t memory = 0;  ///< bytes of the fullest device in training; a lower bound for all but the first
  std::int64_t moved = 0;   ///< bytes between devices in a step
  /// The largest parts of the critical path: "conv2 backward 31%; communication 12%, waiting 3%".
  std::string limited_by;
  bool fits = true;  ///< PlacementQuestion::memory holds what it needs
};

/// The result of a search.
struct PlacementAnswer {
  /// Candidates in order: those that fit come first, and among them the fastest.
  std::vector<PlacedCandidate> candidates;
  std::size_t simulated = 0;  ///< number of different candidates that were simulated
  std::size_t possible = 0;   ///< number of candidates that the rules allow, if they were counted; else 0
  bool exhaustive = false;    ///< all possible candidates were simulated
  /// True if an exhaustive search had too many candidates and kept layers together that cannot be divided.
  bool joined = false;
  MachineMemory memory = {};  ///< that of the question
};

/// Searches for the fastest placement. For every divisor of the number of devices, the candidates include
/// data parallelism on that many devices, and the hybrid of fully-connected layers divided over them with
/// replicas of all other layers (unless it is estimated to take several times as long as the best). With
/// several microbatches for each replica, they include pipelines of stages that take about as long. They also
/// include one device, and the placement of the file. The answer depends only on the question, not on threads
/// or time. Throws InputError if the files are wrong, or if a layer computes different results on several
/// devices (bnorm with sync=0).
PlacementAnswer search_placement(const PlacementQuestion& question);

}  // namespace convnet
