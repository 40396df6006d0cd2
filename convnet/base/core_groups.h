// Groups of processor cores that are near one another, and the groups that each CPU device computes on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace convnet {

/// Cores that share a last-level cache.
struct CoreGroup {
  int node = 0;            ///< the NUMA node whose memory is nearest
  std::vector<int> cores;  ///< numbers of the kernel, ascending
};

/// Returns the groups of the cores that `mask` has (see Cores::mask), ordered by node and then by their first
/// cores. A core of whose node or cache the kernel says nothing counts as one of node 0 or of its node's
/// first cache. The kernel's files are read below `root`, so that tests can provide their own.
std::vector<CoreGroup> core_groups(const std::string& mask, const std::string& root = "");

/// Returns how many NUMA nodes the groups are in.
int numa_nodes(const std::vector<CoreGroup>& groups);

/// A place says to which cores the threads of a device are bound.
struct CorePlace {
  std::vector<int> cores;  ///< empty: they are not bound
  int node = -1;           ///< the NUMA node of all of the cores; -1: there is no such node
};

/// Returns the place of device `index` of `devices`, to which the cores are divided evenly in the order of
/// the groups. A place consists of whole groups: those in which the device has a share. Threads are not bound
/// if there is only one group, or if a device has a share in all of them.
CorePlace place_of_device(const std::vector<CoreGroup>& groups, int index, int devices);

/// Returns "0-3,16-19".
std::string cores_text(const CorePlace& place);

/// Binds the calling thread, and the threads that it starts from now on, to the cores of `place`. Does
/// nothing if these are not granted any more: places change the speed of a computation, and nothing else.
void bind_thread(const CorePlace& place);

/// Asks that the pages of a new mapping come from the node of `place`. Does nothing if the kernel refuses.
void prefer_node(const CorePlace& place, void* memory, std::size_t bytes);

}  // namespace convnet
