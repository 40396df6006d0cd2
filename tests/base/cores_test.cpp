// The cores of a process, as files like the kernel's state them.
#include "convnet/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

/// A folder with the kernel's files in it.
class GrantedMachine {
 public:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path(root_ / name);
    std::filesystem::create_directories(path.parent_path());
    write_file(path.string(), text);
  }
  /// Returns the threads of a process that may use eight cores of this machine.
  int threads() const { return shared_cores({eight_cores()}, {"here"})[0]; }
  Cores eight_cores() const {
    Cores cores = own_cores(root_.path());
    cores.mask = "11111111";
    return cores;
  }

 private:
  TempFolder root_;
};

}  // namespace

TEST_CASE("a quota of control groups of version 2 counts, and those of the groups above", "[cores]") {
  const GrantedMachine machine;
  CHECK(machine.threads() == 8);
  machine.write("proc/self/cgroup", "0::/jobs/mine\n");
  CHECK(machine.threads() == 8);
  machine.write("sys/fs/cgroup/jobs/mine/cpu.max", "max 100000\n");
  CHECK(machine.threads() == 8);
  machine.write("sys/fs/cgroup/jobs/mine/cpu.max", "400000 100000\n");
  CHECK(machine.threads() == 4);
  machine.write("sys/fs/cgroup/jobs/cpu.max", "100000 50000\n");
  CHECK(machine.threads() == 2);
  machine.write("sys/fs/cgroup/cpu.max", "100000 100000\n");  // a container's own group is the mounted one
  CHECK(machine.threads() == 1);
  machine.write("sys/fs/cgroup/cpu.max", "20000 100000\n");
  CHECK(machine.threads() == 1);
}

TEST_CASE("a quota of control groups of version 1 counts, also in a container", "[cores]") {
  const GrantedMachine machine;
  machine.write("proc/self/cgroup", "5:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n0::/\n");
  const std::string group = "sys/fs/cgroup/cpu/docker/a/";
  machine.write(group + "cpu.cfs_quota_us", "-1\n");
  machine.write(group + "cpu.cfs_period_us", "100000\n");
  CHECK(machine.threads() == 8);
  machine.write(group + "cpu.cfs_quota_us", "300000\n");
  CHECK(machine.threads() == 3);
  machine.write("sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us", "50000\n");
  machine.write("sys/fs/cgroup/cpu/docker/cpu.cfs_period_us", "25000\n");
  CHECK(machine.threads() == 2);
  // The group's own folder is the mounted one, and its path that outside of the container.
  machine.write("proc/self/cgroup", "4:cpu:/docker/b\n");
  machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  machine.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(machine.threads() == 1);
}

TEST_CASE("processes of a host share its cores and their groups' quotas", "[cores]") {
  const Cores first{"11110000", {}}, second{"00111100", {}};
  CHECK(shared_cores({first, second}, {"a", "a"}) == std::vector<int>{3, 3});
  CHECK(shared_cores({first, second}, {"a", "b"}) == std::vector<int>{4, 4});
  const Cores inner{"11111111", {{"/jobs/1", 2}, {"/jobs", 3}}}, outer{"11111111", {{"/jobs", 3}}};
  CHECK(shared_cores({inner}, {"a"}) == std::vector<int>{2});
  CHECK(shared_cores({inner, outer}, {"a", "a"}) == std::vector<int>{1, 1});
  CHECK(shared_cores({inner, outer}, {"a", "b"}) == std::vector<int>{2, 3});
  CHECK(shared_cores({first, first, first, first, first}, {"a", "a", "a", "a", "a"}) ==
        std::vector<int>(5, 1));
}

TEST_CASE("what a process has is the same after it was text", "[cores]") {
  const Cores cores{"0110", {{"/jobs/a b", 1.5}, {"/jobs", 4}}};
  const Cores read = cores_from(to_text(cores));
  CHECK(read.mask == cores.mask);
  REQUIRE(read.quotas.size() == 2);
  CHECK(read.quotas[0].group == "/jobs/a b");
  CHECK(read.quotas[0].cores == 1.5);
  CHECK(read.quotas[1].group == "/jobs");
  CHECK(cores_from(to_text({"1", {}})).quotas.empty());
}

TEST_CASE("a thread that is bound to one core has one core", "[cores]") {
  std::ptrdiff_t cores = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
    sched_setaffinity(0, sizeof(one), &one);
    const std::string mask = own_cores().mask;
    cores = std::count(mask.begin(), mask.end(), '1');
  }).join();
  CHECK(cores == 1);
}
