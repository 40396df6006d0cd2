#include <fmt/format.h>

#include "convnet/cli/build_info.h"
#include "convnet/cli/commands.h"
#include "convnet/runtime/transport.h"

namespace convnet {

std::string version_text() {
  const std::string mpi = transport_library();
  return fmt::format("convnet {} (commit {})\nbuilt with: {}, oneDNN {}, OpenMP; {}, {}\n",
                     build_info::version, build_info::commit, build_info::compiler, build_info::onednn,
                     build_info::cuda, mpi.empty() ? "without MPI" : mpi);
}

}  // namespace convnet
