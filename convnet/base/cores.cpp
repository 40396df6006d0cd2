#include "convnet/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "convnet/base/control_groups.h"

namespace convnet {
namespace {

std::string own_mask() {
  constexpr std::size_t kMostCores = std::size_t{1} << 20;
  // The kernel refuses a set that has no room for all cores that the machine could have.
  for (std::size_t room = CPU_SETSIZE; room <= kMostCores; room *= 2) {
    std::vector<cpu_set_t> sets(room / CPU_SETSIZE);
    const std::size_t bytes = sets.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, sets.data()) != 0) continue;
    std::string mask(room, '0');
    for (std::size_t core = 0; core < room; ++core) {
      if (CPU_ISSET_S(core, bytes, sets.data())) mask[core] = '1';
    }
    return CPU_COUNT_S(bytes, sets.data()) == 0 ? "1" : mask;
  }
  return "1";
}

/// Returns the quota of the group in `folder`, in cores; nullopt if it has none, or does not exist.
std::optional<double> quota_in(const std::filesystem::path& folder, int version) {
  double quota = 0, period = 0;  // microseconds of all cores in each period
  if (version == 2) {
    std::ifstream(folder / "cpu.max") >> quota >> period;  // "max 100000" without a quota
  } else {
    std::ifstream(folder / "cpu.cfs_quota_us") >> quota;  // -1 without a quota
    std::ifstream(folder / "cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

bool may_use(const Cores& cores, std::size_t core) {
  return core < cores.mask.size() && cores.mask[core] == '1';
}

bool is_in(const Cores& cores, const std::string& group) {
  return std::any_of(cores.quotas.begin(), cores.quotas.end(),
                     [&](const auto& q) { return q.group == group; });
}

}  // namespace

Cores own_cores(const std::string& root) {
  Cores cores;
  cores.mask = own_mask();
  for (const ControlGroups& groups : control_groups("cpu", root)) {
    for (const auto& folder : groups.folders) {
      if (const auto quota = quota_in(folder, groups.version))
        cores.quotas.push_back({folder.string(), *quota});
    }
  }
  return cores;
}

std::vector<int> shared_cores(const std::vector<Cores>& processes, const std::vector<std::string>& hosts) {
  std::vector<int> shares;
  for (std::size_t p = 0; p < processes.size(); ++p) {
    // Counts the processes of this host, itself among them, of which something is true.
    const auto users = [&](const auto& uses) {
      double count = 0;
      for (std::size_t other = 0; other < processes.size(); ++other)
        count += hosts[other] == hosts[p] && uses(processes[other]) ? 1 : 0;
      return count;
    };
    double share = 0;
    for (std::size_t core = 0; core < processes[p].mask.size(); ++core) {
      if (may_use(processes[p], core)) share += 1 / users([&](const Cores& c) { return may_use(c, core); });
    }
    for (const Cores::Quota& quota : processes[p].quotas)
      share = std::min(share, quota.cores / users([&](const Cores& c) { return is_in(c, quota.group); }));
    shares.push_back(std::max(1, static_cast<int>(share + 1e-6)));
  }
  return shares;
}

int usable_cores() { return shared_cores({own_cores()}, {""})[0]; }

std::string to_text(const Cores& cores) {
  std::ostringstream text;
  text << cores.mask << '\n';
  for (const Cores::Quota& quota : cores.quotas) text << quota.cores << ' ' << quota.group << '\n';
  return text.str();
}

Cores cores_from(const std::string& text) {
  std::istringstream lines(text);
  Cores cores;
  std::getline(lines, cores.mask);
  for (Cores::Quota quota; lines >> quota.cores && std::getline(lines >> std::ws, quota.group);)
    cores.quotas.push_back(quota);
  return cores;
}

}  // namespace convnet
