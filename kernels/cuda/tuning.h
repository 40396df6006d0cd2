// Algorithms that were chosen by timing. A file keeps the choices from run to run, because the same choice
// gives the same bits.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "kernels/delay.h"

namespace convnet::cuda {

/// Makes a delay for timing candidates on a device.
Delay make_delay(int device);

/// A choice for a convolution with its plan; conv_cudnn.cpp defines it.
struct ChosenConvolution;

/// The choices for one kind of device. Several threads may use it.
class Tuning {
 public:
  /// `device` is the name of the kind of device (device_name()). Its choices are kept in a file in
  /// $CONVNET_CACHE, else in convnet/ under $XDG_CACHE_HOME or ~/.cache. A file that cannot be read counts as
  /// empty.
  explicit Tuning(const std::string& device);

  /// Returns whether operations choose by timing. If $CONVNET_TUNING is "off", as in tests of correctness,
  /// they take the library's first proposal, and nothing is kept.
  bool times() const { return times_; }

  /// Calls `take` with the choice that is kept for `operation`, a text that describes everything that matters
  /// for its speed. If there is none, or if `take` returns false, calls `time` and keeps the choice that it
  /// returns. The file is locked meanwhile, so that all threads and processes use the choice of the one that
  /// timed first. A file that cannot be written is no error; the next run then chooses again. Throws what
  /// `time` throws.
  void choose(const std::string& operation, const std::function<bool(const std::string& choice)>& take,
              const std::function<std::string()>& time);

  /// Returns what was kept for a convolution of this process, so that the library is asked only once about
  /// those that are alike; null if nothing was. `key` describes the convolution and the device.
  std::shared_ptr<const ChosenConvolution> convolution(const std::string& key) const;
  void keep(const std::string& key, std::shared_ptr<const ChosenConvolution> chosen);

  /// Returns the queue in which candidates run. The first call makes it, and keeps the device busy until its
  /// clock is raised.
  Queue& queue(int device);

 private:
  void read();
  void write() const;

  std::string path_;  ///< empty: nothing is kept
  bool times_;
  std::mutex choosing_, making_queues_;
  mutable std::mutex keeping_;
  std::map<std::string, std::string> choices_;
  std::map<int, std::unique_ptr<Queue>> queues_;
  std::map<std::string, std::shared_ptr<const ChosenConvolution>> convolutions_;
};

/// Measure the FLOP/s of a large matrix product, and the bytes a second, read and written together, of a
/// large copy.
double measure_peak_flops(int device, Precision precision);
double measure_copy_bandwidth(int device);

}  // namespace convnet::cuda
