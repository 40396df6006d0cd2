#include "convnet/net/devices.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "convnet/base/core_groups.h"
#include "convnet/base/cores.h"
#include "convnet/base/error.h"
#include "convnet/base/host_threads.h"
#include "convnet/config/text.h"

namespace convnet {

namespace {

/// The cores that each process has, and its host.
struct CoresOfProcesses {
  std::vector<Cores> cores;
  std::vector<std::string> hosts;
};
CoresOfProcesses exchange_cores(Processes& processes) {
  CoresOfProcesses all;
  for (const std::string& text : processes.exchange(to_text(own_cores()))) {
    all.hosts.push_back(processes.host(static_cast<int>(all.cores.size())));
    all.cores.push_back(cores_from(text));
  }
  return all;
}

}  // namespace

int thread_count(int threads) { return threads > 0 ? threads : usable_cores(); }

std::string too_many_threads(const DeviceOptions& options) {
  const bool shares = options.cores > 0;
  const int cores = shares ? options.cores : usable_cores();
  if (options.threads <= cores) return "";
  return fmt::format(
      "warning: --threads {}: {} may use {} core(s); more threads take turns, which is slower than --threads "
      "{}",
      options.threads, shares ? "each process of this host" : "this process", cores, cores);
}

std::string too_few_cores(const DeviceOptions& options, Processes& processes) {
  const CoresOfProcesses all = exchange_cores(processes);
  const std::vector<int> cores = shared_cores(all.cores, all.hosts);
  for (int r = 0; r < processes.count(); ++r) {
    const int devices = options.devices_of_processes.at(static_cast<std::size_t>(r));
    const int own = cores[static_cast<std::size_t>(r)];
    if (own < devices)
      return fmt::format(
          "warning: {} has {} core(s) for {} CPU devices, which take turns; where mpirun binds processes to "
          "cores, --bind-to none lets them use all cores of their host; --gpu lists the devices of each "
          "process",
          processes.name(r), own, devices);
  }
  return "";
}

namespace {

/// Returns the place of a process among those of its host. Throws InputError if these have no neighbouring
/// ranks: gpu= lines count the devices host by host.
int rank_on_host(const Processes& processes) {
  int on_host = 0;
  for (int r = 1; r < processes.count(); ++r) {
    for (int other = 0; other + 1 < r; ++other) {
      if (processes.host(r) == processes.host(other) && processes.host(r) != processes.host(r - 1))
        throw InputError(
            fmt::format("ranks {} and {} are on host {}, but rank {} between them is not; start the "
                        "processes host by host (mpirun --map-by slot)",
                        other, r, processes.host(r), r - 1));
    }
  }
  for (int r = 0; r < processes.rank(); ++r)
    on_host += processes.host(r) == processes.host(processes.rank()) ? 1 : 0;
  return on_host;
}

/// Returns "0,1,2" for 3 devices.
std::string list_to(int devices) {
  std::string list = "0";
  for (int id = 1; id < devices; ++id) list += "," + std::to_string(id);
  return list;
}

/// Replaces what --gpu says by a list of single numbers.
DeviceOptions with_own_devices(DeviceOptions options, int local) {
  if (options.gpu == "local") options.gpu = std::to_string(local);
  if (options.gpu != "all" && options.gpu != "auto") {
    options.gpu = number_list(options.gpus());
    return options;
  }
  std::string reason;
  const int gpus = options.device == DeviceKind::cpu ? 0 : cuda_devices(reason);
  const int threads = thread_count(options.threads);
  if (gpus > 0)
    options.gpu = list_to(gpus);
  else if (options.gpu == "all")
    options.gpu = list_to(threads);
  else
    options.gpu = list_to(std::clamp(numa_nodes(core_groups(own_cores().mask)), 1, threads));
  return options;
}

int sum(const std::vector<int>& counts) { return std::accumulate(counts.begin(), counts.end(), 0); }

int largest(const std::vector<int>& counts) { return *std::max_element(counts.begin(), counts.end()); }

/// Returns the value of --hosts: "8x4", or "4,4,2" where hosts differ.
std::string hosts_text(const std::vector<int>& devices_of_hosts) {
  if (largest(devices_of_hosts) * static_cast<int>(devices_of_hosts.size()) > sum(devices_of_hosts))
    return fmt::format("{}", fmt::join(devices_of_hosts, ","));
  return fmt::format("{}x{}", devices_of_hosts.size(), devices_of_hosts[0]);
}

/// Returns "--hosts 8x4 needs 32 devices, host by host, but --gpu lists 3".
std::string wrong_list(const DeviceOptions& options) {
  return fmt::format("--hosts {} needs {} devices, host by host, but --gpu lists {}",
                     hosts_text(options.devices_of_hosts), sum(options.devices_of_hosts),
                     options.gpus().size());
}

/// Lists the devices of every host where --gpu lists those of the largest; its default stands for the first
/// devices.
DeviceOptions with_hosts(DeviceOptions options) {
  if (options.devices_of_hosts.empty()) return options;
  const int most = largest(options.devices_of_hosts);
  if (options.gpu == "0") options.gpu = list_to(most);
  const std::vector<int> listed = options.gpus();
  if (std::ssize(listed) == sum(options.devices_of_hosts)) return options;
  if (std::ssize(listed) != most)
    throw InputError(fmt::format("{}; type --gpu {} for a host's devices, which then stand for those of each",
                                 wrong_list(options), list_to(most)));
  std::vector<int> all;
  for (const int devices : options.devices_of_hosts)
    all.insert(all.end(), listed.begin(), listed.begin() + devices);
  options.gpu = number_list(all);
  return options;
}

/// Checks that --hosts counts the devices of all processes, and that each process is on one host.
void check_hosts(const DeviceOptions& options) {
  if (options.devices_of_hosts.empty()) return;
  if (sum(options.devices_of_hosts) != sum(options.devices_of_processes))
    throw InputError(wrong_list(options) + " over all processes");
  auto host = options.devices_of_hosts.begin();
  int room = *host;
  for (std::size_t r = 0; r < options.devices_of_processes.size(); ++r) {
    if (room == 0) room = *++host;
    room -= options.devices_of_processes[r];
    if (room < 0)
      throw InputError(fmt::format(
          "rank {} has {} devices, but by --hosts {} they are on several hosts; a process may have "
          "devices of one host only, at most {}",
          r, options.devices_of_processes[r], hosts_text(options.devices_of_hosts), *host));
  }
}

/// Counts the devices of the hosts that the processes are on; empty for a single host.
std::vector<int> devices_of_hosts(const Processes& processes, const DeviceOptions& options) {
  std::vector<int> counts;
  for (int r = 0; r < processes.count(); ++r) {
    if (r == 0 || processes.host(r) != processes.host(r - 1)) counts.push_back(0);
    counts.back() += options.devices_of_processes[static_cast<std::size_t>(r)];
  }
  if (counts.size() == 1) counts.clear();
  return counts;
}

}  // namespace

void check_distinct_gpus(const OptionTexts& given, const DeviceOptions& devices) {
  if (!given.contains("gpu") || DeviceOptions::is_word(devices.gpu)) return;
  const std::vector<int> ids = devices.gpus();
  const std::vector<int>& hosts = devices.devices_of_hosts;
  // A list for all hosts has the devices of one after those of the other.
  const bool of_all_hosts = !hosts.empty() && sum(hosts) == static_cast<int>(ids.size());
  auto first = ids.begin();
  for (const int of_host : of_all_hosts ? hosts : std::vector<int>{static_cast<int>(ids.size())}) {
    const auto end = first + of_host;
    for (auto here = first; here != end; ++here) {
      if (std::find(first, here, *here) != here)
        throw InputError(fmt::format("--gpu {} lists device {} twice{}; each device may be listed once",
                                     devices.gpu, *here, of_all_hosts ? " for one host" : ""));
    }
    first = end;
  }
}

DeviceOptions with_devices(DeviceOptions options, Processes* processes) {
  if (processes == nullptr) return with_hosts(with_own_devices(std::move(options), 0));
  options = with_own_devices(std::move(options), rank_on_host(*processes));
  const std::vector<std::string> lists = processes->exchange(options.gpu);
  options.gpu = join(lists, ",");
  for (const std::string& list : lists)
    options.devices_of_processes.push_back(static_cast<int>(split_list(list).size()));
  if (options.devices_of_hosts.empty()) options.devices_of_hosts = devices_of_hosts(*processes, options);
  check_hosts(options);
  const CoresOfProcesses all = exchange_cores(*processes);
  const auto own = static_cast<std::size_t>(processes->rank());
  options.cores = shared_cores(all.cores, all.hosts)[own];
  if (options.threads == 0) options.threads = options.cores;
  options.devices_on_cores = options.devices_before = 0;
  for (std::size_t r = 0; r < all.cores.size(); ++r) {
    if (all.hosts[r] != all.hosts[own] || all.cores[r].mask != all.cores[own].mask) continue;
    options.devices_on_cores += options.devices_of_processes[r];
    if (r < own) options.devices_before += options.devices_of_processes[r];
  }
  return options;
}

DeviceOptions in_processes(DeviceOptions options, int processes) {
  if (processes == 1) return options;
  const int devices = static_cast<int>(options.gpus().size());
  if (devices % processes != 0)
    throw InputError(fmt::format(
        "--processes {} cannot have as many of the {} devices of --gpu each; list a multiple of {} "
        "devices",
        processes, devices, processes));
  options.devices_of_processes.assign(static_cast<std::size_t>(processes), devices / processes);
  check_hosts(options);
  return options;
}

namespace {

Precision cpu_precision(const DeviceOptions& options) {
  const Precision precision = options.precision.value_or(Precision::fp32);
  if (precision == Precision::tf32)
    throw InputError("--precision tf32 needs a GPU; CPU devices compute in fp32 or bf16");
  return precision;
}

Precision gpu_precision(const DeviceOptions& options) { return options.precision.value_or(Precision::tf32); }

bool plans_for_gpus(const DeviceOptions& options) {
  std::string reason;
  return options.device == DeviceKind::cuda ||
         (options.device == DeviceKind::automatic && cuda_devices(reason) > 0);
}

}  // namespace

int threads_of_each(const DeviceOptions& options, int devices) {
  return std::clamp(thread_count(options.threads) / devices, 1, omp_get_thread_limit());
}

int used_here(const Topology& topology, int used, int rank) {
  int here = 0;
  for (const DeviceId device : IdRange<DeviceId>(used)) here += topology.process(device) == rank ? 1 : 0;
  return std::max(1, here);
}

Precision precision_of(const DeviceOptions& options) {
  return plans_for_gpus(options) ? gpu_precision(options) : cpu_precision(options);
}

std::unique_ptr<const Target> make_target(const DeviceOptions& options, int devices) {
  if (plans_for_gpus(options)) return make_cuda_target(gpu_precision(options));
  return make_cpu_target(threads_of_each(options, devices), cpu_precision(options));
}

std::vector<CorePlace> core_places(const DeviceOptions& options, int devices) {
  std::vector<CorePlace> places(static_cast<std::size_t>(devices));
  const int on_cores = std::max(options.devices_on_cores, devices);
  if (on_cores == 1) return places;  // one device is not bound, and the kernel need not be asked
  const std::vector<CoreGroup> groups = core_groups(own_cores().mask);
  for (int i = 0; i < devices; ++i)
    places[static_cast<std::size_t>(i)] = place_of_device(groups, options.devices_before + i, on_cores);
  return places;
}

std::unique_ptr<Backend> make_backend(const DeviceOptions& options, int used, const Processes* processes) {
  const int rank = processes == nullptr ? 0 : processes->rank();
  const int devices = used_here(options.topology(), used, rank);
  std::string reason;
  const int gpus = options.device == DeviceKind::cpu ? 0 : cuda_devices(reason);
  if (options.device == DeviceKind::cuda && gpus == 0)
    throw DeviceError("--device cuda: " + reason + "; use --device cpu");
  if (gpus == 0) {
    const Precision precision = cpu_precision(options);
    const int each = threads_of_each(options, devices);
    // The devices have threads, this thread has a team, and one more loads data.
    check_threads(devices * each + each + 1);
    const std::vector<int> ids = options.gpus_of(rank);
    const std::vector<CorePlace> places = core_places(options, devices);
    std::map<int, CorePlace> place_of;
    for (std::size_t i = 0; i < std::min(ids.size(), places.size()); ++i) place_of[ids[i]] = places[i];
    return make_cpu_backend(each, precision, std::move(place_of));
  }
  for (const int id : options.gpus_of(rank)) {
    if (id >= gpus)
      throw DeviceError("--gpu lists GPU " + std::to_string(id) + ", but this machine has " +
                        std::to_string(gpus) +
                        (gpus == 1 ? ", number 0" : ", numbers 0 to " + std::to_string(gpus - 1)));
  }
  return make_cuda_backend(gpu_precision(options));
}

std::string slow_precision(const Backend& backend) {
  if (backend.target().name() != "cpu" || backend.target().precision() != "bf16" || cpu_multiplies_bf16())
    return "";
  return "--precision bf16 is no faster here than fp32, because this processor has no instructions for it "
         "(avx512_bf16); activations take half the memory";
}

}  // namespace convnet
