// Simulates routes on random machines, and compares them with what no schedule can beat: for each link,
// and for the links of each group of devices, the bytes that must pass it, divided by its bandwidth; and for
// each partition of the machine into devices and groups, the bytes that its parts must send together.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "convnet/plan/exchange.h"
#include "convnet/plan/links.h"
#include "convnet/plan/order.h"
#include "convnet/plan/routes.h"
#include "convnet/plan/simulate.h"

namespace convnet {
namespace {

struct Machine {
  int devices = 0;
  DeviceModel model;
};

/// Returns a machine of 2 to 32 devices: with one speed of links or several, with no switches, or with one or
/// two levels of them, of equal or of different sizes.
Machine random_machine(std::mt19937& lot, bool equal_links) {
  const auto number = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(lot);
  };
  const auto real = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(lot);
  };
  Machine machine;
  machine.devices = number(2, 32);
  DeviceModel& model = machine.model;
  const std::vector<double> rates = {6e9, 12e9, 25e9, 50e9, 150e9};
  const double link = rates[static_cast<std::size_t>(number(0, 4))];
  model.link_bandwidth.clear();
  for (int d = 0; d < machine.devices; ++d)
    model.link_bandwidth.push_back(equal_links ? link : link * real(0.5, 1));
  model.link_latency = real(1e-6, 1e-5);
  model.memory_bandwidth = 100 * link;
  model.host_bandwidth = link;
  model.flops.fp32 = 1e15;
  model.task_overhead = 1e-6;
  const int levels = number(0, 2);
  int size = 1;
  for (int l = 0; l < levels; ++l) {
    SwitchLevel level;
    const int factor = number(2, 4);
    size *= factor;
    level.devices = {size};
    level.bandwidth = {link * size * real(0.25, 1)};
    level.latency = model.link_latency * (l + 2);
    if (size < machine.devices) model.switches.push_back(level);
  }
  return machine;
}

Exchange exchange_of(const Machine& machine) {
  std::vector<std::vector<int>> levels;
  Exchange::Rates rates{machine.model.link_bandwidth, {}};
  for (const SwitchLevel& level : machine.model.switches) {
    levels.emplace_back();
    rates.groups.emplace_back();
    for (const DeviceId d : IdRange<DeviceId>(machine.devices)) {
      const int group = level.group(d);
      levels.back().push_back(group);
      if (group == std::ssize(rates.groups.back())) rates.groups.back().push_back(level.bandwidth_of(group));
    }
  }
  return {static_cast<std::size_t>(machine.devices), levels, std::move(rates)};
}

/// Bytes that must enter and leave a set of `inside` of all devices; `root` says whether it contains the
/// root.
struct Crossing {
  double in = 0, out = 0;
};
using Bytes = std::function<Crossing(double inside, double all, bool root)>;

/// A partition of devices into single devices and groups: the number of its parts and the sum of their rates.
struct Partition {
  double parts = 0, rate = 0;
  double excess(double time) const { return parts - time * rate; }
};

/// Partitions the devices from `first` up to `end` so that its excess at `time` is largest. Its parts are
/// devices, or groups of the first `levels` levels.
Partition partition(const DeviceModel& model, std::size_t levels, DeviceId first, DeviceId end, double time) {
  Partition all;
  for (DeviceId d = first, next; d < end; d = next) {
    next = DeviceId(d.value() + 1);
    Partition best{1, model.link_bandwidth_of(d)};
    if (levels > 0) {
      const SwitchLevel& level = model.switches[levels - 1];
      while (next < end && level.group(next) == level.group(d)) next = DeviceId(next.value() + 1);
      best = partition(model, levels - 1, d, next, time);
      const Partition group{1, level.bandwidth_of(level.group(d))};
      if (group.excess(time) > best.excess(time)) best = group;
    }
    all.parts += best.parts;
    all.rate += best.rate;
  }
  return all;
}

/// Returns the seconds that no schedule can beat: the most that the link of a device, or of a group, takes
/// for the bytes that it must carry, and that the parts of any partition take to send `sent` bytes for each
/// part but one.
double bound(const Machine& machine, const Bytes& bytes, double sent) {
  const DeviceModel& model = machine.model;
  double most = 0;
  const auto add = [&](double inside, double rate, bool root) {
    const Crossing crossing = bytes(inside, static_cast<double>(machine.devices), root);
    most = std::max({most, crossing.in / rate, crossing.out / rate});
  };
  for (const DeviceId d : IdRange<DeviceId>(machine.devices))
    add(1, model.link_bandwidth_of(d), d == DeviceId(0));
  for (const SwitchLevel& level : model.switches) {
    std::map<int, double> devices;  // of each group
    for (const DeviceId d : IdRange<DeviceId>(machine.devices)) devices[level.group(d)] += 1;
    for (const auto& [group, inside] : devices) add(inside, level.bandwidth_of(group), group == 0);
  }
  // The partition that is slowest has an excess of 1 at its own time, and no other one has more.
  for (double time = 0, last = -1; time > last;) {
    const Partition slowest =
        partition(model, model.switches.size(), DeviceId(0), DeviceId(machine.devices), time);
    last = std::exchange(time, std::max(time, (slowest.parts - 1) / slowest.rate));
    most = std::max(most, sent * time);
  }
  return most / model.link_efficiency;
}

