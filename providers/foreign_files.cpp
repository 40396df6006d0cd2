#include "providers/foreign_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "convnet/base/file.h"
#include "convnet/base/file_format.h"
#include "convnet/base/printable.h"
#include "providers/image_parts.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// Returns the format of a file that may hold a data set in another form; null for all other files, also for
/// those that some provider reads as they are.
const FileFormat* container_format(const std::string& path) {
  const InputFile file(path);
  const FileFormat* format = find_format(file.read(0, std::min<std::uint64_t>(file.size(), kFormatBytes)));
  if (format == nullptr || path.ends_with(".tar") || path.ends_with(".npy") || path.ends_with("-ubyte.gz"))
    return nullptr;
  const bool may_hold_data = format->kind == FileKind::compressed || format->kind == FileKind::archive ||
                             format->kind == FileKind::arrays || format->kind == FileKind::web_page;
  return may_hold_data ? format : nullptr;
}

std::string text_of(const std::string& name, const FileFormat& format) {
  const std::string cure = format.cure;
  return fmt::format("; {} is {}{}", printable(name), format.name, cure.empty() ? "" : ": " + cure);
}

}  // namespace

std::string foreign_files_text(const std::string& path,
                               const std::function<bool(const std::string& name)>& is_read) {
  constexpr std::size_t kMostFiles = 100;
  std::error_code ignored;
  try {
    if (fs::is_regular_file(path, ignored)) {
      const FileFormat* format = container_format(path);
      return format == nullptr ? "" : text_of("it", *format);
    }
    if (!fs::is_directory(path, ignored)) return "";
    std::vector<std::string> names = names_in(path, false);
    if (is_read) std::erase_if(names, is_read);
    std::sort(names.begin(), names.end());
    names.resize(std::min(names.size(), kMostFiles));
    for (const std::string& name : names) {
      if (const FileFormat* format = container_format((fs::path(path) / name).string()))
        return text_of(name + " in it", *format);
    }
  } catch (const std::runtime_error&) {  // what cannot be read cannot be recognised
  }
  return "";
}

}  // namespace convnet
