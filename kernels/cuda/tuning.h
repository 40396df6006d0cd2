// Algorithms that were chosen by timing, kept in a file from run to run: the same choice gives the same bits.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "kernels/delay.h"

namespace convnet::cuda {

/// Returns a delay for candidates that are timed on a device.
Delay make_delay(int device);

/// Choices for one kind of device. Several threads may use it.
class Tuning {
 public:
  /// The choices are kept in a file for `device`: in $CONVNET_CACHE, else in convnet/ under $XDG_CACHE_HOME
  /// or
  /// ~/.cache. A file that cannot be read is an empty one.
  explicit Tuning(const std::string& device);

  /// Whether operations time what they choose from: not where $CONVNET_TUNING is "off", which tests of
  /// correctness set. Operations take the library's first proposal then, and nothing is kept.
  bool times() const { return times_; }

  /// Has `take` accept the choice that is kept for `operation`, which describes everything that matters for
  /// its speed; keeps what `time` returns if there is none, or `take` returns false. All threads and
  /// processes that use the file come one after the other, so that what one has timed is the choice of all. A
  /// file that cannot be written is no error: the next run chooses again. Passes on what `time` throws.
  void choose(const std::string& operation, const std::function<bool(const std::string& choice)>& take,
              const std::function<std::string()>& time);

  /// Returns the queue that candidates run in, on a device with its clock raised. Made at the first call.
  Queue& queue(int device);

 private:
  void read();
  void write() const;

  std::string path_;  ///< empty: nothing is kept
  bool times_;
  std::mutex choosing_, making_queues_;
  std::map<std::string, std::string> choices_;
  std::map<int, std::unique_ptr<Queue>> queues_;
};

/// FLOP/s of a large matrix product, and bytes a second of a large copy, read and written.
double measure_peak_flops(int device, Precision precision);
double measure_copy_bandwidth(int device);

}  // namespace convnet::cuda
