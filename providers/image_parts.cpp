#include "providers/image_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <span>
#include <system_error>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/file_format.h"
#include "convnet/base/philox.h"
#include "convnet/base/printable.h"
#include "convnet/base/text_file.h"
#include "providers/image_source.h"

namespace convnet {

namespace fs = std::filesystem;

namespace {

std::string lower_case(std::string_view name) {
  std::string lower(name);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

/// Returns whether a file or folder of this name is no part of a data set.
bool is_hidden(std::string_view name) { return name.starts_with('.') || name == "__MACOSX"; }

/// Returns whether an entry is a link to nothing, or to itself.
bool leads_nowhere(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_symlink(ignored) && !entry.exists(ignored);
}

/// Adds the folder `entry` to those that it lies in, behind links or not. Throws InputError if it is one of
/// them, because it would be searched forever.
void enter_folder(const fs::directory_entry& entry, std::vector<fs::path>& inside) {
  std::error_code error;
  inside.push_back(fs::canonical(entry.path(), error));
  if (error || std::find(inside.begin(), inside.end() - 1, inside.back()) == inside.end() - 1) return;
  throw InputError(entry.path().string() + ": links lead back to a folder that this one is in; remove them");
}

}  // namespace

std::vector<ImagePart> find_parts(const std::string& path, const HoldsImages& holds_images) {
  // The keys are names in small letters. Of folders whose names differ only in capitals, the first counts.
  std::map<std::string, std::string> folders;
  std::vector<std::string> names = names_in(path, true);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) folders.emplace(lower_case(name), name);
  const auto first_of = [&](std::span<const char* const> wanted, bool empty_too) -> std::optional<ImagePart> {
    for (const char* name : wanted) {
      const auto found = folders.find(name);
      if (found == folders.end()) continue;
      const std::string folder = (fs::path(path) / found->second).string();
      if (empty_too || holds_images(folder)) return ImagePart{found->second, folder, {}};
    }
    return std::nullopt;
  };
  constexpr std::array training = {"train", "training"};
  constexpr std::array tests = {"val", "valid", "validation", "test", "testing"};
  const std::optional<ImagePart> train = first_of(training, false);
  if (!train) {
    const auto is_for_tests = [&](const auto& folder) {
      return std::find(tests.begin(), tests.end(), folder.first) != tests.end();
    };
    if (!folders.empty() && std::all_of(folders.begin(), folders.end(), is_for_tests))
      throw InputError(fmt::format("{}: has only folders for tests ({}), none with training images (train)",
                                   path, printable(fmt::format("{}", fmt::join(names, ", ")))));
    return {{"", path, {}}};
  }
  std::vector<ImagePart> parts = {*train};
  std::optional<ImagePart> test = first_of(tests, false);
  if (!test) test = first_of(tests, true);
  if (test) parts.push_back(*test);
  return parts;
}

std::vector<ImagePart> find_parts(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {{"", path, {}}};
  return find_parts(path, [](const std::string& folder) {
    return !names_in(folder, true).empty() || !tars_in(folder).empty();
  });
}

namespace {

/// Returns whether there is an image in a folder, at any depth.
bool holds_image(const std::string& folder) {
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (is_hidden(name))
      at.disable_recursion_pending();
    else if (is_image_extension(lower_extension(name, name.rfind('.'))))
      return true;
  }
  return false;
}

}  // namespace

CountedFiles folders_beside(const std::string& path, const std::vector<ImagePart>& parts) {
  CountedFiles others;
  if (parts[0].folder == path) return others;
  std::vector<std::string> names = names_in(path, true);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string folder = (fs::path(path) / name).string();
    const bool is_part =
        std::any_of(parts.begin(), parts.end(), [&](const ImagePart& part) { return part.folder == folder; });
    if (!is_part && holds_image(folder)) others.add({1, folder});
  }
  return others;
}

CountedFiles loose_images_in(const std::string& folder) {
  std::vector<std::string> names = names_in(folder, false);
  std::erase_if(names, [](const std::string& name) {
    return !is_image_extension(lower_extension(name, name.rfind('.')));
  });
  if (names.empty()) return {};
  const auto first = std::min_element(names.begin(), names.end());
  return {std::ssize(names), (fs::path(folder) / *first).string()};
}

void refuse_among_classes(const std::string& option, const std::string& output, const std::string& path) {
  std::error_code ignored;
  if (output.empty() || !fs::is_directory(path, ignored)) return;
  if (has_image_batches(path)) return;
  for (const ImagePart& part : find_parts(path)) {
    if (tars_in(part.folder).empty() && lies_in(output, part.folder))
      throw InputError(
          fmt::format("{} {}: lies in {}, whose folders are the classes of the data set; choose a "
                      "folder outside",
                      option, output, part.folder));
  }
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
    if (is_hidden(name)) continue;
    if (leads_nowhere(*at) && !is_image_extension(lower_extension(name, name.rfind('.'))))
      throw InputError(at->path().string() + ": is a link that leads nowhere; mend or remove it");
    if ((folders ? at->is_directory(ignored) : at->is_regular_file(ignored))) names.push_back(name);
  }
  if (error) throw RunError(fmt::format("{}: cannot be read: {}", folder, error.message()));
  return names;
}

