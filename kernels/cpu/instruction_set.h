// The instruction sets that the program computes with on the CPU. Our own kernels are compiled for x86-64,
// for x86-64-v3 (AVX2), for x86-64-v4 (AVX-512), and for the latter with AVX512_BF16. oneDNN knows more
// levels; it is always limited to exactly the level in use. On 64-bit ARM, all processors compute with the
// same kernels, and oneDNN chooses its own.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace convnet {

/// Levels of instruction sets, named as in oneDNN; each contains those before it. Only `base` is no word of
/// oneDNN: x86-64 without SSE4.1, or 64-bit ARM, which has one level.
enum class InstructionSet {
  base,
  sse41,
  avx,
  avx2,
  avx512_core,
  avx512_core_vnni,
  avx512_core_bf16,
  avx512_core_amx
};

/// Returns the name that oneDNN's documentation gives to a level, like "AVX512_CORE_VNNI". The name of `base`
/// is "NEON" on 64-bit ARM, and "BASE" elsewhere.
std::string name_of(InstructionSet set);

/// Returns the lowest level that this build has own kernels for: `base`, or that of the processor that it was
/// built on (CONVNET_INSTRUCTION_SETS).
InstructionSet lowest_compiled_instruction_set();

/// Returns the flags of this x86-64 processor on which levels depend, separated by spaces and named as
/// /proc/cpuinfo names them. It asks the processor itself, because that file lists the flags of another one
/// under an emulator (qemu-user).
std::string processor_flags();

/// Returns the highest level of an x86-64 processor that has these flags, separated by spaces:
/// `base` if it has not even SSE4.1.
InstructionSet instruction_set_with(std::string_view flags);

/// Returns the level that a value of ONEDNN_MAX_CPU_ISA stands for. All words of oneDNN are known, in small
/// letters, too; a level that this program does not have stands for the next lower one. Throws InputError for
/// other words.
InstructionSet instruction_set_named(std::string_view name);

/// Returns the level that this process computes with: the highest of its processor, unless it has been
/// limited by limit_instruction_set() or by oneDNN's environment variable ONEDNN_MAX_CPU_ISA. Throws
/// InputError if that variable has a value that is unknown.
InstructionSet instruction_set();

/// Limits the level that our own kernels and oneDNN compute with to `most`. Throws std::logic_error once an
/// operation has been prepared.
void limit_instruction_set(InstructionSet most);

/// Limits oneDNN to instruction_set() and returns that level, which cannot change any more. Throws
/// DeviceError if oneDNN cannot be limited.
InstructionSet use_instruction_set();

/// The lowest of several processes' instruction sets, and the first process that has it.
struct LeastInstructionSet {
  InstructionSet set = InstructionSet::base;
  std::size_t process = 0;
};
/// Returns the lowest of the instruction sets with these names, one for each process. Throws DeviceError if
/// the processors are not of one architecture.
LeastInstructionSet least_instruction_set(const std::vector<std::string>& names);

}  // namespace convnet
