// Plans for several hosts communicate within hosts first.
#include <map>
#include <set>

#include "convnet/plan/hash.h"
#include "convnet/plan/verify.h"
#include "tests/catch.h"
#include "tests/plan/planned_net.h"

using namespace convnet;
using namespace convnet::test;

namespace {

PlannedNet net_on(const std::string& config, const std::vector<int>& devices_of_hosts) {
  int devices = 0;
  for (const int n : devices_of_hosts) devices += n;
  return PlannedNet(config, true, false, devices, Precision::fp32, "cpu", Topology(devices_of_hosts, {}));
}

/// Bytes that go from one host to another.
std::int64_t bytes_between(const Plan& plan, const Topology& hosts) {
  std::int64_t sum = 0;
  for (const Task& task : plan.tasks) {
    for (const auto& [from, bytes] : bytes_fetched(plan, task)) {
      if (from.exists() && hosts.host(from) != hosts.host(task.device)) sum += bytes;
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("every plan of configs is right on several hosts") {
  for (const auto& [config, data] : config_cases()) {
    for (const std::vector<int>& hosts : {std::vector<int>{2, 2}, {1, 3}, {4, 4}, {3, 2, 1}}) {
      PlannedNet net = net_on(config, hosts);
      for (const std::int64_t images : {16, 9, 3}) {
        for (const Phase phase : {Phase::train, Phase::test}) {
          INFO(config << " on " << hosts.size() << " hosts, " << images << " images");
          CHECK_NOTHROW(verify(net.plan(phase, images), net.graph));
        }
      }
    }
  }
}

TEST_CASE("with two hosts of four, a fourth of the bytes goes between them") {
  const Topology hosts({4, 4}, {});
  for (const std::string config : {"lenet", "alexnet-owt", "resnet18-imagenet"}) {
    INFO(config);
    PlannedNet flat(config, true, false, 8), by_host = net_on(config, {4, 4});
    const auto before = static_cast<double>(bytes_between(flat.plan(Phase::train, 64), hosts));
    const auto after = static_cast<double>(bytes_between(by_host.plan(Phase::train, 64), hosts));
    CHECK(before / after > 3.9);
    CHECK(before / after < 4.1);
  }
}

TEST_CASE("the step of a shard adds up a sum for each host") {
  const std::vector<int> hosts = {2, 3, 3};
  PlannedNet net = net_on("lenet", hosts);
  const Plan& plan = net.plan(Phase::train, 64);
  int parts = 0, own = 0;
  for (const Task& task : plan.tasks) {
    if (const auto* sums = std::get_if<SumRuns>(&*task.op)) {
      CHECK(task.kind == TaskKind::reduce);
      const int devices = hosts[static_cast<std::size_t>(plan.topology.host(task.device))];
      for (const SumRuns::Run& run : sums->runs) CHECK(run.sources == devices);
      for (const BufferUse& use : task.uses)
        CHECK(plan.topology.host(plan.buffers[use.buffer].device) == plan.topology.host(task.device));
    }
    const auto* update = std::get_if<Update>(&*task.op);
    if (update == nullptr) continue;
    std::size_t use = 0;
    for (const Update::Part& part : update->parts) {
      REQUIRE(part.gradients == 3);
      for (int host = 0; host < 3; ++host) {
        const DeviceId from = plan.buffers[task.uses[use + 2 + static_cast<std::size_t>(host)].buffer].device;
        CHECK(plan.topology.host(from) == host);
        own += from == task.device ? 1 : 0;
      }
      use += static_cast<std::size_t>(part.arguments());
      ++parts;
    }
  }
  CHECK(parts > 8);
  CHECK(own == parts);
}

TEST_CASE("a host whose other devices have no images gives its gradient itself") {
  PlannedNet net = net_on("lenet", {2, 2});
  int sums_seen = 0;
  for (const Task& task : net.plan(Phase::train, 3).tasks) {
    const auto* sums = std::get_if<SumRuns>(&*task.op);
    if (sums == nullptr) continue;
    ++sums_seen;
    CHECK(net.plan(Phase::train, 3).topology.host(task.device) == 0);
  }
  CHECK(sums_seen > 0);
}

TEST_CASE("plans of hosts with a device each are those of one host") {
  for (const std::string config : {"lenet", "wrn-16-4"}) {
    PlannedNet flat(config, true, false, 4), single = net_on(config, {1, 1, 1, 1}), one = net_on(config, {4});
    for (const Phase phase : {Phase::train, Phase::test}) {
      const std::uint64_t expected = plan_hash(flat.plan(phase, 16));
      CHECK(plan_hash(single.plan(phase, 16)) == expected);
      CHECK(plan_hash(one.plan(phase, 16)) == expected);
      if (phase == Phase::train) CHECK(plan_hash(net_on(config, {2, 2}).plan(phase, 16)) != expected);
    }
  }
}

TEST_CASE("hosts with a device each tell each other of costs that are not finite in 2 (N - 1) messages") {
  // Few hosts all read from each other.
  for (const auto& [hosts, of_a_pass] : {std::pair{2, 2}, {4, 12}, {5, 8}, {8, 14}, {16, 30}, {17, 32}}) {
    INFO(hosts << " hosts");
    const std::vector<int> each(static_cast<std::size_t>(hosts), 1);
    PlannedNet net("lenet", true, false, hosts, Precision::fp32, "cpu", Topology(each, each));
    const Plan& plan = net.plan(Phase::train, 2 * hosts);
    CHECK_NOTHROW(verify(plan, net.graph));
    int messages = 0;
    for (const Task& task : plan.tasks) {
      if (task.kind != TaskKind::send) continue;
      const std::string& name = plan.buffers[task.uses[0].buffer].name;
      messages += name == "costs" || name == "non_finite" ? 1 : 0;
    }
    CHECK(messages == of_a_pass);
    // Every update reads a flag that stands for all devices.
    std::map<BufferId, std::set<DeviceId>> knows;
    for (const DeviceId device : net.plans->device_ids()) knows[net.plans->costs_buffer(device)] = {device};
    for (const TaskId t : plan.tasks.ids()) {
      const Task& task = plan.tasks[t];
      if (task.kind == TaskKind::receive) {
        const Task& sender = plan.tasks[task.partner];
        for (std::size_t k = 0; k < task.uses.size(); ++k)
          if (knows.contains(sender.uses[k].buffer))
            knows[task.uses[k].buffer] = knows[sender.uses[k].buffer];
      }
      if (std::holds_alternative<AnyNonFinite>(*task.op) && !is_message(task.kind)) {
        std::set<DeviceId> all;
        for (std::size_t k = 0; k + 1 < task.uses.size(); ++k)
          all.merge(std::set(knows.at(task.uses[k].buffer)));
        knows[task.uses.back().buffer] = all;
      }
      if (!std::holds_alternative<Update>(*task.op) || is_message(task.kind)) continue;
      CHECK(std::ssize(knows.at(task.uses[task.uses.size() - 2].buffer)) == hosts);
    }
  }
}

TEST_CASE("statistics of bnorm have their dims on every device, however many buffers a plan has") {
  for (const int devices : {17, 20, 23, 26, 29, 32, 40, 48}) {
    INFO(devices << " devices");
    PlannedNet net("wrn-16-4", true, false, devices);
    const Plan& plan = net.plan(Phase::train, 4 * devices);
    CHECK_NOTHROW(verify(plan, net.graph));
    int copies = 0;
    for (const Task& task : plan.tasks) {
      if (task.kind != TaskKind::copy) continue;
      const TensorDesc& from = plan.buffers[task.uses[0].buffer].desc;
      const TensorDesc& to = plan.buffers[task.uses[1].buffer].desc;
      CHECK(to.dims == from.dims);
      CHECK(to.type == from.type);
      ++copies;
    }
    CHECK(copies > 10 * devices);
  }
}
