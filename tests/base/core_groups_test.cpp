// Cores that share a NUMA node or a cache, as files like the kernel's state them.
#include "convnet/base/core_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "convnet/base/cores.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

using Numbers = std::vector<int>;

/// A folder with the kernel's files in it.
class CoresMachine {
 public:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path(root_ / ("sys/devices/system/" + name));
    std::filesystem::create_directories(path.parent_path());
    write_file(path.string(), text);
  }
  void add_caches(int core, const std::string& second, const std::string& third) const {
    const std::string caches = "cpu/cpu" + std::to_string(core) + "/cache/";
    write(caches + "index0/level", "1\n");
    write(caches + "index0/shared_cpu_list", std::to_string(core) + "\n");
    write(caches + "index2/level", "2\n");
    write(caches + "index2/shared_cpu_list", second + "\n");
    if (third.empty()) return;
    write(caches + "index3/level", "3\n");
    write(caches + "index3/shared_cpu_list", third + "\n");
  }
  std::vector<CoreGroup> groups(const std::string& mask) const { return core_groups(mask, root_.path()); }

 private:
  TempFolder root_;
};

/// Two nodes of two caches of four cores; each core has two threads, i and i + 16.
void write_two_nodes(const CoresMachine& machine) {
  machine.write("node/online", "0-1\n");
  machine.write("node/node0/cpulist", "0-7,16-23\n");
  machine.write("node/node1/cpulist", "8-15,24-31\n");
  for (int core = 0; core < 32; ++core) {
    const int first = core % 16 / 4 * 4;
    const std::string own = std::to_string(core % 16) + "," + std::to_string(core % 16 + 16);
    machine.add_caches(core, own, fmt::format("{}-{},{}-{}", first, first + 3, first + 16, first + 19));
  }
}

}  // namespace

TEST_CASE("cores are grouped by NUMA nodes and last-level caches", "[core groups]") {
  const CoresMachine machine;
  write_two_nodes(machine);
  const std::vector<CoreGroup> groups = machine.groups(std::string(32, '1'));
  REQUIRE(groups.size() == 4);
  CHECK(numa_nodes(groups) == 2);
  CHECK(groups[0].cores == Numbers{0, 1, 2, 3, 16, 17, 18, 19});
  CHECK(groups[1].cores == Numbers{4, 5, 6, 7, 20, 21, 22, 23});
  CHECK(groups[1].node == 0);
  CHECK(groups[2].cores == Numbers{8, 9, 10, 11, 24, 25, 26, 27});
  CHECK(groups[3].node == 1);
}

TEST_CASE("only cores that the process may use count", "[core groups]") {
  const CoresMachine machine;
  write_two_nodes(machine);
  const std::vector<CoreGroup> groups = machine.groups("0011000000001");
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].cores == Numbers{2, 3});
  CHECK(groups[1].cores == Numbers{12});
  CHECK(groups[1].node == 1);
  CHECK(machine.groups("").empty());
}

TEST_CASE("cores of which the kernel says nothing, or nonsense, are one group", "[core groups]") {
  const CoresMachine machine;
  const std::string mask(8, '1');
  const auto one_group = [&] {
    const std::vector<CoreGroup> groups = machine.groups(mask);
    return groups.size() == 1 && groups[0].cores.size() == 8 && numa_nodes(groups) == 1;
  };
  CHECK(one_group());
  for (const char* const list :
       {"", "x", "-1", "3-1", "0-", "0-99999999", "99999999999999999999", "0--1", "1,,2"}) {
    INFO(list);
    machine.write("node/online", list);
    machine.write("cpu/cpu0/cache/index3/level", "3");
    machine.write("cpu/cpu0/cache/index3/shared_cpu_list", list);
    CHECK(one_group());
  }
  machine.write("cpu/cpu0/cache/index3/level", "three");
  CHECK(one_group());
}

TEST_CASE("a second-level cache of each core makes no groups", "[core groups]") {
  const CoresMachine machine;
  for (int core = 0; core < 8; ++core) machine.add_caches(core, std::to_string(core), "");
  CHECK(machine.groups("11111111").size() == 1);
  for (int core = 0; core < 8; ++core) machine.add_caches(core, core < 4 ? "0-3" : "4-7", "");
  CHECK(machine.groups("11111111").size() == 2);
}

TEST_CASE("devices are bound to the groups in which they have a share", "[core groups]") {
  const CoresMachine machine;
  write_two_nodes(machine);
  const std::vector<CoreGroup> groups = machine.groups(std::string(32, '1'));
  const auto places = [&](int devices) {
    std::vector<CorePlace> all;
    for (int i = 0; i < devices; ++i) all.push_back(place_of_device(groups, i, devices));
    return all;
  };
  CHECK(places(1)[0].cores.empty());
  CHECK(places(1)[0].node == -1);
  for (int i = 0; i < 2; ++i) {
    CHECK(places(2)[static_cast<std::size_t>(i)].cores.size() == 16);
    CHECK(places(2)[static_cast<std::size_t>(i)].node == i);
  }
  for (int i = 0; i < 4; ++i)
    CHECK(places(4)[static_cast<std::size_t>(i)].cores == groups[static_cast<std::size_t>(i)].cores);
  // Of three devices the second has cores of both nodes.
  CHECK(places(3)[0].node == 0);
  CHECK(places(3)[1].node == -1);
  CHECK(places(3)[1].cores.size() == 16);
  CHECK(places(3)[2].node == 1);
  for (int i = 0; i < 64; ++i)
    CHECK(places(64)[static_cast<std::size_t>(i)].cores == groups[static_cast<std::size_t>(i / 16)].cores);
  CHECK(place_of_device({groups[0]}, 0, 2).cores.empty());
  CHECK(place_of_device({}, 0, 2).cores.empty());
}

TEST_CASE("cores of a place are written as the kernel lists them", "[core groups]") {
  CHECK(cores_text({{}, -1}).empty());
  CHECK(cores_text({{3}, 0}) == "3");
  CHECK(cores_text({{0, 1, 2, 3, 16, 17, 18, 19}, 0}) == "0-3,16-19");
  CHECK(cores_text({{8, 9, 0, 5}, 0}) == "0,5,8-9");
}

TEST_CASE("a thread and those that it starts are bound to a place", "[core groups]") {
  const std::string mask = own_cores().mask;
  const auto core = static_cast<int>(mask.find('1'));
  const auto own_core = [] {
    const std::string own = own_cores().mask;
    return std::count(own.begin(), own.end(), '1') == 1 ? static_cast<int>(own.find('1')) : -1;
  };
  int bound = -1, started = -1, unbound = -1;
  std::thread([&] {
    bind_thread({{core}, 0});
    bound = own_core();
    std::thread([&] { started = own_core(); }).join();
    bind_thread({{}, -1});
    unbound = own_core();
  }).join();
  CHECK(bound == core);
  CHECK(started == core);
  CHECK(unbound == core);
  CHECK(own_cores().mask == mask);
}

TEST_CASE("threads stay where they may be if a place is not granted", "[core groups]") {
  std::string before, after;
  std::thread([&] {
    before = own_cores().mask;
    bind_thread({{65535}, 0});
    after = own_cores().mask;
  }).join();
  CHECK(before == after);
}
