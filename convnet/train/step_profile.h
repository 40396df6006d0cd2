// The file of --profile.
#pragma once

#include <string>

#include "convnet/plan/timeline.h"
#include "convnet/runtime/processes.h"

namespace convnet {

/// The measured timeline of the first steps of training, of the devices of all processes. The first process
/// writes it to a file after each of these steps.
class StepProfile {
 public:
  /// `path` is the file. Several processes (else `processes` is null) make the same calls.
  StepProfile(std::string path, Processes* processes) : path_(std::move(path)), processes_(processes) {}

  /// Adds a step, unless there are enough. A file that cannot be written ends the profile with a warning.
  void add(const Plan& plan, const Graph& graph, const TaskTimes& times);

 private:
  TaskTimes times_of_all(const Plan& plan, TaskTimes times) const;

  std::string path_;
  Processes* processes_;
  ChromeTrace trace_;
  int traced_ = 0;       ///< steps so far; the same number in all processes
  bool failed_ = false;  ///< whether the file could not be written
};

}  // namespace convnet
