#include "convnet/net/predictor.h"

#include <fmt/format.h>

#include "convnet/base/error.h"
#include "convnet/net/devices.h"

namespace convnet {

Predictor::Predictor(const std::string& model) : file_(model) {
  if (model != "measured") model_ = read_device_model(model);
}

Simulation Predictor::predict(const DeviceOptions& options, const Plan& plan, int devices) {
  if (model_) {
    const Precision precision = precision_of(options);
    if (model_->flops.of(precision) == 0)
      throw InputError(file_ + ": has no 'flops' for " + to_string(precision) +
                       "; add it, or choose another --precision");
    return simulate(plan, *model_, precision);
  }
  Measured& measured = measured_[{devices, thread_count(options.threads)}];
  if (!measured.backend) measured.backend = make_backend(options, devices);
  const bool alone = !measured.backend->on_host();
  return simulate(plan,
                  measure_seconds(plan, *measured.backend, alone ? 1 : devices, &measured.operations,
                                  alone ? options.gpus().front() : 0),
                  alone);
}

MachineMemory Predictor::memory(const DeviceOptions& options) const {
  if (model_) return {static_cast<std::int64_t>(model_->memory), false};
  const auto backend = make_backend(options, 1);
  return {backend->memory_available(options.gpus().front()), backend->on_host()};
}

std::string Predictor::too_many_devices(std::size_t devices) const {
  if (!model_ || model_->devices == 0 || devices <= static_cast<std::size_t>(model_->devices)) return "";
  return fmt::format(
      "warning: {} describes a machine of {} devices, and the prediction is for {}: what lies between "
      "machines "
      "is left out",
      file_, model_->devices, devices);
}

DeviceModel Predictor::links() const {
  if (model_) return *model_;
  DeviceModel model;
  model.link_bandwidth = {10e9};  // of a host's memory, roughly
  model.shared_bus = true;
  model.concurrent_streams = false;
  return model;
}

}  // namespace convnet