/// Returns the seconds until a task that reads from the other end of the machine has its first byte, and has
/// ended when it has its last.
double message_delay(const Machine& machine) {
  return machine.model.latency(DeviceId(0), DeviceId(machine.devices - 1)) + machine.model.task_overhead;
}

struct Move {
  std::string name;
  Bytes bytes;
  std::function<Route(const Exchange&, const std::vector<std::vector<BufferId>>&, std::int64_t)> route;
  double sent = 0;   ///< bytes that all devices must send together, for each byte and each device but one
  int messages = 1;  ///< the messages in turn by which a byte gets where it must, if there are many devices
};

std::vector<SharedRange> ranges_of(const Exchange& exchange, std::int64_t bytes, bool weighted) {
  std::vector<int> all(static_cast<std::size_t>(exchange.members()));
  std::iota(all.begin(), all.end(), 0);
  return shared_ranges(exchange, all, bytes, 256, weighted);
}

/// Returns the machines that have only some of the levels of switches: routes that know fewer groups have
/// fewer stages, and pass the links of switches more often.
std::vector<Machine> with_fewer_levels(const Machine& machine) {
  std::vector<Machine> machines;
  const std::vector<SwitchLevel>& levels = machine.model.switches;
  for (std::size_t kept = 0; kept < std::size_t{1} << levels.size(); ++kept) {
    machines.push_back(machine);
    machines.back().model.switches.clear();
    for (std::size_t l = 0; l < levels.size(); ++l) {
      if ((kept >> l & 1) != 0) machines.back().model.switches.push_back(levels[l]);
    }
  }
  return machines;
}

/// Returns the machine with one of its innermost groups divided into devices.
Machine without_group(Machine machine, int divided) {
  const SwitchLevel level = machine.model.switches[0];
  SwitchLevel& finer = machine.model.switches[0];
  finer.devices.clear();
  finer.bandwidth.clear();
  int last = -1;
  for (const DeviceId d : IdRange<DeviceId>(machine.devices)) {
    const int group = level.group(d);
    if (group == last && group != divided) {
      ++finer.devices.back();
    } else {
      finer.devices.push_back(1);
      finer.bandwidth.push_back(group == divided ? machine.model.link_bandwidth_of(d)
                                                 : level.bandwidth_of(group));
    }
    last = group;
  }
  return machine;
}

/// Returns how long the busiest link of a route carries bytes.
double busiest(const Machine& machine, const Plan& plan, const Route& route) {
  std::vector<Transfer> transfers;
  for (const std::vector<RouteStep>& stage : route) {
    for (const RouteStep& step : stage) {
      for (const BufferUse& from : step.from) {
        const DeviceId to = plan.buffers[step.to.buffer].device, source = plan.buffers[from.buffer].device;
        if (source != to) transfers.push_back({to, source, static_cast<double>(from.bytes)});
      }
    }
  }
  return transfer_seconds(machine.model, transfers, machine.devices);
}

double simulated(const Machine& machine, Plan plan, const Route& route, std::int64_t chunks,
                 const Target& target) {
  TaskEmitter emitter(plan, target, Routes::relayed, false);
  emit_route(emitter, {}, route, chunks);
  find_dependencies(plan);
  return simulate(plan, machine.model, Precision::fp32).step;
}

/// Simulates the routes for each choice of groups, the one with the least busy links first, in more and more
/// chunks while that makes them faster, or in fewer and fewer. Returns the least time.
double fastest(const Machine& machine, const Move& move, std::int64_t bytes, const Target& target) {
  Plan plan;
  std::vector<std::vector<BufferId>> buffers(2);
  for (auto& set : buffers) {
    for (const DeviceId d : IdRange<DeviceId>(machine.devices))
      set.push_back(
          add_buffer(plan.buffers, "", BufferKind::activation, d, {{bytes / 4}, DataType::f32, nullptr}));
  }
  constexpr double kWorthwhile = 0.99;           // of the seconds so far: what a further change must reach
  constexpr std::int64_t kMostChunks = 144;      // more take too long to simulate
  std::vector<std::pair<double, Route>> routes;  // and how long their busiest links carry bytes
  const auto route_of = [&](const Machine& known) {
    Route route = move.route(exchange_of(known), buffers, bytes);
    const double busy = busiest(machine, plan, route);
    return std::pair(busy, std::move(route));
  };
  for (Machine known : with_fewer_levels(machine)) {
    routes.push_back(route_of(known));
    double busy = routes.back().first;
    const double undivided = busy;
    // A group of slow devices that makes its own sum hands bytes on, for which its devices may have no time.
    while (!known.model.switches.empty()) {
      std::pair<double, int> best = {kWorthwhile * busy, -1};
      const int groups = known.model.switches[0].group(DeviceId(machine.devices - 1)) + 1;
      for (int group = 0; group < groups; ++group)
        best = std::min(best, {route_of(without_group(known, group)).first, group});
      if (best.second < 0) break;
      known = without_group(std::move(known), best.second);
      busy = best.first;
    }
    if (busy < undivided) routes.push_back(route_of(known));
  }
  std::stable_sort(routes.begin(), routes.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [busy, route] : routes) {
    if (busy >= least) break;
    const std::int64_t usual =
        route_chunks(bytes, route.size(), message_delay(machine) * machine.model.link_bandwidth[0]);
    double shortest = simulated(machine, plan, route, usual, target);  // seconds
    for (const bool more : {true, false}) {
      const double before = shortest;
      for (std::int64_t chunks = usual;;) {
        chunks = more ? 2 * chunks : chunks / 2;
        if (chunks == 0 || chunks > kMostChunks || (more && route.size() == 1)) break;
        const double seconds = simulated(machine, plan, route, chunks, target);
        const bool faster = seconds < kWorthwhile * shortest;
        shortest = std::min(shortest, seconds);
        if (!faster) break;
      }
      if (shortest < before) break;
    }
    least = std::min(least, shortest);
  }
  return least;
}

