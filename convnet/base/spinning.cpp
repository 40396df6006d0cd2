#include "convnet/base/spinning.h"

#include <unistd.h>

#include <cstdlib>

namespace convnet {

void limit_spinning(char** argv) {
  constexpr const char* kSpins = "5000";  // decisions.md has measurements
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (setenv("GOMP_SPINCOUNT", kSpins, 1) == 0) execv("/proc/self/exe", argv);
}

}  // namespace convnet
