// The processor cores that the machine grants this process.
#pragma once

#include <string>
#include <vector>

namespace convnet {

/// The cores and the time on them that the machine grants a process.
struct Cores {
  /// A limit on the time on all cores together, which the processes of a control group share.
  struct Quota {
    std::string group;  ///< the group's folder
    double cores = 0;   ///< seconds on cores in each second
  };
  std::string mask = "1";     ///< a character for each core of the host: '1' if the process may use it
  std::vector<Quota> quotas;  ///< those of its control group and of the groups above it
};

/// Returns what this process has: its affinity mask, and the quotas of its control groups (versions 1 and 2),
/// whose files are read below `root`, so that tests can provide their own.
Cores own_cores(const std::string& root = "");

/// Returns how many threads each of several processes should compute with, at least 1. Processes of one host
/// share the cores that they may both use, and the quotas of groups that they are both in. A part of a core
/// that is left over is not used: threads that wait for one another lose more by a quota than a thread more
/// would gain. `hosts` has the name of each process's host.
std::vector<int> shared_cores(const std::vector<Cores>& processes, const std::vector<std::string>& hosts);

/// Returns how many threads this process should compute with if it shares its cores with no other.
int usable_cores();

/// Return what a process has as text, and the other way round.
std::string to_text(const Cores& cores);
Cores cores_from(const std::string& text);

}  // namespace convnet
