#include "convnet/base/available_memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "convnet/base/control_groups.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// Returns the contents of a file, or "" if it cannot be read.
std::string contents_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Returns the number that `text` begins with; "max" is not a number.
std::optional<std::int64_t> number_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  return number;
}

/// The number after `key` at the start of a line: "MemAvailable:    1234 kB", "inactive_file 4096".
std::optional<std::int64_t> number_after(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key)) return number_in(std::string_view(line).substr(key.size()));
  return std::nullopt;
}

std::int64_t machine_memory(const fs::path& root) {
  const std::string info = contents_of(root / "proc/meminfo");
  auto kilobytes = number_after(info, "MemAvailable:");
  if (!kilobytes) kilobytes = number_after(info, "MemFree:");
  if (kilobytes) return *kilobytes * 1024;
  return static_cast<std::int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

/// The files of one version of control groups.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* prefix;  ///< prefix of the lines in memory.stat that include the groups below
};
constexpr GroupFiles version1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_"};
constexpr GroupFiles version2 = {"memory.max", "memory.current", ""};

/// Returns the bytes that are left below the limit of the group in `folder`. Caches of files count as free,
/// because the kernel drops them when memory is needed.
std::optional<std::int64_t> left_in(const fs::path& folder, const GroupFiles& files) {
  const auto limit = number_in(contents_of(folder / files.limit));
  const auto used = number_in(contents_of(folder / files.used));
  if (!limit || !used) return std::nullopt;
  const std::string stat = contents_of(folder / "memory.stat");
  std::int64_t caches = 0;
  for (const char* kind : {"inactive_file ", "active_file "})
    caches += number_after(stat, std::string(files.prefix) + kind).value_or(0);
  return std::max<std::int64_t>(0, *limit - *used + std::min(caches, *used));
}

bool is_address_space_limited() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

std::int64_t available_memory(const std::string& root) {
  std::int64_t available = machine_memory(root.empty() ? "/" : root);
  for (const ControlGroups& groups : control_groups("memory", root)) {
    for (const fs::path& folder : groups.folders) {
      const auto left = left_in(folder, groups.version == 1 ? version1 : version2);
      if (left) available = std::min(available, *left);
    }
  }
  return available;
}

void share_heap_if_limited() {
  if (is_address_space_limited()) mallopt(M_ARENA_MAX, 1);
}

bool has_address_space(std::size_t bytes) {
  if (!is_address_space_limited()) return true;
  void* const space = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return space != MAP_FAILED && ::munmap(space, bytes) == 0;
}

}  // namespace convnet
