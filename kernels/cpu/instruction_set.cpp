#include "kernels/cpu/instruction_set.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <dnnl.hpp>
#include <iterator>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "convnet/base/error.h"

namespace convnet {
namespace {

struct Level {
  InstructionSet set;
  const char* name;
  const char* flags;  ///< the processor flags, besides those of lower levels, that it needs
  dnnl_cpu_isa_t onednn;
};

/// The levels of x86-64, from the lowest. AVX2 has the flags of x86-64-v3, AVX512_CORE those of x86-64-v4.
/// (oneDNN may use some that AMX processors alone have, avx512_fp16 for example.)
constexpr std::array kLevels = {
    Level{InstructionSet::sse41, "SSE41", "sse4_1", dnnl_cpu_isa_sse41},
    Level{InstructionSet::avx, "AVX", "avx", dnnl_cpu_isa_avx},
    Level{InstructionSet::avx2, "AVX2", "avx2 fma f16c bmi1 bmi2 abm movbe", dnnl_cpu_isa_avx2},
    Level{InstructionSet::avx512_core, "AVX512_CORE", "avx512f avx512bw avx512cd avx512dq avx512vl",
          dnnl_cpu_isa_avx512_core},
    Level{InstructionSet::avx512_core_vnni, "AVX512_CORE_VNNI", "avx512_vnni", dnnl_cpu_isa_avx512_core_vnni},
    Level{InstructionSet::avx512_core_bf16, "AVX512_CORE_BF16", "avx512_bf16", dnnl_cpu_isa_avx512_core_bf16},
    Level{InstructionSet::avx512_core_amx, "AVX512_CORE_AMX", "avx512_fp16 amx_tile amx_int8 amx_bf16",
          dnnl_cpu_isa_avx512_core_amx},
};
/// The names of `base`.
constexpr std::string_view kPlainX86 = "BASE", kArm64 = "NEON";
#if defined(__aarch64__)
constexpr std::string_view kBaseName = kArm64;
#else
constexpr std::string_view kBaseName = kPlainX86;
#endif

/// oneDNN's other words for levels, from version 2 to version 3.
struct Word {
  const char* word;
  InstructionSet set;
};
constexpr std::array kWords = {
    Word{"ALL", InstructionSet::avx512_core_amx},
    Word{"DEFAULT", InstructionSet::avx512_core_amx},
    Word{"AVX2_VNNI", InstructionSet::avx2},
    Word{"AVX2_VNNI_2", InstructionSet::avx2},
    Word{"AVX512_MIC", InstructionSet::avx2},
    Word{"AVX512_MIC_4OPS", InstructionSet::avx2},
    Word{"AVX512_CORE_FP16", InstructionSet::avx512_core_bf16},
    Word{"AVX10_1_512", InstructionSet::avx512_core_bf16},
    Word{"AVX512_CORE_AMX_FP16", InstructionSet::avx512_core_amx},
    Word{"AVX10_1_512_AMX", InstructionSet::avx512_core_amx},
    Word{"AVX10_1_512_AMX_FP16", InstructionSet::avx512_core_amx},
};

std::vector<std::string> words(std::string_view text) {
  std::istringstream stream{std::string(text)};
  return {std::istream_iterator<std::string>(stream), {}};
}

InstructionSet highest_of_this_processor() {
#if defined(__x86_64__)
  const InstructionSet highest = instruction_set_with(processor_flags());
  const char* variable = std::getenv("ONEDNN_MAX_CPU_ISA");
  // An empty value is none, as in oneDNN.
  if (variable == nullptr || *variable == '\0') return highest;
  return std::min(highest, instruction_set_named(variable));
#else
  return InstructionSet::base;
#endif
}

/// The choice of this process. It is one for all threads and devices, as oneDNN's is.
class Choice {
 public:
  InstructionSet get() {
    const std::lock_guard guard(mutex_);
    return set();
  }
  void limit(InstructionSet most) {
    const std::lock_guard guard(mutex_);
    if (final_) throw std::logic_error("the instruction set is limited after operations were prepared");
    set_ = std::min(set(), most);
  }
  InstructionSet use() {
    const std::lock_guard guard(mutex_);
    if (!final_) limit_onednn(set());
    final_ = true;
    return set();
  }

 private:
  InstructionSet set() {
    if (!set_) set_ = highest_of_this_processor();
    return *set_;
  }
  static void limit_onednn(InstructionSet set) {
    for (const Level& level : kLevels) {
      if (level.set != set || dnnl_set_max_cpu_isa(level.onednn) == dnnl_success) continue;
      // It may have been used before, or be built without this function.
      if (dnnl_get_effective_cpu_isa() != level.onednn)
        throw DeviceError(std::string("cpu: oneDNN cannot be limited to ") + level.name);
    }
  }

