// Free memory, as files like the kernel's state it.
#include "convnet/base/available_memory.h"

#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

constexpr std::int64_t MiB = 1 << 20;

/// A folder with the kernel's files in it.
class Machine {
 public:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path(root_ / name);
    std::filesystem::create_directories(path.parent_path());
    write_file(path.string(), text);
  }
  std::int64_t available() const { return available_memory(root_.path()) / MiB; }

 private:
  TempFolder root_;
};

std::string mebibytes(std::int64_t count) { return std::to_string(count * MiB) + "\n"; }

const std::string kMemory =
    "MemTotal:       2097152 kB\nMemFree:         102400 kB\nMemAvailable:   1024000 kB\nBuffers: 12 kB\n";

}  // namespace

TEST_CASE("memory that holds files' contents is available", "[memory]") {
  const Machine machine;
  machine.write("proc/meminfo", kMemory);
  CHECK(machine.available() == 1000);
  // Kernels before 3.14 do not say it.
  machine.write("proc/meminfo", "MemTotal: 2097152 kB\nMemFree:         102400 kB\n");
  CHECK(machine.available() == 100);
}

TEST_CASE("limits of control groups of version 2 count, and those of the groups above", "[memory]") {
  const Machine machine;
  machine.write("proc/meminfo", kMemory);
  machine.write("proc/self/cgroup", "0::/jobs/mine\n");
  CHECK(machine.available() == 1000);
  const std::string mine = "sys/fs/cgroup/jobs/mine/", jobs = "sys/fs/cgroup/jobs/";
  machine.write(mine + "memory.max", "max\n");
  machine.write(mine + "memory.current", mebibytes(300));
  CHECK(machine.available() == 1000);
  machine.write(mine + "memory.max", mebibytes(500));
  CHECK(machine.available() == 200);
  // The cache of a large file that was read is given back.
  machine.write(mine + "memory.stat", "anon 1\nfile 2\ninactive_file " + mebibytes(200) + "active_file " +
                                          mebibytes(50) + "inactive_anon 5\n");
  CHECK(machine.available() == 450);
  machine.write(jobs + "memory.max", mebibytes(700));
  machine.write(jobs + "memory.current", mebibytes(650));
  CHECK(machine.available() == 50);
  machine.write(jobs + "memory.current", mebibytes(800));
  CHECK(machine.available() == 0);
}

TEST_CASE("limits of control groups of version 1 count, also in a container", "[memory]") {
  const Machine machine;
  machine.write("proc/meminfo", kMemory);
  machine.write("proc/self/cgroup", "9:name=systemd:/docker/a\n4:cpu,memory:/docker/a\n0::/\n");
  const std::string group = "sys/fs/cgroup/memory/docker/a/";
  machine.write(group + "memory.limit_in_bytes", "9223372036854771712\n");
  machine.write(group + "memory.usage_in_bytes", mebibytes(100));
  CHECK(machine.available() == 1000);
  machine.write(group + "memory.limit_in_bytes", mebibytes(400));
  machine.write(group + "memory.stat",
                "inactive_file 7\ntotal_inactive_file " + mebibytes(60) + "total_active_file 0\n");
  CHECK(machine.available() == 360);
  // The group's own folder is the mounted one, and its path that outside of the container.
  machine.write("proc/self/cgroup", "4:memory:/docker/b\n");
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", mebibytes(150));
  machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", mebibytes(20));
  CHECK(machine.available() == 130);
}

TEST_CASE("this machine has memory", "[memory]") { CHECK(available_memory() > MiB); }