void run() {
  // Data that is gathered lies where it was made, in equal parts; sums may be anywhere.
  const auto everywhere = [](const Exchange& exchange, const auto& buffers, std::int64_t bytes,
                             bool weighted) {
    return all_gather_route(exchange, ranges_of(exchange, bytes, weighted), buffers[1]);
  };
  const auto sums = [](const Exchange& exchange, const auto& buffers, std::int64_t bytes, bool weighted) {
    return reduce_scatter_route(exchange, ranges_of(exchange, bytes, weighted), buffers[0], buffers[1]);
  };
  const std::vector<Move> moves = {{"broadcast",
                                    [](double inside, double all, bool root) {
                                      return Crossing{root ? 0.0 : 1.0, root && inside < all ? 1.0 : 0.0};
                                    },
                                    [](const Exchange& exchange, const auto& buffers, std::int64_t bytes) {
                                      return broadcast_route(exchange, buffers[0], 0, bytes);
                                    },
                                    1, 2},
                                   {"all-gather",
                                    [](double inside, double all, bool) {
                                      return Crossing{(all - inside) / all, inside / all};
                                    },
                                    [&](const auto& exchange, const auto& buffers, std::int64_t bytes) {
                                      return everywhere(exchange, buffers, bytes, false);
                                    },
                                    1},
                                   {"reduce-scatter",
                                    [](double inside, double all, bool) {
                                      return Crossing{inside / all, (all - inside) / all};
                                    },
                                    [&](const auto& exchange, const auto& buffers, std::int64_t bytes) {
                                      return sums(exchange, buffers, bytes, false);
                                    },
                                    1},
                                   {"all-reduce",
                                    [](double, double, bool) {
                                      return Crossing{1, 1};
                                    },
                                    [&](const auto& exchange, const auto& buffers, std::int64_t bytes) {
                                      Route route = sums(exchange, buffers, bytes, true);
                                      for (auto& stage : everywhere(exchange, buffers, bytes, true))
                                        route.push_back(std::move(stage));
                                      return route;
                                    },
                                    2, 2}};
  const auto target = make_cuda_target(Precision::fp32);
  for (const bool equal_links : {true, false}) {
    fmt::print(
        "{}\n\n| move | MB | median | 90 % | worst | within 10 % | with latencies |\n"
        "|---|---|---|---|---|---|---|\n",
        equal_links ? "Links of equal speed" : "Links of different speeds");
    for (const Move& move : moves) {
      for (const std::int64_t megabytes : {1, 16, 64, 256}) {
        std::mt19937 lot(1);
        std::vector<double> ratios;
        int with_latencies = 0;
        for (int m = 0; m < 50; ++m) {
          const Machine machine = random_machine(lot, equal_links);
          const std::int64_t bytes = megabytes * 1'000'000;
          const double least = bound(machine, move.bytes, move.sent) * static_cast<double>(bytes);
          const double seconds = fastest(machine, move, bytes, *target);
          ratios.push_back(seconds / least);
          const int messages = machine.devices > 2 ? move.messages : 1;
          with_latencies += seconds <= 1.1 * (least + messages * message_delay(machine)) ? 1 : 0;
        }
        std::sort(ratios.begin(), ratios.end());
        const auto within = std::count_if(ratios.begin(), ratios.end(), [](double r) { return r <= 1.1; });
        fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.2f} | {} of {} | {} of {} |\n", move.name, megabytes,
                   ratios[ratios.size() / 2], ratios[ratios.size() * 9 / 10], ratios.back(), within,
                   ratios.size(), with_latencies, ratios.size());
      }
    }
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace convnet

int main() { convnet::run(); }
