#include "convnet/net/find_net.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace convnet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExtension = ".cfg";
constexpr const char* kParameters = "-params.cfg";

/// Returns the file of that name in the folder; "" if there is none.
std::string file_in(const fs::path& folder, const std::string& name, CfgFile which) {
  if (name.empty()) return "";
  std::vector<std::string> forms = {name};
  if (which == CfgFile::parameters && !name.ends_with("-params")) forms.push_back(name + kParameters);
  forms.push_back(name + kExtension);
  for (const std::string& form : forms) {
    const fs::path path = folder / form;
    std::error_code ignored;
    if (fs::exists(path, ignored) && !fs::is_directory(path, ignored)) return path.string();
  }
  return "";
}

}  // namespace

std::string find_net_file(const std::string& folder, const std::string& name, CfgFile which) {
  if (const std::string own = file_in(folder, name, which); !own.empty()) return own;
  if (const std::string nets = installed_nets(); !nets.empty() && name.find('/') == std::string::npos) {
    if (const std::string installed = file_in(nets, name, which); !installed.empty()) return installed;
  }
  return (fs::path(folder) / name).string();
}

std::string installed_nets() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error) return "";
  const fs::path installed = program.parent_path() / "share/convnet/configs";
  if (fs::is_directory(installed, error)) return installed.string();
  // In CMake's build/PRESET, or in a folder in it.
  for (fs::path build = program; build.has_relative_path(); build = build.parent_path()) {
    if (!fs::exists(build / "CMakeCache.txt", error)) continue;
    const fs::path source = build.parent_path().parent_path() / "configs";
    return fs::is_directory(source, error) ? source.string() : "";
  }
  return "";
}

std::vector<std::string> installed_net_files(CfgFile which) {
  std::vector<std::string> names;
  const std::string nets = installed_nets();
  if (nets.empty()) return names;
  std::error_code error;
  fs::directory_iterator at(nets, error);
  for (const fs::directory_iterator end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.ends_with(kExtension) && name.ends_with(kParameters) == (which == CfgFile::parameters))
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace convnet
