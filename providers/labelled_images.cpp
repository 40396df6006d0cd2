#include "providers/labelled_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"
#include "providers/foreign_files.h"
#include "providers/image_parts.h"
#include "providers/label_table.h"
#include "providers/shard.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// Lists images whose classes are folders or stand in shards. Training images must be found first, because
/// they decide what the classes are.
class Finder {
 public:
  explicit Finder(LabelledImages& found) : found_(found) {}

  void find_part(const std::string& folder, std::vector<LabelledImage>& images);
  void find_shard(const std::string& path, std::vector<LabelledImage>& images);
  /// Names the classes of shards.
  void name_classes();

 private:
  void find_class(const std::string& folder, const std::string& name, std::vector<LabelledImage>& images);

  LabelledImages& found_;
  bool numbered_ = false;  // the images are in shards, where classes are numbers
  int most_label_ = -1;
};

void Finder::find_part(const std::string& folder, std::vector<LabelledImage>& images) {
  std::vector<std::string> classes = names_in(folder, true);
  std::sort(classes.begin(), classes.end());
  const std::vector<std::string> shards = tars_in(folder);
  if (!classes.empty() && !shards.empty())
    throw InputError(
        fmt::format("{}: holds folders ({}, …) and tar shards ({}, …): it should be one or the other", folder,
                    printable(classes[0]), printable(shards[0])));
  if (classes.empty() && shards.empty())
    throw InputError(
        folder +
        ": holds no images: folders CLASS/*.jpg|jpeg|jpe|jfif|png|bmp|webp, or *.tar shards with KEY.jpg and "
        "KEY.cls, should be in it, or train/ (and val/) with either; --labels names a table of "
        "the classes of photos in one folder" +
        foreign_files_text(folder));
  if (!classes.empty()) found_.left_out.loose_images.add(loose_images_in(folder));
  if (&images == &found_.training) found_.class_names = classes;
  for (const std::string& name : classes) find_class(folder, name, images);
  if (shards.empty() && images.empty())
    throw InputError(fmt::format("{}: there are no images ({}) in its folders", folder, kImageExtensions));
  for (const std::string& name : shards) find_shard((fs::path(folder) / name).string(), images);
  if (!shards.empty()) found_.left_out.packed_tars.add(packed_tars_in(folder));
}

void Finder::find_class(const std::string& parent, const std::string& name,
                        std::vector<LabelledImage>& images) {
  const fs::path folder = fs::path(parent) / name;
  if (numbered_)
    throw InputError(folder.string() +
                     ": a folder of a class, where training has shards with numbers of classes");
  const std::vector<std::string>& names = found_.class_names;
  const auto place = std::lower_bound(names.begin(), names.end(), name);
  if (place == names.end() || *place != name)
    throw InputError(fmt::format("{}: training has no class '{}'", folder.string(), printable(name)));
  const std::size_t first = images.size();
  const ImageFiles files = image_files_below(folder.string());
  for (const std::string& file : files.names) {
    const fs::path path = folder / file;
    images.push_back({path.lexically_relative(found_.folder).string(),
                      -1,
                      {0, fs::file_size(path)},
                      static_cast<int>(place - names.begin())});
  }
  found_.left_out.add(files.left_out);
  std::sort(images.begin() + static_cast<std::ptrdiff_t>(first), images.end(),
            [](const LabelledImage& a, const LabelledImage& b) { return a.name < b.name; });
}

void Finder::find_shard(const std::string& path, std::vector<LabelledImage>& images) {
  if (!found_.class_names.empty())
    throw InputError(path + ": a shard with numbers of classes, where training has folders with names");
  numbered_ = true;
  const auto tar = static_cast<std::int32_t>(found_.tars.size());
  found_.tars.push_back(std::make_shared<const InputFile>(path));
  const std::string shard = fs::path(path).filename().string();
  const Shard found = read_shard(*found_.tars.back());
  found_.left_out.add(found.left_out);
  for (const ShardImage& image : found.images) {
    most_label_ = std::max(most_label_, image.label);
    images.push_back({shard + ": " + image.name, tar, image.at, image.label});
  }
}

