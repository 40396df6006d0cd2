// Whether tests can run scripts.
#pragma once

#include <cstdlib>

namespace convnet::test {

inline bool has_python() { return std::system("python3 -c '' 2> /dev/null") == 0; }

}  // namespace convnet::test
