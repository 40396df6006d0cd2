// The lifetime of OpenMP's threads.
#pragma once

#include <omp.h>

namespace convnet {

/// Ends the OpenMP threads of the calling thread when it goes out of scope. Code that uses OpenMP outside of
/// the devices' worker threads must make one. libgomp counts threads as long as they live, and while a
/// process has more of them than cores, they sleep between two parallel loops instead of spinning. Every loop
/// of a device's worker would then begin some 40 microseconds late, a tenth of the step of a small net.
class OpenMpScope {
 public:
  OpenMpScope() = default;
  OpenMpScope(const OpenMpScope&) = delete;
  OpenMpScope& operator=(const OpenMpScope&) = delete;
  ~OpenMpScope() { omp_pause_resource_all(omp_pause_soft); }
};

}  // namespace convnet
