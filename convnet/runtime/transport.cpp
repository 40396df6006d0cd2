#include "convnet/runtime/transport.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "convnet/config/text.h"

namespace convnet {

bool started_by_launcher() {
  // Open MPI's mpirun; srun and mpirun with PMIx; MPICH's mpirun and srun with PMI-2.
  constexpr std::array kMarks = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  return std::any_of(kMarks.begin(), kMarks.end(),
                     [](const char* mark) { return std::getenv(mark) != nullptr; });
}

int launched_processes() {
  if (!started_by_launcher()) return 1;
  for (const char* const size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const char* const text = std::getenv(size)) return to_number<int>(text).value_or(1);
  }
  return 1;
}

int launched_rank() {
  if (!started_by_launcher()) return 0;
  for (const char* const rank : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* const text = std::getenv(rank)) return to_number<int>(text).value_or(0);
  }
  return 0;
}

}  // namespace convnet
