// Takes the place of mpi_transport.cpp in programs without MPI.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "convnet/base/error.h"
#include "convnet/runtime/transport.h"

namespace convnet {

std::unique_ptr<Transport> make_transport(double /*stall_seconds*/) {
  constexpr std::array kCounts = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};
  const bool several = std::any_of(kCounts.begin(), kCounts.end(), [](const char* name) {
    const char* count = std::getenv(name);
    return count != nullptr && std::atoi(count) > 1;
  });
  if (started_by_launcher() && several)
    throw DeviceError(
        "a launcher has started several processes, but this program was built without MPI; install "
        "libopenmpi-dev or libmpich-dev and build it again");
  return nullptr;
}

std::string transport_library() { return ""; }

}  // namespace convnet
