// Algorithms that were chosen by timing, kept in a file from run to run: the same choice gives the same bits.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "kernels/backend.h"

namespace convnet::cuda {

/// Work that keeps the first device busy for 0.1 to 0.5 ms. What is put into the queue after it has been put
/// in before it starts: the time between two marks is then the device's, not that which the host takes to
/// launch.
class Delay {
 public:
  Delay();
  void put_into(Queue& queue) const;

 private:
  std::unique_ptr<DeviceMemory> memory_;
};

/// Choices for one kind of device and version of the libraries. Several threads may use it.
class Tuning {
 public:
  /// Reads the file of `device`: in $CONVNET_CACHE, else in convnet/ under $XDG_CACHE_HOME or ~/.cache. A
  /// file that cannot be read is an empty one.
  explicit Tuning(const std::string& device);

  /// The algorithm that was chosen for an operation, described by all that matters for its speed.
  std::optional<std::string> find(const std::string& operation) const;
  /// Keeps a choice, and writes the file anew. A file that cannot be written is no error: the next run
  /// chooses again.
  void keep(const std::string& operation, const std::string& choice);

  /// The queue in which candidates run. It is the first device's, so its clock is up by then. Made at the
  /// first call.
  Queue& queue();

 private:
  void write() const;

  std::string path_;  ///< empty: nothing is kept
  mutable std::mutex mutex_;
  std::map<std::string, std::string> choices_;
  std::unique_ptr<Queue> queue_;
};

/// FLOP/s of a large matrix product, and bytes a second of a large copy, read and written.
double measure_peak_flops(int device, Precision precision);
double measure_copy_bandwidth(int device);

}  // namespace convnet::cuda