void Finder::name_classes() {
  if (!numbered_) return;
  if (!found_.folder.empty()) found_.class_names = read_class_names(found_.folder);
  const auto count = static_cast<int>(found_.class_names.size());
  if (count == 0)
    for (int label = 0; label <= most_label_; ++label) found_.class_names.push_back(std::to_string(label));
  else if (most_label_ >= count)
    throw InputError(fmt::format("{}: names {} classes, but there are images of class {}",
                                 (fs::path(found_.folder) / "classes.txt").string(), count, most_label_));
}

/// Lists photos whose classes stand in a table.
class PhotoFinder {
 public:
  explicit PhotoFinder(LabelledImages& found) : found_(found) {}

  void find_part(const std::string& folder, std::vector<LabelledImage>& images);
  void find_tar(const std::string& path, std::vector<LabelledImage>& images);
  /// Gives the photos their labels and leaves out those without a row; `where` is where the photos are.
  void label(const std::string& table, const std::string& where, LabelKind kind);

 private:
  const std::string& tar_of(const LabelledImage& image) const {
    return found_.tars[static_cast<std::size_t>(image.tar)]->path();
  }
  /// Returns the path of the image's tar below the folder, or its name alone if there is no folder.
  std::string path_of_tar(const LabelledImage& image) const {
    const fs::path tar = tar_of(image);
    return (found_.folder.empty() ? tar.filename() : tar.lexically_relative(found_.folder)).string();
  }

  LabelledImages& found_;
};

void PhotoFinder::find_part(const std::string& folder, std::vector<LabelledImage>& images) {
  const ImageFiles files = image_files_below(folder);
  const std::vector<std::string> tars = tars_in(folder);
  if (!files.names.empty() && !tars.empty())
    throw InputError(fmt::format("{}: holds photos ({}, …) and tars ({}, …): it should be one or the other",
                                 folder, printable(*std::min_element(files.names.begin(), files.names.end())),
                                 printable(tars[0])));
  for (const std::string& file : files.names) {
    const fs::path path = fs::path(folder) / file;
    images.push_back({path.lexically_relative(found_.folder).string(), -1, {0, fs::file_size(path)}, -1});
  }
  std::sort(images.begin(), images.end(),
            [](const LabelledImage& a, const LabelledImage& b) { return a.name < b.name; });
  found_.left_out.add(files.left_out);
  for (const std::string& tar : tars) find_tar((fs::path(folder) / tar).string(), images);
  if (!tars.empty()) found_.left_out.packed_tars.add(packed_tars_in(folder));
}

void PhotoFinder::find_tar(const std::string& path, std::vector<LabelledImage>& images) {
  const auto tar = static_cast<std::int32_t>(found_.tars.size());
  found_.tars.push_back(std::make_shared<const InputFile>(path));
  const TarImages found = image_members(*found_.tars.back());
  found_.left_out.add(found.left_out);
  for (const TarMember& member : found.images) {
    std::string_view name = member.name;
    if (name.starts_with("./")) name.remove_prefix(2);
    images.push_back({std::string(name), tar, member.at, -1});
  }
}

