// Catch2, version 2 (Debian 12) or 3.
#pragma once

#include <iostream>
#include <string>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

namespace convnet::test {

/// Says why a case cannot run here: `return skip("there is no python3");` as its first statement that checks
/// anything. ctest reports the case as skipped, or as failed if it has checked something before
/// (tests/CMakeLists.txt).
inline void skip(const std::string& why) { std::cout << "skipped: " << why << std::endl; }

}  // namespace convnet::test
