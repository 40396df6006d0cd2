#include "convnet/train/data_wait.h"

#include <fmt/format.h>

#include <cmath>

namespace convnet {
namespace {

int percentage(double part, double whole) {
  return whole > 0 ? static_cast<int>(std::lround(100 * part / whole)) : 0;
}

}  // namespace

std::optional<double> notable_wait(double waited, double wall) {
  // Short waits are those of a batch's first minibatch, before anything could be read ahead.
  constexpr double kLeastSeconds = 0.5;
  constexpr int kLeastPercentage = 5;
  if (waited < kLeastSeconds || percentage(waited, wall) < kLeastPercentage) return std::nullopt;
  return waited / wall;
}

std::string waiting_text(double waited, double wall) {
  if (!notable_wait(waited, wall)) return "";
  return fmt::format("{} % waiting for data", percentage(waited, wall));
}

void DataWait::note_batch(double waited, double wall) {
  waited_ += waited;
  wall_ += wall;
}

int DataWait::take_advice() {
  constexpr double kLeastSeconds = 2;
  constexpr int kLeastPercentage = 10;
  const int percent = percentage(waited_, wall_);
  if (advised_ || waited_ < kLeastSeconds || percent < kLeastPercentage) return 0;
  advised_ = true;
  return percent;
}

}  // namespace convnet
