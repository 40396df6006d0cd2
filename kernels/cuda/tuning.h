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
  /// Returns how many candidates of an operation are worth timing: most of the time the library puts the
  /// fastest first. `seconds` is the time that this operation has taken so far. They become fewer when it, or
  /// all operations of the process together, have taken long.
  int most_tried(double seconds) const;

  /// Calls `take` with the choice that is kept for `operation`, a text that describes everything that matters
  /// for its speed. If there is none, or if `take` returns false, calls `time` and keeps the choice that it
  /// returns. The file is locked meanwhile, so that all threads and processes use the choice of the one that
  /// timed first. A file that cannot be written is no error; the next run then chooses again. Throws what
  /// `time` throws. If nothing is timed, calls `time` alone. One thread at a time is in `time`.
  void choose(const std::string& operation, const std::function<bool(const std::string& choice)>& take,
              const std::function<std::string()>& time);

  /// Returns what was kept for a convolution of this process, so that the library is asked only once about
  /// those that are alike; null if nothing was. `key` describes the convolution and the device.
  std::shared_ptr<const ChosenConvolution> convolution(const std::string& key) const;
  void keep(const std::string& key, std::shared_ptr<const ChosenConvolution> chosen);

  /// Returns the queue in which candidates run. The first call makes it, and keeps the device busy until its
  /// clock is raised.
  Queue& queue(int device);

  /// Returns a delay for timing candidates on a device. For `time` of choose() alone.
  const Delay& delay(int device);
  /// Returns the arguments and the workspaces of candidates: at least `bytes` of a device, valid until the
  /// next call for the device. For `time` of choose() alone. Candidates have as much memory as the operation
  /// will have, or none at all, so that what is chosen does not depend on how much is free. Throws
  /// DeviceError if there is not enough.
  std::byte* arena(int device, std::int64_t bytes);
  /// Frees the memory of delays and arenas.
  void free_memory();

 private:
  void read();
  void write() const;

  std::string path_;  ///< empty: nothing is kept
  bool times_;
  double seconds_ = 0;  ///< that all calls of `time` have taken
  std::mutex choosing_, making_queues_;
  mutable std::mutex keeping_;
  std::map<std::string, std::string> choices_;
  std::map<int, std::unique_ptr<Queue>> queues_;
  std::map<int, Delay> delays_;
  std::map<int, std::unique_ptr<DeviceMemory>> arenas_;
  std::map<std::string, std::shared_ptr<const ChosenConvolution>> convolutions_;
};

/// Measure the FLOP/s of a large matrix product, and the bytes a second, read and written together, of a
/// large copy.
double measure_peak_flops(int device, Precision precision);
double measure_copy_bandwidth(int device);

}  // namespace convnet::cuda
