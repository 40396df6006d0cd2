#include "kernels/cpu/instruction_set.h"

#include <fstream>
#include <stdexcept>
#include <string>

#include "convnet/base/error.h"
#include "kernels/cpu/own_kernels.h"
#include "tests/catch.h"
#include "tests/kernels/op_runner.h"

namespace convnet::instruction_set_test {
namespace {

const std::string kHaswell = "sse4_1 sse4_2 abm avx avx2 bmi1 bmi2 f16c fma movbe";
const std::string kSkylake = kHaswell + " avx512bw avx512cd avx512dq avx512f avx512vl";

}  // namespace

TEST_CASE("a processor computes with the highest level of which it has all flags", "[instruction_set]") {
  CHECK(instruction_set_with("sse2 ssse3") == InstructionSet::base);
  CHECK(instruction_set_with("ssse3 sse4_1 sse4_2") == InstructionSet::sse41);
  CHECK(instruction_set_with("sse4_1 avx") == InstructionSet::avx);
  CHECK(instruction_set_with("sse4_1 avx avx2") == InstructionSet::avx);
  CHECK(instruction_set_with(" " + kHaswell + " avx_vnni\n") == InstructionSet::avx2);
  CHECK(instruction_set_with(kHaswell + " avx512f") == InstructionSet::avx2);
  CHECK(instruction_set_with(kSkylake) == InstructionSet::avx512_core);
  CHECK(instruction_set_with(kSkylake + " avx512_vnni") == InstructionSet::avx512_core_vnni);
  CHECK(instruction_set_with(kSkylake + " avx512_bf16") == InstructionSet::avx512_core);
  CHECK(instruction_set_with(kSkylake + " avx512_vnni avx512_bf16") == InstructionSet::avx512_core_bf16);
  CHECK(instruction_set_with(kSkylake + " avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_int8 amx_bf16") ==
        InstructionSet::avx512_core_amx);
}

TEST_CASE("levels have oneDNN's names", "[instruction_set]") {
  for (const InstructionSet set :
       {InstructionSet::sse41, InstructionSet::avx, InstructionSet::avx2, InstructionSet::avx512_core,
        InstructionSet::avx512_core_vnni, InstructionSet::avx512_core_bf16, InstructionSet::avx512_core_amx})
    CHECK(instruction_set_named(name_of(set)) == set);
  CHECK(name_of(InstructionSet::avx512_core_bf16) == "AVX512_CORE_BF16");
  CHECK_THROWS_WITH(instruction_set_named("SSE5"),
                    Catch::Contains("ONEDNN_MAX_CPU_ISA is 'SSE5'; the program knows SSE41, AVX, AVX2, "));
  CHECK_THROWS_AS(instruction_set_named("AVX2 "), InputError);
}

TEST_CASE("oneDNN's words stand for the nearest level below", "[instruction_set]") {
  for (const char* word : {"ALL", "DEFAULT", "all", "AVX512_CORE_AMX_FP16", "avx10_1_512_amx"})
    CHECK(instruction_set_named(word) == InstructionSet::avx512_core_amx);
  for (const char* word : {"avx2", "AVX2_VNNI", "avx2_vnni_2", "AVX512_MIC", "AVX512_MIC_4OPS"})
    CHECK(instruction_set_named(word) == InstructionSet::avx2);
  for (const char* word : {"avx512_core_bf16", "AVX512_CORE_FP16", "AVX10_1_512"})
    CHECK(instruction_set_named(word) == InstructionSet::avx512_core_bf16);
  CHECK(instruction_set_named("sse41") == InstructionSet::sse41);
}

TEST_CASE("processes compute with the least of their levels", "[instruction_set]") {
  const LeastInstructionSet least = least_instruction_set({"AVX512_CORE_AMX", "AVX2", "AVX512_CORE", "AVX2"});
  CHECK(least.set == InstructionSet::avx2);
  CHECK(least.process == 1);
  CHECK(least_instruction_set({"BASE", "BASE"}).set == InstructionSet::base);
  CHECK(least_instruction_set({"NEON", "NEON"}).set == InstructionSet::base);
  CHECK_THROWS_AS(least_instruction_set({"AVX2", "BASE"}), DeviceError);
  CHECK_THROWS_AS(least_instruction_set({"NEON", "AVX2"}), DeviceError);
  CHECK_THROWS_AS(least_instruction_set({"BASE", "NEON"}), DeviceError);
}

TEST_CASE("the level is final once an operation was prepared", "[instruction_set]") {
  cpu::prepare(FillZero{{{8}, DataType::f32, nullptr}}, {});
  CHECK_THROWS_AS(limit_instruction_set(InstructionSet::avx2), std::logic_error);
  CHECK(use_instruction_set() == instruction_set());
}

#if defined(__x86_64__)
TEST_CASE("the processor's flags are those that the kernel lists", "[instruction_set]") {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("flags")) continue;
  if (!file) return test::skip("/proc/cpuinfo lists no flags");
  CHECK(instruction_set_with(processor_flags()) == instruction_set_with(line.substr(line.find(':') + 1)));
}

TEST_CASE("own kernels exist for SSE2, AVX2, AVX-512 and products of bf16", "[instruction_set]") {
  const InstructionSet lowest = lowest_compiled_instruction_set();
#if !defined(CONVNET_ALL_INSTRUCTION_SETS)
  if (lowest > InstructionSet::sse41)
    CHECK_THROWS_WITH(
        cpu::own_kernels(InstructionSet::sse41),
        "cpu: this program was compiled for processors with " + name_of(lowest) +
            " or later ones, and cannot compute with SSE41; `scripts/build` compiles it for all "
            "processors");
  CHECK_NOTHROW(cpu::own_kernels(instruction_set()));
  return;
#endif
  CHECK(lowest == InstructionSet::base);
  const cpu::OwnKernels& base = cpu::own_kernels(InstructionSet::base);
  CHECK(&cpu::own_kernels(InstructionSet::sse41) == &base);
  const cpu::OwnKernels& avx2 = cpu::own_kernels(InstructionSet::avx2);
  const cpu::OwnKernels& avx512 = cpu::own_kernels(InstructionSet::avx512_core);
  const cpu::OwnKernels& bf16 = cpu::own_kernels(InstructionSet::avx512_core_bf16);
  CHECK(&cpu::own_kernels(InstructionSet::avx512_core_vnni) == &avx512);
  CHECK(&cpu::own_kernels(InstructionSet::avx512_core_amx) == &bf16);
  CHECK(&cpu::own_kernels(InstructionSet::avx) == &base);
  CHECK(avx2.prepare != base.prepare);
  CHECK(bf16.prepare != avx512.prepare);
  CHECK(avx2.prepare != avx512.prepare);
  CHECK(avx2.measure_peak_flops != avx512.measure_peak_flops);
}
#endif

}  // namespace convnet::instruction_set_test
