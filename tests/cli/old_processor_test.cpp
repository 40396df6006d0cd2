// The program on processors that are older than this one, emulated by qemu-user.
#include <filesystem>

#include "kernels/cpu/instruction_set.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"
#include "tests/environment.h"

namespace convnet {
namespace {

constexpr const char* kEmulator = "/usr/bin/qemu-x86_64";

/// Returns why there is nothing to emulate; else "".
std::string why_not() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "programs with sanitizers do not run in qemu-user";
#elif !defined(__x86_64__)
  return "the old processors are of another architecture";
#endif
  if (lowest_compiled_instruction_set() > InstructionSet::sse41)
    return "this build has own kernels for later processors alone (CONVNET_INSTRUCTION_SETS=native)";
  return std::filesystem::exists(kEmulator) ? "" : "qemu-user is not installed";
}

Outcome run_on(const std::string& processor, const Args& args) {
  // The program would start itself again, outside of the emulator.
  const test::Setting spins("GOMP_SPINCOUNT", "5000");
  return Program(Args{"-cpu", processor, CONVNET_PROGRAM} + args, kEmulator).finish();
}

}  // namespace

TEST_CASE("processors without AVX train with the plain kernels") {
  if (const std::string why = why_not(); !why.empty()) return test::skip(why);
  // The second has no SSE4.1: it is what virtual machines show by default.
  for (const auto& [processor, level] : {std::pair{"Nehalem", "SSE41"}, {"qemu64", "BASE"}}) {
    INFO(processor);
    CHECK_THAT(run_on(processor, {"--version"}).out,
               Catch::Contains("computes with " + std::string(level) + " on this processor"));
    const Workshop shop;
    shop.write_data();
    const Outcome run = run_on(processor, shop.mnist() + Args{"--epochs", "2", "--save-file", shop / "run"});
    INFO(run.out << run.err);
    CHECK(run.code == 0);
    CHECK(std::filesystem::exists(shop / "run/2.1.safetensors"));
    const Outcome test = run_on(processor, {"--load-file", shop / "run", "--test-only", "1"});
    INFO(test.out << test.err);
    CHECK(test.code == 0);
  }
}

}  // namespace convnet
