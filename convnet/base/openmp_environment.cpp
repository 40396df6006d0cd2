#include "convnet/base/openmp_environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <string_view>

namespace convnet {
namespace {

constexpr const char* kSpins = "GOMP_SPINCOUNT=5000";  // decisions.md has measurements

/// Variables of OpenMP, libgomp and LLVM's runtime on which the size of teams and the affinity of their
/// threads depend. OMP_THREAD_LIMIT is not among them: it is a limit that the user sets, and is kept to.
constexpr std::array kUnwanted = {
    "OMP_DYNAMIC",  "OMP_NESTED",    "OMP_MAX_ACTIVE_LEVELS", "OMP_PLACES",       "OMP_PROC_BIND",
    "KMP_AFFINITY", "KMP_HW_SUBSET", "GOMP_CPU_AFFINITY",     "KMP_DYNAMIC_MODE", "KMP_PLACE_THREADS"};

/// Returns whether a variable, "NAME=value", has this name, or the name for all devices: NAME_ALL.
bool is_named(std::string_view variable, std::string_view name) {
  if (!variable.starts_with(name)) return false;
  const std::string_view rest = variable.substr(name.size());
  return rest.starts_with("=") || rest.starts_with("_ALL=");
}

bool sizes_or_binds_teams(std::string_view variable) {
  return std::any_of(kUnwanted.begin(), kUnwanted.end(),
                     [&](std::string_view name) { return is_named(variable, name); });
}

constexpr const char* kItself = "/proc/self/exe";

/// Returns the file of this program. A process is called like the file that it was started from, so one that
/// was started from kItself is called "exe".
std::string own_file() {
  std::string file(PATH_MAX, '\0');
  const ssize_t length = readlink(kItself, file.data(), file.size());
  file.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  return file;
}

}  // namespace

std::optional<std::vector<std::string>> openmp_environment(const char* const* environment) {
  std::vector<std::string> kept;
  bool right = true, says_how_to_wait = false;
  for (const char* const* variable = environment; *variable != nullptr; ++variable) {
    if (sizes_or_binds_teams(*variable)) {
      right = false;
      continue;
    }
    says_how_to_wait =
        says_how_to_wait || is_named(*variable, "OMP_WAIT_POLICY") || is_named(*variable, "GOMP_SPINCOUNT");
    kept.emplace_back(*variable);
  }
  if (!says_how_to_wait) kept.emplace_back(kSpins);
  if (right && says_how_to_wait) return std::nullopt;
  return kept;
}

void restart_in_openmp_environment(char** argv, const char* const* environment) {
  auto variables = openmp_environment(environment);
  if (!variables) return;
  std::vector<char*> pointers;
  for (std::string& variable : *variables) pointers.push_back(variable.data());
  pointers.push_back(nullptr);
  for (const std::string& file : {own_file(), std::string(kItself)})
    execve(file.c_str(), argv, pointers.data());
}

}  // namespace convnet
