// Takes the place of mpi_transport.cpp in programs without MPI.
#include "convnet/base/error.h"
#include "convnet/runtime/transport.h"

namespace convnet {

std::unique_ptr<Transport> make_transport(double /*stall_seconds*/, bool /*shares_memory*/) {
  if (launched_processes() > 1)
    throw DeviceError(
        "a launcher has started several processes, but this program was built without MPI; install "
        "libopenmpi-dev or libmpich-dev and build it again");
  return nullptr;
}

std::string transport_library() { return ""; }

}  // namespace convnet
