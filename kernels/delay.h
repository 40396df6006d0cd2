// Work that hides what the host does while a device is timed.
#pragma once

#include <memory>
#include <utility>

#include "kernels/backend.h"

namespace convnet {

/// Keeps a device busy by copies to and fro. All work queued behind them is complete in the queue before it
/// starts, so the time between two marks is that of the device, not the time that the host takes to launch;
/// and more memory than caches hold leaves nothing in them.
class Delay {
 public:
  /// Copies between the halves of `memory`, which belongs to the queue's device: 0.1 to 0.5 ms for 256 MiB.
  explicit Delay(std::unique_ptr<DeviceMemory> memory) : memory_(std::move(memory)) {}
  void put_into(Queue& queue) const {
    const std::int64_t half = memory_->bytes() / 2;
    std::byte *here = memory_->data(), *there = here + half;
    queue.copy(there, here, half);
    queue.copy(here, there, half);
  }

 private:
  std::unique_ptr<DeviceMemory> memory_;
};

}  // namespace convnet