void PhotoFinder::label(const std::string& table, const std::string& where, LabelKind kind) {
  std::vector<PhotoName> names;
  for (const auto* images : {&found_.training, &found_.validation})
    for (const LabelledImage& image : *images) {
      const std::string tar = image.tar < 0 ? "" : path_of_tar(image) + "/";
      names.push_back({tar + image.name, tar.size()});
    }
  PhotoLabels labels = match_labels(parse_label_table(table, read_whole_file(table)), names, where, kind);
  found_.kind = labels.kind;
  found_.class_names = std::move(labels.names);
  found_.left_out.header = std::move(labels.header);
  if (found_.kind != LabelKind::classes)
    found_.left_out.kind = fmt::format(
        "{} {}{}{}", found_.class_names.size(), found_.kind == LabelKind::tags ? "tag" : "number",
        found_.class_names.size() == 1 ? "" : "s", found_.kind == LabelKind::tags ? "" : " of each photo");
  if (labels.may_be_numbers)
    found_.left_out.kind =
        fmt::format("{} classes, which are named by numbers; --label-kind numbers predicts numbers instead",
                    found_.class_names.size());
  auto label = labels.photos.begin();
  for (auto* images : {&found_.training, &found_.validation}) {
    std::vector<LabelledImage> kept;
    for (LabelledImage& image : *images) {
      PhotoLabel& of_photo = *label++;
      if (image.tar >= 0) image.name = fs::path(tar_of(image)).filename().string() + ": " + image.name;
      if (!of_photo.has_row) {
        found_.left_out.without_row.push_back(image.name);
        continue;
      }
      if (found_.kind == LabelKind::classes) image.label = of_photo.labels.at(0);
      if (found_.kind == LabelKind::tags) image.tags = std::move(of_photo.labels);
      image.numbers = std::move(of_photo.numbers);
      kept.push_back(std::move(image));
    }
    *images = std::move(kept);
  }
  if (found_.training.empty())
    throw InputError(fmt::format("{}: names no photo for training, only some for validation", table));
}

/// Returns whether there are photos in a folder, at any depth, or tars.
bool holds_photos(const std::string& folder) {
  return !tars_in(folder).empty() || !image_files_below(folder).names.empty();
}

}  // namespace

std::string LabelledImages::read(const LabelledImage& image) const {
  if (image.tar < 0) return read_whole_file((fs::path(folder) / image.name).string());
  return tars[static_cast<std::size_t>(image.tar)]->read(image.at.offset, image.at.size);
}

LabelledImages find_labelled_images(const std::string& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) throw InputError(folder + ": no such folder");
  LabelledImages found;
  found.folder = folder;
  Finder finder(found);
  try {
    const std::vector<ImagePart> parts = find_parts(folder);
    found.left_out.other_folders = folders_beside(folder, parts);
    finder.find_part(parts[0].folder, found.training);
    if (parts.size() > 1) finder.find_part(parts[1].folder, found.validation);
  } catch (const fs::filesystem_error& e) {
    throw RunError(fmt::format("{}: cannot be read: {}", e.path1().string(), e.code().message()));
  }
  finder.name_classes();
  return found;
}

LabelledImages find_labelled_images(const std::vector<std::string>& shards) {
  LabelledImages found;
  Finder finder(found);
  for (const std::string& shard : shards) finder.find_shard(shard, found.training);
  finder.name_classes();
  return found;
}

bool hold_out_tenth(LabelledImages& images, const std::string& folder) {
  if (!images.validation.empty()) return false;
  std::vector<std::string> names;
  for (const LabelledImage& image : images.training) names.push_back(image.name);
  const std::vector<bool> held_out = choose_held_out(folder, names);
  std::vector<LabelledImage> training;
  for (std::size_t i = 0; i < names.size(); ++i)
    (held_out[i] ? images.validation : training).push_back(std::move(images.training[i]));
  images.training = std::move(training);
  return true;
}

LabelledImages find_photos(const std::string& folder, const std::string& table, LabelKind kind) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) throw InputError(folder + ": no such folder");
  LabelledImages found;
  found.folder = folder;
  PhotoFinder finder(found);
  try {
    const std::vector<ImagePart> parts = find_parts(folder, holds_photos);
    found.left_out.other_folders = folders_beside(folder, parts);
    finder.find_part(parts[0].folder, found.training);
    if (parts.size() > 1) finder.find_part(parts[1].folder, found.validation);
  } catch (const fs::filesystem_error& e) {
    throw RunError(fmt::format("{}: cannot be read: {}", e.path1().string(), e.code().message()));
  }
  finder.label(table, folder, kind);
  return found;
}

LabelledImages find_photos(const std::vector<std::string>& tars, const std::string& table, LabelKind kind) {
  LabelledImages found;
  PhotoFinder finder(found);
  for (const std::string& tar : tars) finder.find_tar(tar, found.training);
  finder.label(table, fmt::format("{}", fmt::join(tars, ", ")), kind);
  return found;
}

}  // namespace convnet
