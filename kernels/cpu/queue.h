// Queues of CPU devices. A thread for each device does the work of the device's queues, one piece at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace convnet::cpu {

/// Makes the queues of a device and its thread, which first calls `enter` and ends with the last of the
/// queues.
std::vector<std::unique_ptr<Queue>> make_queues(std::size_t count, const std::function<void()>& enter);
/// See Backend::record(); `queues` were made here.
std::unique_ptr<Recording> record(std::span<Queue* const> queues, const std::function<void()>& submit);

}  // namespace convnet::cpu
