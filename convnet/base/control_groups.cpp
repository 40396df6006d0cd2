#include "convnet/base/control_groups.h"

#include <fstream>

namespace convnet {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders_of(const fs::path& mount, const std::string& group) {
  std::vector<fs::path> folders;
  for (fs::path at = fs::path(group).relative_path();; at = at.parent_path()) {
    folders.push_back(mount / at);
    if (at.empty()) return folders;
  }
}

}  // namespace

std::vector<ControlGroups> control_groups(const std::string& controller, const std::string& root) {
  const fs::path top = root.empty() ? "/" : root;
  std::vector<ControlGroups> all;
  // Lines like "4:cpu,cpuacct:/group" (version 1) and "0::/group" (version 2).
  std::ifstream file(top / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,")
      all.push_back({2, folders_of(top / "sys/fs/cgroup", group)});
    else if (controllers.find("," + controller + ",") != std::string::npos)
      all.push_back({1, folders_of(top / "sys/fs/cgroup" / controller, group)});
  }
  return all;
}

}  // namespace convnet
