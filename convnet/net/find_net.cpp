#include "convnet/net/find_net.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "convnet/base/error.h"
#include "convnet/base/names.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExtension = ".cfg";
constexpr const char* kParameters = "-params.cfg";
constexpr const char* kImageNet = "-imagenet";

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

/// Returns the file of a net that comes with the program; "" if there is none.
std::string installed_file(const std::string& name, CfgFile which) {
  const std::string nets = installed_nets();
  if (nets.empty() || name.empty() || name.find('/') != std::string::npos) return "";
  std::string dashes = name, underscores = name;
  std::replace(dashes.begin(), dashes.end(), '_', '-');
  std::replace(underscores.begin(), underscores.end(), '-', '_');
  for (const std::string& spelling : {name, dashes, underscores}) {
    for (const char* suffix : {"", kImageNet})
      if (std::string file = file_in(nets, spelling + suffix, which); !file.empty()) return file;
  }
  return "";
}

}  // namespace

std::string find_net_file(const std::string& folder, const std::string& name, CfgFile which) {
  if (std::string own = file_in(folder, name, which); !own.empty()) return own;
  if (std::string installed = installed_file(name, which); !installed.empty()) return installed;
  return (fs::path(folder) / name).string();
}

void add_parameters(OptionTexts& texts) {
  const auto definition = texts.find("layer-def");
  if (definition == texts.end() || texts.contains("layer-params")) return;
  const auto folder = texts.find("layer-path");
  const std::string own = folder == texts.end() ? "" : folder->second;
  if (!file_in(own, definition->second, CfgFile::definition).empty()) return;
  fs::path file = installed_file(definition->second, CfgFile::definition);
  if (file.empty()) {
    std::vector<std::string> names = installed_net_files(CfgFile::definition);
    if (names.empty() && definition->second.find_first_of("./") == std::string::npos)
      throw InputError(fmt::format("--layer-def {}: there is no such file, and {}", definition->second,
                                   no_folder_of_nets()));
    for (std::string& name : names) name = short_net_name(name);
    std::error_code none;
    const bool is_other_file = fs::exists(fs::path(own) / definition->second, none);
    if (is_other_file || texts.contains("load-file")) return;  // what reads it says more
    throw InputError("--layer-def " + definition->second +
                     ": there is no such file, and no net of this name" +
                     did_you_mean(definition->second, names, "'convnet nets' lists those that there are"));
  }
  file.replace_filename(file.stem().string() + kParameters);
  std::error_code ignored;
  if (fs::exists(file, ignored)) texts["layer-params"] = file.filename().string();
}

bool names_ready_net(OptionTexts texts) {
  if (texts.contains("layer-params")) return false;
  add_parameters(texts);
  return texts.contains("layer-params");
}

std::string short_net_name(const std::string& file) {
  std::string name = file;
  for (const std::string suffix : {kExtension, kImageNet})
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  return name;
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

std::string no_folder_of_nets() {
  return "the program's folder of nets, share/convnet/configs, is not beside it";
}

bool is_installed(const std::string& file) {
  const std::string nets = installed_nets();
  std::error_code none;
  return !nets.empty() && fs::equivalent(fs::path(file).parent_path(), nets, none);
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
