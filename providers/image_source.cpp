#include "providers/image_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "convnet/base/error.h"
#include "providers/image_parts.h"

namespace convnet {

namespace fs = std::filesystem;

namespace {

/// Whether files that end so are pictures that are not read.
bool is_other_picture(std::string_view extension) {
  constexpr std::array<std::string_view, 13> others = {"avif", "gif", "heic", "heif", "jfif", "jp2", "jxl",
                                                       "pgm",  "ppm", "tga",  "tif",  "tiff", "webp"};
  return std::find(others.begin(), others.end(), extension) != others.end();
}

}  // namespace

std::vector<ImagePart> find_parts(const std::string& path) {
  std::error_code ignored;
  const fs::path root(path);
  const auto is_part = [](const std::string& folder) {
    const std::vector<std::string> files = names_in(folder, false);
    return !names_in(folder, true).empty() ||
           std::any_of(files.begin(), files.end(), [](const std::string& f) { return f.ends_with(".tar"); });
  };
  if (!fs::is_directory(root / "train", ignored) || !is_part((root / "train").string()))
    return {{"", path, {}}};
  std::vector<ImagePart> parts = {{"train", (root / "train").string(), {}}};
  for (const char* name : {"val", "test"})
    if (parts.size() == 1 && fs::is_directory(root / name, ignored))
      parts.push_back({name, (root / name).string(), {}});
  return parts;
}

void number_parts(std::vector<ImagePart>& parts, const std::vector<std::size_t>& batches) {
  int next = 1;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].batches = {next, next + static_cast<int>(batches[i]) - 1};
    next = parts[i].batches.last + 1;
  }
}

BatchSplit split_of(const std::vector<ImagePart>& parts) {
  BatchSplit split{parts[0].batches, {}};
  if (parts.size() > 1) split.test = parts[1].batches;
  return split;
}

std::string parts_text(const std::vector<ImagePart>& parts) {
  std::string text;
  for (const ImagePart& part : parts)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", part.batches.str(),
                        part.name.empty() ? "" : " (" + part.name + ")");
  return text;
}

std::vector<std::string> names_in(const std::string& folder, bool folders) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (const fs::directory_iterator end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    if (!name.starts_with('.') && (folders ? at->is_directory(ignored) : at->is_regular_file(ignored)))
      names.push_back(name);
  }
  if (error) throw RunError(fmt::format("{}: cannot be read: {}", folder, error.message()));
  return names;
}

std::string lower_extension(std::string_view name, std::size_t dot) {
  std::string extension(dot < name.size() ? name.substr(dot + 1) : "");
  for (char& c : extension)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return extension;
}

bool is_image_extension(std::string_view extension) {
  return extension == "jpg" || extension == "jpeg" || extension == "png" || extension == "bmp";
}

ImageFiles image_files_below(const std::string& folder) {
  ImageFiles found;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with('.')) continue;
    const std::string extension = lower_extension(name, name.rfind('.'));
    std::error_code ignored;
    if (is_other_picture(extension) && at->is_regular_file(ignored))
      found.left_out.other_formats.push_back(at->path().string());
    if (!is_image_extension(extension)) continue;
    if (at->is_regular_file(ignored))
      found.names.push_back(at->path().lexically_relative(folder).string());
    else if (at->is_symlink(ignored) && !at->exists(ignored))
      found.left_out.dangling_links.push_back(at->path().string());
  }
  if (error) throw RunError(fmt::format("{}: cannot be read: {}", folder, error.message()));
  for (std::vector<std::string>* files : {&found.left_out.dangling_links, &found.left_out.other_formats})
    std::sort(files->begin(), files->end());
  return found;
}

std::unique_ptr<ImageSource> open_image_source(const std::string& path, bool hold_out) {
  if (path.empty()) throw InputError("data provider 'image' needs --data-path, the folder of the data set");
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return open_image_tars(path);
  if (!fs::is_directory(path, ignored)) throw InputError(path + ": no such folder");
  if (fs::exists(fs::path(path) / "batches.meta", ignored)) return open_image_pickles(path);
  for (const std::string& name : names_in(find_parts(path)[0].folder, false))
    if (name.ends_with(".tar")) return open_image_tars(path);
  return open_image_folders(path, hold_out);
}

}  // namespace convnet
