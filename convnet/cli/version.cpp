#include <fmt/format.h>

#include "convnet/cli/build_info.h"
#include "convnet/cli/commands.h"

namespace convnet {

std::string version_text() {
  return fmt::format("convnet {} (commit {})\nbuilt with: {}, oneDNN {}, OpenMP; {}, without MPI\n",
                     build_info::version, build_info::commit, build_info::compiler, build_info::onednn,
                     build_info::cuda);
}

}  // namespace convnet
