// A limit for programs and machines that have no time for all cases.
#pragma once

#include <cstdlib>

#include "convnet/config/text.h"

namespace convnet::test {

/// Returns $CONVNET_EVERY_CASE, by default 1: a test of many cases runs only every so many of them, from the
/// first on.
inline int every_case() {
  const char* const text = std::getenv("CONVNET_EVERY_CASE");
  return text == nullptr ? 1 : to_number<int>(text).value_or(1);
}

}  // namespace convnet::test
