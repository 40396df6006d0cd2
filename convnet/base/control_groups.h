// The control groups of this process, which limit its memory and its time on cores.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace convnet {

/// The folders of a process's control group and of the groups above it, the innermost first.
struct ControlGroups {
  int version = 2;  ///< of control groups: 1 or 2, whose files have different names
  std::vector<std::filesystem::path> folders;
};

/// Returns this process's groups of a controller like "memory" or "cpu": those of each version that the
/// kernel lists. Inside a container the path of a group may be the one outside, so folders need not exist.
/// The files are read below `root`, so that tests can provide their own.
std::vector<ControlGroups> control_groups(const std::string& controller, const std::string& root = "");

}  // namespace convnet
