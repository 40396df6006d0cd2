// The labels of mixed images (--mixup, --cutmix), which providers write and costs read.
#pragma once

#include <cstdint>

namespace convnet {

/// Labels of mixed images have three values: a class, another class, and the share of the other one in units
/// of 1/kMixedUnit.
constexpr std::int64_t kMixedLabelValues = 3;
constexpr std::int32_t kMixedUnit = 65536;

}  // namespace convnet