std::vector<std::string> tars_in(const std::string& folder) {
  std::vector<std::string> names = names_in(folder, false);
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".tar"); });
  std::sort(names.begin(), names.end(), natural_less);
  return names;
}

CountedFiles packed_tars_in(const std::string& folder) {
  CountedFiles packed;
  std::vector<std::string> names = names_in(folder, false);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names)
    for (const char* ending : {".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"})
      if (name.ends_with(ending)) packed.add({1, (fs::path(folder) / name).string()});
  return packed;
}

std::string lower_extension(std::string_view name, std::size_t dot) {
  return lower_case(dot < name.size() ? name.substr(dot + 1) : "");
}

bool is_image_extension(std::string_view extension) {
  return extension == "jpg" || extension == "jpeg" || extension == "jpe" || extension == "jfif" ||
         extension == "png" || extension == "bmp" || extension == "webp";
}

bool is_other_picture(std::string_view extension) {
  constexpr std::array<std::string_view, 11> others = {"avif", "gif", "heic", "heif", "jp2", "jxl",
                                                       "pgm",  "ppm", "tga",  "tif",  "tiff"};
  return std::find(others.begin(), others.end(), extension) != others.end();
}

namespace {

/// Returns whether a file is an image that could be read if its name said so.
bool is_unnamed_image(const fs::path& path) {
  try {
    const FileFormat* format = find_binary_format(format_bytes(InputFile(path.string())));
    return format != nullptr && format->kind == FileKind::picture;
  } catch (const std::runtime_error&) {  // RunError, InputError: it cannot be read
    return false;
  }
}

/// Throws RunError if the entries of a folder cannot be listed. The search would end without naming it.
void check_readable(const fs::path& folder) {
  std::error_code error;
  const fs::directory_iterator ignored(folder, error);
  if (error) throw RunError(fmt::format("{}: cannot be read: {}", folder.string(), error.message()));
}

}  // namespace

ImageFiles image_files_below(const std::string& folder) {
  ImageFiles found;
  std::vector<std::string> unnamed;
  std::error_code error;
  std::vector<fs::path> inside = {fs::canonical(folder, error)};
  fs::recursive_directory_iterator at(folder, fs::directory_options::follow_directory_symlink, error);
  for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (is_hidden(name)) {
      at.disable_recursion_pending();
      continue;
    }
    const std::string extension = lower_extension(name, name.rfind('.'));
    std::error_code ignored;
    inside.resize(static_cast<std::size_t>(at.depth()) + 1);
    if (at->is_directory(ignored)) {
      check_readable(at->path());
      enter_folder(*at, inside);
    }
    if (!is_image_extension(extension)) {
      if (!at->is_regular_file(ignored)) continue;
      if (is_other_picture(extension))
        found.left_out.other_formats.push_back(at->path().string());
      else if (is_unnamed_image(at->path()))
        unnamed.push_back(at->path().string());
      continue;
    }
    if (at->is_regular_file(ignored))
      found.names.push_back(at->path().lexically_relative(folder).string());
    else if (leads_nowhere(*at))
      found.left_out.dangling_links.push_back(at->path().string());
  }
  if (error) throw RunError(fmt::format("{}: cannot be read: {}", folder, error.message()));
  for (std::vector<std::string>* files :
       {&found.left_out.dangling_links, &found.left_out.other_formats, &unnamed})
    std::sort(files->begin(), files->end());
  if (!unnamed.empty()) found.left_out.unnamed = {std::ssize(unnamed), unnamed.front()};
  return found;
}

std::optional<std::int64_t> square_side(std::int64_t numbers, std::int64_t channels) {
  const double plane = static_cast<double>(numbers) / static_cast<double>(channels);
  const std::int64_t side = std::lround(std::sqrt(std::clamp(plane, 0.0, 1e12)));
  if (side < 1 || side > kMaxImageSide || channels * side * side != numbers) return std::nullopt;
  return side;
}

std::vector<bool> choose_held_out(const std::string& folder, const std::vector<std::string>& names) {
  constexpr std::uint64_t kShare = 10;
  if (names.size() < 2) throw InputError(folder + ": there is one image, and none is left to test with");
  std::vector<std::pair<std::uint64_t, std::string>> order;
  std::vector<bool> held_out;
  for (const std::string& name : names) {
    order.emplace_back(philox_key(0, name), name);
    held_out.push_back(order.back().first % kShare == 0);
  }
  const auto [first, last] = std::minmax_element(order.begin(), order.end());
  const auto count = std::count(held_out.begin(), held_out.end(), true);
  if (count == 0) held_out[static_cast<std::size_t>(last - order.begin())] = true;
  if (count == std::ssize(names)) held_out[static_cast<std::size_t>(first - order.begin())] = false;
  return held_out;
}

std::vector<std::string> read_class_names(const std::string& folder) {
  const std::string path = (fs::path(folder) / "classes.txt").string();
  std::vector<std::string> names;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return names;
  names = read_names(path);
  if (names.empty()) throw InputError(path + ": holds no name of a class");
  return names;
}

}  // namespace convnet
