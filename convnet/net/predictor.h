// Predicts the steps of plans: from a device model, or by timing the operations here.
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

/// Predicts steps for one machine.
class Predictor {
 public:
  /// `model` is a file for read_device_model(), or "measured" for this machine. Throws InputError for wrong
  /// files.
  explicit Predictor(const std::string& model);

  /// Predicts a step of a plan on `devices` of the devices that the options name. If operations are measured,
  /// all CPU devices run them at once, because they share the machine; of GPUs only the first runs them, and
  /// the others are assumed to be equal. No operation is measured twice. With a file, several threads may
  /// call this at the same time. Throws InputError if the file has no `flops` for the devices' precision.
  Simulation predict(const DeviceOptions& options, const Plan& plan, int devices);

  bool measures() const { return !model_; }
  /// Returns whether the file describes GPUs: it does if the streams of a device run at the same time.
  bool describes_gpus() const { return model_ && model_->concurrent_streams; }
  /// Returns the memory that the file names, or what is free on this machine.
  MachineMemory memory(const DeviceOptions& options) const;
  /// Returns a warning if the file says that its machine has fewer devices than these; "" if not.
  std::string too_many_devices(std::size_t devices) const;
  std::string name() const { return model_ ? model_->name : "this machine, measured"; }
  /// Returns the model of the file, or one for this machine in which devices exchange data at the speed of
  /// memory.
  DeviceModel links() const;

 private:
  struct Measured {
    std::unique_ptr<Backend> backend;
    MeasuredOperations operations;
  };

  std::string file_;
  std::optional<DeviceModel> model_;
  /// Measurements by the numbers of devices and of threads, on which the plans depend. The other options are
  /// the same in all calls.
  std::map<std::pair<int, int>, Measured> measured_;
};

}  // namespace convnet
