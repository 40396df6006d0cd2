#include "kernels/cpu/instruction_set.h"

#include <stdexcept>

#include "convnet/base/error.h"
#include "kernels/cpu/own_kernels.h"
#include "tests/catch.h"
#include "tests/kernels/op_runner.h"

using namespace convnet;

namespace {

const std::string kHaswell = "sse4_2 abm avx avx2 bmi1 bmi2 f16c fma movbe";
const std::string kSkylake = kHaswell + " avx512bw avx512cd avx512dq avx512f avx512vl";

}  // namespace

TEST_CASE("a processor computes with the highest level of which it has all flags", "[instruction_set]") {
  CHECK(instruction_set_with(" " + kHaswell + " avx_vnni\n") == InstructionSet::avx2);
  CHECK(instruction_set_with(kHaswell + " avx512f") == InstructionSet::avx2);
  CHECK(instruction_set_with(kSkylake) == InstructionSet::avx512_core);
  CHECK(instruction_set_with(kSkylake + " avx512_vnni") == InstructionSet::avx512_core_vnni);
  CHECK(instruction_set_with(kSkylake + " avx512_bf16") == InstructionSet::avx512_core);
  CHECK(instruction_set_with(kSkylake + " avx512_vnni avx512_bf16") == InstructionSet::avx512_core_bf16);
  CHECK(instruction_set_with(kSkylake + " avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_int8 amx_bf16") ==
        InstructionSet::avx512_core_amx);
}

TEST_CASE("a processor without AVX2 is named as too old", "[instruction_set]") {
  CHECK_THROWS_WITH(instruction_set_with("sse4_2 avx"),
                    Catch::Contains("lacks avx2; the program needs AVX2"));
  CHECK_THROWS_AS(instruction_set_with("sse4_2 avx"), DeviceError);
}

TEST_CASE("levels have oneDNN's names", "[instruction_set]") {
  for (const InstructionSet set :
       {InstructionSet::avx2, InstructionSet::avx512_core, InstructionSet::avx512_core_vnni,
        InstructionSet::avx512_core_bf16, InstructionSet::avx512_core_amx})
    CHECK(instruction_set_named(name_of(set)) == set);
  CHECK(name_of(InstructionSet::avx512_core_bf16) == "AVX512_CORE_BF16");
  CHECK_THROWS_WITH(instruction_set_named("SSE41"),
                    "ONEDNN_MAX_CPU_ISA is 'SSE41'; the program knows AVX2, AVX512_CORE, AVX512_CORE_VNNI, "
                    "AVX512_CORE_BF16, AVX512_CORE_AMX");
}

TEST_CASE("processes compute with the least of their levels", "[instruction_set]") {
  const LeastInstructionSet least = least_instruction_set({"AVX512_CORE_AMX", "AVX2", "AVX512_CORE", "AVX2"});
  CHECK(least.set == InstructionSet::avx2);
  CHECK(least.process == 1);
  CHECK(least_instruction_set({"BASE", "BASE"}).set == InstructionSet::base);
  CHECK_THROWS_AS(least_instruction_set({"AVX2", "BASE"}), DeviceError);
}

TEST_CASE("the level is final once an operation was prepared", "[instruction_set]") {
  cpu::prepare(FillZero{{{8}, DataType::f32, nullptr}}, {});
  CHECK_THROWS_AS(limit_instruction_set(InstructionSet::avx2), std::logic_error);
  CHECK(use_instruction_set() == instruction_set());
}

#if defined(__x86_64__)
TEST_CASE("own kernels exist for AVX2, AVX-512 and products of bf16", "[instruction_set]") {
  const cpu::OwnKernels& avx2 = cpu::own_kernels(InstructionSet::avx2);
  const cpu::OwnKernels& avx512 = cpu::own_kernels(InstructionSet::avx512_core);
  const cpu::OwnKernels& bf16 = cpu::own_kernels(InstructionSet::avx512_core_bf16);
  CHECK(&cpu::own_kernels(InstructionSet::avx512_core_vnni) == &avx512);
  CHECK(&cpu::own_kernels(InstructionSet::avx512_core_amx) == &bf16);
  CHECK(bf16.prepare != avx512.prepare);
  CHECK(avx2.prepare != avx512.prepare);
  CHECK(avx2.measure_peak_flops != avx512.measure_peak_flops);
}
#endif
