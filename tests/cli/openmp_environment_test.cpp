// How OpenMP's variables in the environment change a run: not at all, but for how threads wait.
#include "convnet/base/openmp_environment.h"

#include <sched.h>

#include <fstream>

#include "tests/catch.h"
#include "tests/cli/equal_tensors.h"
#include "tests/cli/small_net.h"
#include "tests/environment.h"

namespace convnet {
namespace {

using Variables = std::vector<std::string>;

/// Returns what the program would run with in an environment with these variables; empty if with just them.
Variables environment_for(const Variables& variables) {
  std::vector<const char*> pointers;
  for (const std::string& variable : variables) pointers.push_back(variable.c_str());
  pointers.push_back(nullptr);
  return openmp_environment(pointers.data()).value_or(Variables());
}

/// Returns the file in which `text` begins a line, without that text.
std::string line_of(const std::string& out, const std::string& text) {
  const std::size_t begin = out.find(text);
  return begin == std::string::npos ? "" : out.substr(begin, out.find('\n', begin) - begin);
}

}  // namespace

TEST_CASE("threads spin for a short time, unless the environment says how they wait") {
  CHECK(environment_for({"A=1"}) == Variables{"A=1", "GOMP_SPINCOUNT=5000"});
  CHECK(environment_for({}) == Variables{"GOMP_SPINCOUNT=5000"});
  CHECK(environment_for({"OMP_WAIT_POLICY=active"}).empty());
  CHECK(environment_for({"A=1", "GOMP_SPINCOUNT=77"}).empty());

  const Workshop shop;
  shop.write_data();
  const test::Setting policy("OMP_WAIT_POLICY", {});
  const test::Setting none("GOMP_SPINCOUNT", {});
  Program run(shop.mnist() + Args{"--save-file", shop / "run"});
  REQUIRE(run.printed("Devices:", 1));
  CHECK_THAT(run.environment(), Catch::Contains("GOMP_SPINCOUNT=5000"));
  CHECK(run.name() == std::filesystem::path(CONVNET_PROGRAM).filename().string());
}

TEST_CASE("variables that size or bind OpenMP's teams are left out") {
  const Variables kept = {"OMP_NUM_THREADS=3", "OMP_THREAD_LIMIT=4", "OMP_PLACES_OF=x", "GOMP_SPINCOUNT=77"};
  CHECK(environment_for(kept).empty());
  for (const char* unwanted : {"OMP_DYNAMIC=true", "OMP_DYNAMIC_ALL=true", "OMP_NESTED=1",
                               "OMP_MAX_ACTIVE_LEVELS=0", "OMP_PLACES=cores", "OMP_PROC_BIND=close",
                               "GOMP_CPU_AFFINITY=0", "KMP_AFFINITY=compact", "KMP_HW_SUBSET=1c"}) {
    INFO(unwanted);
    CHECK(environment_for(Variables{unwanted} + kept) == kept);
    CHECK(environment_for({"A=1", unwanted}) == Variables{"A=1", "GOMP_SPINCOUNT=5000"});
  }
}

TEST_CASE("variables that size or bind OpenMP's teams change no run") {
  const Workshop shop;
  shop.write_data();
  Args training = shop.mnist() + Args{"--epochs", "1"};
  training.erase(std::find(training.begin(), training.end(), "--threads"),
                 std::find(training.begin(), training.end(), "--data-provider"));
  const Outcome plain = run_well(training + Args{"--save-file", shop / "plain"});
  const std::string devices = line_of(plain.out, "Devices:");
  CHECK_FALSE(devices.empty());
  const std::vector<std::pair<const char*, const char*>> variables = {
      {"OMP_DYNAMIC", "true"}, {"OMP_MAX_ACTIVE_LEVELS", "0"}, {"OMP_MAX_ACTIVE_LEVELS", "4"},
      {"OMP_PLACES", "{0}"},   {"OMP_PROC_BIND", "true"},      {"GOMP_CPU_AFFINITY", "0"},
      {"OMP_NESTED", "true"},  {"OMP_NUM_THREADS", "1"},       {"OMP_NUM_THREADS", "4,2"}};
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const auto& [name, value] = variables[i];
    INFO(name << '=' << value);
    const test::Setting setting(name, value);
    const std::string folder = shop / std::to_string(i);
    const Outcome run = run_well(training + Args{"--save-file", folder});
    CHECK(line_of(run.out, "Devices:") == devices);
    check_equal_tensors(folder + "/1.1.safetensors", shop / "plain/1.1.safetensors");
  }
}

TEST_CASE("OMP_THREAD_LIMIT limits the threads of a device") {
  const Workshop shop;
  shop.write_data();
  const test::Setting limit("OMP_THREAD_LIMIT", "1");
  const Outcome run =
      run_well(shop.mnist() + Args{"--epochs", "1", "--threads", "2", "--save-file", shop / "run"});
  CHECK_THAT(run.out, Catch::Contains("cpu:0, 1 thread(s)"));
}

}  // namespace convnet
