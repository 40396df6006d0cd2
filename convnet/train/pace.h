// How long the parts of a run take, for --time-limit.
#pragma once

#include <algorithm>
#include <cstdint>

#include "convnet/plan/plan.h"

namespace convnet {

/// Knows how long the slow ones of a run's latest minibatches and checkpoints took, and says how much of a
/// time limit must be left before the next minibatch begins.
class Pace {
 public:
  /// `limit` is the time limit, and `save` a guess of how long a checkpoint takes, both in seconds.
  Pace(double limit, double save) : spare_(std::min(kSpareShare * limit, kMostSpare)), save_(save) {}

  void note_minibatch(Phase phase, double seconds) {
    Slow& slow = of(phase);
    // The first minibatch also tunes and allocates, so it counts only as long as it is the only one.
    slow.seconds = slow.count == 1 ? seconds : std::max(seconds, kForgets * slow.seconds);
    ++slow.count;
  }
  void note_save(double seconds) {
    save_ = saves_ == 0 ? seconds : std::max(seconds, save_);
    ++saves_;
  }

  /// Returns whether a minibatch of this phase has been noted.
  bool knows(Phase phase) const { return of(phase).count > 0; }
  /// Returns the seconds to keep back for so many minibatches of this phase and a checkpoint.
  double needed(Phase phase, int minibatches) const {
    const double one = std::max(of(phase).seconds, knows(phase) ? 0 : of(Phase::train).seconds);
    return kSafety * (minibatches * one + save_) + spare_;
  }

 private:
  static constexpr double kForgets = 0.7, kSafety = 1.25, kSpareShare = 0.05, kMostSpare = 30;
  struct Slow {
    double seconds = 0;
    std::int64_t count = 0;
  };
  Slow& of(Phase phase) { return phase == Phase::train ? train_ : test_; }
  const Slow& of(Phase phase) const { return phase == Phase::train ? train_ : test_; }

  double spare_;
  Slow train_, test_;
  double save_;
  std::int64_t saves_ = 0;
};

}  // namespace convnet
