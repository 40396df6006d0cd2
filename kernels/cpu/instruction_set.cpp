#include "kernels/cpu/instruction_set.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <dnnl.hpp>
#include <fstream>
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

/// The levels of x86-64, from the lowest. The first has the flags of x86-64-v3, the second those of
/// x86-64-v4. (oneDNN may use some that AMX processors alone have, avx512_fp16 for example.)
constexpr std::array kLevels = {
    Level{InstructionSet::avx2, "AVX2", "avx2 avx fma f16c bmi1 bmi2 abm movbe", dnnl_cpu_isa_avx2},
    Level{InstructionSet::avx512_core, "AVX512_CORE", "avx512f avx512bw avx512cd avx512dq avx512vl",
          dnnl_cpu_isa_avx512_core},
    Level{InstructionSet::avx512_core_vnni, "AVX512_CORE_VNNI", "avx512_vnni", dnnl_cpu_isa_avx512_core_vnni},
    Level{InstructionSet::avx512_core_bf16, "AVX512_CORE_BF16", "avx512_bf16", dnnl_cpu_isa_avx512_core_bf16},
    Level{InstructionSet::avx512_core_amx, "AVX512_CORE_AMX", "avx512_fp16 amx_tile amx_int8 amx_bf16",
          dnnl_cpu_isa_avx512_core_amx},
};
constexpr const char* kBaseName = "BASE";

std::vector<std::string> words(std::string_view text) {
  std::istringstream stream{std::string(text)};
  return {std::istream_iterator<std::string>(stream), {}};
}

InstructionSet highest_of_this_processor() {
#if defined(__x86_64__)
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("flags")) continue;
  const std::size_t colon = line.find(':');
  if (!file || colon == std::string::npos)
    throw DeviceError("cpu: /proc/cpuinfo does not list the processor's flags");
  const InstructionSet highest = instruction_set_with(std::string_view(line).substr(colon + 1));
  const char* variable = std::getenv("ONEDNN_MAX_CPU_ISA");
  return variable == nullptr ? highest : std::min(highest, instruction_set_named(variable));
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
  return kBaseName;
}

InstructionSet instruction_set_with(std::string_view flags) {
  const std::vector<std::string> present = words(flags);
  std::optional<InstructionSet> highest;
  for (const Level& level : kLevels) {
    for (const std::string& flag : words(level.flags)) {
      if (std::find(present.begin(), present.end(), flag) != present.end()) continue;
      if (highest) return *highest;
      throw DeviceError(
          "cpu: this processor lacks " + flag +
          "; the program needs AVX2 and the rest of x86-64-v3, which Intel's processors have since "
          "Haswell (2013) and AMD's since Excavator (2015)");
    }
    highest = level.set;
  }
  return *highest;
}

InstructionSet instruction_set_named(std::string_view name) {
  std::string known;
  for (const Level& level : kLevels) {
    if (level.name == name) return level.set;
    known += std::string(known.empty() ? "" : ", ") + level.name;
  }
  throw InputError("ONEDNN_MAX_CPU_ISA is '" + std::string(name) + "'; the program knows " + known);
}

InstructionSet instruction_set() { return choice().get(); }
void limit_instruction_set(InstructionSet most) { choice().limit(most); }
InstructionSet use_instruction_set() { return choice().use(); }

LeastInstructionSet least_instruction_set(const std::vector<std::string>& names) {
  std::optional<LeastInstructionSet> least;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if ((names[i] == kBaseName) != (names[0] == kBaseName))
      throw DeviceError("cpu: the processes run on processors of different architectures");
    const InstructionSet set = names[i] == kBaseName ? InstructionSet::base : instruction_set_named(names[i]);
    if (!least || set < least->set) least = {set, i};
  }
  return least.value();
}

}  // namespace convnet
