// A limit for programs and machines that have no time for all cases.
#pragma once

#include <cstddef>
#include <cstdlib>

#include "convnet/config/text.h"

namespace convnet::test {

/// Returns $CONVNET_EVERY_CASE, or else `usual`: a test of many cases runs only every so many of them, from
/// the first on.
inline int every_case(int usual = 1) {
  const char* const text = std::getenv("CONVNET_EVERY_CASE");
  return text == nullptr ? usual : to_number<int>(text).value_or(usual);
}

/// Returns every n-th element of a container, from the first on.
template <class Container>
Container every_nth(const Container& all, std::size_t n) {
  Container kept;
  std::size_t i = 0;
  for (const auto& element : all)
    if (i++ % n == 0) kept.insert(kept.end(), element);
  return kept;
}

}  // namespace convnet::test
