// Predicts the steps of plans: from the numbers of a machine, or by timing the operations here.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "convnet/net/options.h"
#include "convnet/plan/simulate.h"
#include "convnet/runtime/measure.h"

namespace convnet {

class Predictor {
 public:
  /// `model` is a file of a machine's numbers, or "measured" for this machine. Throws InputError for files
  /// that are wrong.
  explicit Predictor(const std::string& model);

  /// Predicts a step of a plan on `devices` devices of those that the options name. Where it is measured, CPU
  /// devices share the machine, so all work at once; of GPUs the first is measured, and all are taken to be
  /// alike. An operation that was measured before is not measured again. From a file, several threads may
  /// predict at the same time.
  Simulation predict(const DeviceOptions& options, const Plan& plan, int devices);

  bool measures() const { return !model_; }
  /// Whether the file describes GPUs: only their streams run at the same time.
  bool describes_gpus() const { return model_ && model_->concurrent_streams; }
  std::string name() const { return model_ ? model_->name : "this machine, measured"; }
  /// Returns the file's numbers, or for this machine such that devices move data at the speed of memory.
  DeviceModel links() const;

 private:
  struct Measured {
    std::unique_ptr<Backend> backend;
    MeasuredOperations operations;
  };

  std::optional<DeviceModel> model_;
  /// By the numbers of devices and of threads, on which the plans depend; other options of the calls are the
  /// same.
  std::map<std::pair<int, int>, Measured> measured_;
};

}  // namespace convnet
