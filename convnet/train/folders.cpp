#include "convnet/train/folders.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "kernels/error.h"

namespace convnet {

namespace fs = std::filesystem;

void check_folder_writable(const std::string& path, const std::string& what) {
  std::error_code ignored;
  for (fs::path at = fs::path(path).empty() ? "." : path; !at.empty(); at = at.parent_path()) {
    if (!fs::exists(at, ignored)) continue;
    if (!fs::is_directory(at, ignored))
      throw InputError(at.string() + ": is not a folder; " + what + " " + path);
    if (access(at.c_str(), W_OK) != 0)
      throw InputError(at.string() + ": cannot be written; " + what + " " + path);
    return;
  }
}

void make_folders(const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  fs::create_directories(path, error);
  if (error && !fs::is_directory(path)) throw RunError(path + ": cannot be made: " + error.message());
}

}  // namespace convnet