  std::mutex mutex_;
  std::optional<InstructionSet> set_;
  bool final_ = false;
};

Choice& choice() {
  static Choice of_this_process;
  return of_this_process;
}

}  // namespace

std::string name_of(InstructionSet set) {
  for (const Level& level : kLevels) {
    if (level.set == set) return level.name;
  }
  return std::string(kBaseName);
}

InstructionSet lowest_compiled_instruction_set() {
#if defined(CONVNET_KERNELS_base)
  return InstructionSet::base;
#elif defined(CONVNET_KERNELS_v3)
  return InstructionSet::avx2;
#else
  return InstructionSet::avx512_core;
#endif
}

#if defined(__x86_64__)

namespace {

enum Register { eax, ebx, ecx, edx };

/// A flag: the bit that says that the processor has it, and the registers that the system must save for it,
/// as bits of XCR0.
struct Flag {
  const char* name;
  unsigned leaf, subleaf;
  Register reg;
  unsigned bit;
  std::uint64_t saved;
};
constexpr std::uint64_t kNone = 0, kYmm = 0x6, kZmm = 0xE6, kTiles = 0x60000;
constexpr std::array kFlags = {
    Flag{"sse4_1", 1, 0, ecx, 19, kNone},     Flag{"avx", 1, 0, ecx, 28, kYmm},
    Flag{"avx2", 7, 0, ebx, 5, kYmm},         Flag{"fma", 1, 0, ecx, 12, kYmm},
    Flag{"f16c", 1, 0, ecx, 29, kYmm},        Flag{"bmi1", 7, 0, ebx, 3, kNone},
    Flag{"bmi2", 7, 0, ebx, 8, kNone},        Flag{"abm", 0x80000001, 0, ecx, 5, kNone},
    Flag{"movbe", 1, 0, ecx, 22, kNone},      Flag{"avx512f", 7, 0, ebx, 16, kZmm},
    Flag{"avx512bw", 7, 0, ebx, 30, kZmm},    Flag{"avx512cd", 7, 0, ebx, 28, kZmm},
    Flag{"avx512dq", 7, 0, ebx, 17, kZmm},    Flag{"avx512vl", 7, 0, ebx, 31, kZmm},
    Flag{"avx512_vnni", 7, 0, ecx, 11, kZmm}, Flag{"avx512_bf16", 7, 1, eax, 5, kZmm},
    Flag{"avx512_fp16", 7, 0, edx, 23, kZmm}, Flag{"amx_tile", 7, 0, edx, 24, kTiles},
    Flag{"amx_int8", 7, 0, edx, 25, kTiles},  Flag{"amx_bf16", 7, 0, edx, 22, kTiles},
};

/// Returns the four registers that CPUID answers with; zeros if the processor does not know the question.
std::array<unsigned, 4> cpuid(unsigned leaf, unsigned subleaf) {
  std::array<unsigned, 4> answer{};
  if (__get_cpuid_count(leaf, subleaf, &answer[eax], &answer[ebx], &answer[ecx], &answer[edx]) == 0)
    return {};
  return answer;
}

/// Returns XCR0: the registers that the system saves when it changes to another thread.
std::uint64_t saved_registers() {
  constexpr unsigned kOsxsave = 1U << 27;
  if ((cpuid(1, 0)[ecx] & kOsxsave) == 0) return 0;
  std::uint32_t low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

}  // namespace

std::string processor_flags() {
  const std::uint64_t saved = saved_registers();
  std::string flags;
  for (const Flag& flag : kFlags) {
    const bool present = (cpuid(flag.leaf, flag.subleaf)[flag.reg] >> flag.bit & 1) != 0;
    if (present && (saved & flag.saved) == flag.saved)
      flags += std::string(flags.empty() ? "" : " ") + flag.name;
  }
  return flags;
}

#endif

InstructionSet instruction_set_with(std::string_view flags) {
  const std::vector<std::string> present = words(flags);
  InstructionSet highest = InstructionSet::base;
  for (const Level& level : kLevels) {
    for (const std::string& flag : words(level.flags)) {
      if (std::find(present.begin(), present.end(), flag) == present.end()) return highest;
    }
    highest = level.set;
  }
  return highest;
}

InstructionSet instruction_set_named(std::string_view name) {
  const auto is_name = [&](std::string_view word) {
    return std::equal(name.begin(), name.end(), word.begin(), word.end(),
                      [](unsigned char a, char b) { return std::toupper(a) == b; });
  };
  std::string known;
  for (const Level& level : kLevels) {
    if (is_name(level.name)) return level.set;
    known += std::string(level.name) + ", ";
  }
  for (const Word& word : kWords) {
    if (is_name(word.word)) return word.set;
  }
  throw InputError("ONEDNN_MAX_CPU_ISA is '" + std::string(name) + "'; the program knows " + known +
                   "oneDNN's other words for levels between these, and ALL");
}

InstructionSet instruction_set() { return choice().get(); }
void limit_instruction_set(InstructionSet most) { choice().limit(most); }
InstructionSet use_instruction_set() { return choice().use(); }

LeastInstructionSet least_instruction_set(const std::vector<std::string>& names) {
  const auto is_base = [](const std::string& name) { return name == kPlainX86 || name == kArm64; };
  std::optional<LeastInstructionSet> least;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] != names[0] && (is_base(names[i]) || is_base(names[0])))
      throw DeviceError(
          "cpu: the processes run on processors of different architectures, or not all of them have SSE4.1");
    const InstructionSet set = is_base(names[i]) ? InstructionSet::base : instruction_set_named(names[i]);
    if (!least || set < least->set) least = {set, i};
  }
  return least.value();
}

}  // namespace convnet
