// The environment variables from which OpenMP's runtime learns how threads run.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace convnet {

/// Returns the environment ("NAME=value") that the program should run in instead of `environment`, a list
/// that ends with a null pointer; nullopt if that is right already. It lacks the variables that would let
/// OpenMP choose the number of threads of a team, or bind them to cores: plans are made for the number of
/// threads that --threads, the affinity mask and the control groups grant, and a smaller team could wait for
/// ever. GOMP_SPINCOUNT is added unless the environment says how threads wait (OMP_WAIT_POLICY,
/// GOMP_SPINCOUNT). By default, libgomp's threads spin for milliseconds: if another program uses a core, then
/// at the end of every loop the threads spin until the one without a core has finished, and training takes
/// ten times as long or more.
std::optional<std::vector<std::string>> openmp_environment(const char* const* environment);

/// Restarts this program, with the same arguments, in openmp_environment(). Does nothing if it runs in that,
/// or if the program cannot be started again. OpenMP's runtime reads the environment, and may bind the main
/// thread to a core, when it is loaded. So this must be called before, from .preinit_array: libraries other
/// than the C library may not be used yet, and getenv() finds nothing.
void restart_in_openmp_environment(char** argv, const char* const* environment);

}  // namespace convnet
