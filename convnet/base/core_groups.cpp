#include "convnet/base/core_groups.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

namespace convnet {
namespace {

/// Linux has no more cores, and no more nodes.
constexpr int kCoreLimit = 1 << 16, kNodeLimit = 1 << 10;
/// Fewer cores than these, which share a cache, are no group: second-level caches have one or two.
constexpr std::ptrdiff_t kFewCores = 4;

/// Returns the numbers of a list of the kernel, like "0-3,8"; those before the first mistake.
std::vector<int> kernel_list(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<int> numbers;
  for (int first = 0; in >> first; in.ignore()) {
    int last = first;
    if (in.peek() == '-') {
      in.ignore();
      if (!(in >> last)) break;
    }
    if (first < 0 || last < first || last >= kCoreLimit) break;
    for (int i = first; i <= last; ++i) numbers.push_back(i);
  }
  return numbers;
}

/// Returns the cores that share the last-level cache of `core`; none if they are few.
std::vector<int> sharing_cache(const std::filesystem::path& system, int core) {
  std::vector<int> sharing = {core};
  int highest = 0;
  for (int index = 0; index < 8; ++index) {
    const auto cache =
        system / "cpu" / ("cpu" + std::to_string(core)) / "cache" / ("index" + std::to_string(index));
    int level = 0;
    if (!(std::ifstream(cache / "level") >> level) || level <= highest) continue;
    highest = level;
    sharing = kernel_list(cache / "shared_cpu_list");
  }
  if (std::ssize(sharing) < kFewCores) sharing.clear();
  return sharing;
}

}  // namespace

std::vector<CoreGroup> core_groups(const std::string& mask, const std::string& root) {
  const std::filesystem::path system = root + "/sys/devices/system";
  std::map<int, int> node_of, cache_of;  // the first core with a cache stands for it
  for (const int node : kernel_list(system / "node" / "online"))
    for (const int core : kernel_list(system / "node" / ("node" + std::to_string(node)) / "cpulist"))
      node_of.emplace(core, node);
  std::map<std::pair<int, int>, CoreGroup> groups;  // by node and cache
  for (int core = 0; core < std::min(kCoreLimit, static_cast<int>(mask.size())); ++core) {
    if (mask[static_cast<std::size_t>(core)] != '1') continue;
    if (!cache_of.contains(core))
      for (const int other : sharing_cache(system, core)) cache_of.emplace(other, core);
    const int node = node_of[core];
    CoreGroup& group = groups[{node, cache_of.contains(core) ? cache_of[core] : -1}];
    group.node = node;
    group.cores.push_back(core);
  }
  std::vector<CoreGroup> ordered;
  for (auto& [key, group] : groups) ordered.push_back(std::move(group));
  return ordered;
}

int numa_nodes(const std::vector<CoreGroup>& groups) {
  int nodes = 0;
  for (std::size_t i = 0; i < groups.size(); ++i)
    nodes += i == 0 || groups[i].node != groups[i - 1].node ? 1 : 0;
  return nodes;
}

CorePlace place_of_device(const std::vector<CoreGroup>& groups, int index, int devices) {
  std::int64_t all = 0;
  for (const CoreGroup& group : groups) all += std::ssize(group.cores);
  // The device has cores [begin, end) in the order of the groups, or a part of one.
  const std::int64_t begin = all * index / devices, end = std::max(begin + 1, all * (index + 1) / devices);
  CorePlace place;
  std::int64_t first = 0;
  std::size_t used = 0;
  for (const CoreGroup& group : groups) {
    const std::int64_t last = first + std::ssize(group.cores);
    if (begin < last && first < end) {
      place.node = used == 0 || place.node == group.node ? group.node : -1;
      place.cores.insert(place.cores.end(), group.cores.begin(), group.cores.end());
      ++used;
    }
    first = last;
  }
  return used == groups.size() ? CorePlace() : place;
}

std::string cores_text(const CorePlace& place) {
  std::vector<int> cores = place.cores;
  std::sort(cores.begin(), cores.end());
  std::string text;
  for (auto first = cores.begin(); first != cores.end();) {
    const auto last = std::adjacent_find(first, cores.end(), [](int a, int b) { return b != a + 1; });
    const auto end = last == cores.end() ? last : last + 1;
    text += (text.empty() ? "" : ",") + std::to_string(*first);
    if (end - first > 1) text += "-" + std::to_string(*(end - 1));
    first = end;
  }
  return text;
}

void bind_thread(const CorePlace& place) {
  if (place.cores.empty()) return;
  const std::size_t room =
      static_cast<std::size_t>(*std::max_element(place.cores.begin(), place.cores.end())) + 1;
  std::vector<cpu_set_t> sets((room + CPU_SETSIZE - 1) / CPU_SETSIZE);
  const std::size_t bytes = sets.size() * sizeof(cpu_set_t);
  for (const int core : place.cores) CPU_SET_S(static_cast<std::size_t>(core), bytes, sets.data());
  sched_setaffinity(0, bytes, sets.data());
}

void prefer_node(const CorePlace& place, void* memory, std::size_t bytes) {
  if (place.node < 0 || place.node >= kNodeLimit) return;
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, kNodeLimit / kBits> nodes = {};
  nodes[static_cast<std::size_t>(place.node) / kBits] = 1UL << (static_cast<std::size_t>(place.node) % kBits);
  // The C library has no function for this system call. Its number of bits counts one more than there are.
  syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, nodes.data(), kNodeLimit + 1, 0);
}

}  // namespace convnet
