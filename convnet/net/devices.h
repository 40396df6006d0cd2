// The devices of a run: those that --gpu lists, the cores they use, and their backend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convnet/base/core_groups.h"
#include "convnet/net/options.h"
#include "convnet/plan/topology.h"
#include "convnet/runtime/processes.h"
#include "kernels/backend.h"

namespace convnet {

/// Returns the number of cores that --threads asks for; 0 means all that this process may use.
int thread_count(int threads);
/// Returns the number of threads of each of `devices` CPU devices, which share out those that thread_count()
/// counts: at least 1, and no more than the environment variable OMP_THREAD_LIMIT allows.
int threads_of_each(const DeviceOptions& options, int devices);
/// Returns a warning if --threads asks for more cores than this process may use, else "". with_devices() must
/// have set the cores of a process of several.
std::string too_many_threads(const DeviceOptions& options);

/// Returns a warning if a process has fewer cores than CPU devices, else "". All processes call it together.
std::string too_few_cores(const DeviceOptions& options, Processes& processes);

/// Throws InputError if --gpu, given in this invocation, lists a device of a host twice. `devices` are the
/// options before with_devices().
void check_distinct_gpus(const OptionTexts& given, const DeviceOptions& devices);

/// Returns the options with --gpu all replaced by the list of this machine's devices (its GPUs, or a CPU
/// device for each core), --gpu auto by its GPUs or a CPU device for each NUMA node, --gpu local by the
/// device of this process, and ranges by their numbers. In a run of several processes (else `processes` is
/// null) all call it together, and it lists the devices of all of them. Without several processes, a list of
/// one host's devices becomes that of all --hosts. Throws InputError if the processes of a host do not have
/// neighbouring ranks, or if --hosts counts other devices.
DeviceOptions with_devices(DeviceOptions options, Processes* processes = nullptr);
/// Returns the options of a run of so many processes with the same number of devices each, of those that
/// with_devices() has listed. Throws InputError if they cannot be divided so, or if a process would have
/// devices of several --hosts.
DeviceOptions in_processes(DeviceOptions options, int processes);
/// Returns how many of the first `used` devices the process `rank` has; at least 1.
int used_here(const Topology& topology, int used, int rank);
/// Returns to which cores the first `devices` CPU devices of this process are bound.
std::vector<CorePlace> core_places(const DeviceOptions& options, int devices);
/// Makes the backend that --device names for those of the first `used` devices that this process has (all of
/// them if `processes` is null). CPU devices share out the cores, and are bound to those that share a NUMA
/// node or a last-level cache where the machine has several. Throws DeviceError if the backend or a GPU that
/// --gpu lists does not exist, or if this process may not start the threads, and InputError if the devices
/// cannot compute with --precision.
std::unique_ptr<Backend> make_backend(const DeviceOptions& options, int used,
                                      const Processes* processes = nullptr);
/// Makes the target that --device names, for plans. A target of GPUs needs no GPU; --device auto means GPUs
/// if make_backend() would use them. `devices` CPU devices share out the cores. Throws InputError if the
/// devices cannot compute with --precision.
std::unique_ptr<const Target> make_target(const DeviceOptions& options, int devices);
/// Returns the precision in which the devices of make_target() compute. Throws InputError if they cannot
/// compute with --precision.
Precision precision_of(const DeviceOptions& options);
/// Returns a line that says so if the precision of `backend` saves memory on its devices, but no time; else
/// "".
std::string slow_precision(const Backend& backend);

}  // namespace convnet
