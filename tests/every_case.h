// A limit for programs and machines that have no time for all cases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

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

/// Returns the seeds of random nets that a test runs: every so many of `count`, or all of $CONVNET_SEEDS, a
/// range like 100-199, for a long run by hand.
inline std::vector<std::uint32_t> seeds(std::uint32_t first, std::uint32_t count, std::uint32_t every) {
  if (const char* const text = std::getenv("CONVNET_SEEDS"); text != nullptr) {
    const std::string range = text;
    const std::size_t dash = range.find('-');
    first = to_number<std::uint32_t>(range.substr(0, dash)).value();
    count = to_number<std::uint32_t>(range.substr(dash + 1)).value() + 1 - first;
    every = 1;
  }
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < count; i += every) all.push_back(first + i);
  return all;
}

}  // namespace convnet::test
