// The text of --version.
#include <fmt/format.h>

#include "convnet/cli/build_info.h"
#include "convnet/cli/commands.h"
#include "convnet/runtime/transport.h"
#include "kernels/cpu/instruction_set.h"

namespace convnet {
namespace {

std::string computes_with() {
  try {
    return "computes with " + name_of(instruction_set()) + " on this processor";
  } catch (const std::exception& e) {
    return e.what();
  }
}

/// Returns a line that says for which processors a build was compiled that does not compute on all; else "".
std::string compiled_for() {
  const InstructionSet lowest = lowest_compiled_instruction_set();
  if (lowest == InstructionSet::base) return "";
  return "compiled for processors with " + name_of(lowest) +
         " or later ones; scripts/build compiles it for all\n";
}

}  // namespace

std::string version_text() {
  const std::string mpi = transport_library();
  const std::string with = std::string(build_info::with) + (mpi.empty() ? "" : ", " + mpi);
  std::string without = build_info::without;
  if (mpi.empty()) without += without.empty() ? "MPI" : ", MPI";
  return fmt::format("convnet {} (commit {})\nbuilt with {}\n{}{}{}\n", build_info::version,
                     build_info::commit, with, without.empty() ? "" : "built without " + without + "\n",
                     compiled_for(), computes_with());
}

}  // namespace convnet
