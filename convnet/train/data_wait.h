// Measures how long training waits for its data, and decides what a run says about it.
#pragma once

#include <optional>
#include <string>

namespace convnet {

/// Returns what share of a batch, which took `wall` seconds, its steps waited `waited` seconds for data;
/// nullopt if that is too little to be worth a word.
std::optional<double> notable_wait(double waited, double wall);
/// Returns "35 % waiting for data", or "" where notable_wait() returns nothing.
std::string waiting_text(double waited, double wall);

/// Adds up how long a run waits for data, and decides when to tell how it could wait less.
class DataWait {
 public:
  /// Notes a batch that took `wall` seconds, of which steps waited `waited` for data.
  void note_batch(double waited, double wall);
  /// Returns the percentage of the time so far if it is large enough for advice. Returns it only once, else
  /// 0.
  int take_advice();

 private:
  double waited_ = 0, wall_ = 0;
  bool advised_ = false;
};

}  // namespace convnet
