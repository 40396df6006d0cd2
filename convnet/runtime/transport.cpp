#include "convnet/runtime/transport.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace convnet {

bool started_by_launcher() {
  // Open MPI's mpirun; srun and mpirun with PMIx; MPICH's mpirun and srun with PMI-2.
  constexpr std::array kMarks = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  return std::any_of(kMarks.begin(), kMarks.end(),
                     [](const char* mark) { return std::getenv(mark) != nullptr; });
}

}  // namespace convnet
