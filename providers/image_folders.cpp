// Folders of images: a class each, or photos whose classes stand in a table.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/philox.h"
#include "providers/foreign_files.h"
#include "providers/image_parts.h"
#include "providers/image_source.h"
#include "providers/labelled_images.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// An image with its place in the order of batches.
struct DealtImage {
  std::uint64_t order = 0;  ///< hash of the name
  LabelledImage image;
};

/// Images that are dealt to batches of kDealtBatchImages, in an order that depends only on their names.
class DealtImages : public ImageSource {
 public:
  bool has(int batch) const override {
    return std::any_of(parts_.begin(), parts_.end(),
                       [&](const ImagePart& p) { return p.batches.holds(batch); });
  }
  std::string contents() const override { return parts_text(parts_); }
  std::optional<BatchSplit> split() const override {
    BatchSplit split = split_of(parts_);
    split.held_out = held_out_;
    return split;
  }
  std::int64_t images_in(int batch) const override {
    const std::size_t part = part_of(batch);
    return std::min(kDealtBatchImages,
                    static_cast<std::int64_t>(images_[part].size()) - first_of(part, batch));
  }
  bool knows_labels() const override { return true; }
  std::string name(int batch, std::int64_t image) const override { return at(batch, image).name; }
  ImageLabels labels(int batch, std::int64_t image) const override { return labels_of(at(batch, image)); }

 protected:
  /// Deals the images of each part. With `hold_out`, a tenth of the images of a single part becomes a second
  /// one.
  void deal(std::vector<ImagePart> parts, std::vector<std::vector<DealtImage>> images, bool hold_out) {
    parts_ = std::move(parts);
    images_ = std::move(images);
    for (std::vector<DealtImage>& of_part : images_)
      std::sort(of_part.begin(), of_part.end(), [](const DealtImage& a, const DealtImage& b) {
        return std::tie(a.order, a.image.label, a.image.name) <
               std::tie(b.order, b.image.label, b.image.name);
      });
    if (hold_out && parts_.size() == 1) hold_out_tenth();
    std::vector<std::size_t> batches;
    for (const std::vector<DealtImage>& of_part : images_)
      batches.push_back((of_part.size() + kDealtBatchImages - 1) / kDealtBatchImages);
    number_parts(parts_, batches);
  }

  /// Returns the class, the tags or the numbers of an image.
  ImageLabels labels_of(const LabelledImage& image) const {
    if (info_.has_tags) return {image.tags};
    if (!info_.number_names.empty()) return {{}, image.numbers};
    return {{image.label}};
  }
  std::size_t part_of(int batch) const { return parts_[0].batches.holds(batch) ? 0 : 1; }
  const ImagePart& part(int batch) const { return parts_[part_of(batch)]; }
  const LabelledImage& at(int batch, std::int64_t image) const {
    const std::size_t part = part_of(batch);
    return images_[part][static_cast<std::size_t>(first_of(part, batch) + image)].image;
  }

 private:
  std::int64_t first_of(std::size_t part, int batch) const {
    return (batch - parts_[part].batches.first) * kDealtBatchImages;
  }

  /// Makes a second part.
  void hold_out_tenth() {
    std::vector<std::string> names;
    for (const DealtImage& image : images_[0]) names.push_back(image.image.name);
    if (names.size() == 1)
      throw InputError(parts_[0].folder +
                       ": there is one image, and none is left to test with. With --train-range 1 "
                       "--test-range 1 a run would be tested on the image that it trains on");
    const std::vector<bool> held_out = choose_held_out(parts_[0].folder, names);
    std::vector<DealtImage> training, tests;
    for (std::size_t i = 0; i < names.size(); ++i)
      (held_out[i] ? tests : training).push_back(std::move(images_[0][i]));
    images_ = {std::move(training), std::move(tests)};
    parts_[0].name = "train";
    parts_.push_back({"held out", parts_[0].folder, {}});
    held_out_ = true;
  }

  std::vector<ImagePart> parts_;
  std::vector<std::vector<DealtImage>> images_;  // by part, in the order of batches
  bool held_out_ = false;
};

/// A folder for each class.
class ClassFolders final : public DealtImages {
 public:
  ClassFolders(const std::string& path, bool hold_out) {
    const std::vector<ImagePart> parts = find_parts(path);
    std::vector<std::string>& classes = info_.class_names;
    classes = names_in(parts[0].folder, true);
    std::sort(classes.begin(), classes.end());
    if (classes.empty())
      throw InputError(fmt::format(
          "{}: there is no batches.meta (batches of cuda-convnet2), no tar and no folder of images here; "
          "photos belong in a folder for each class, or --labels names a table of their classes{}",
          parts[0].folder, foreign_files_text(parts[0].folder)));
    info_.classes = static_cast<std::int64_t>(classes.size());
    info_.left_out.other_folders = folders_beside(path, parts);
    std::vector<std::vector<DealtImage>> images;
    for (const ImagePart& part : parts) {
      info_.left_out.loose_images.add(loose_images_in(part.folder));
      images.push_back(images_of(part.folder, parts[0].folder));
    }
    deal(parts, std::move(images), hold_out);
  }

  EncodedImage read(int batch, std::int64_t image) const override {
    const LabelledImage& found = at(batch, image);
    const std::string path = (fs::path(part(batch).folder) / found.name).string();
    return {path, read_whole_file(path), labels_of(found)};
  }
  std::optional<PictureOrigin> origin(int batch, std::int64_t image) const override {
    return picture_origin((fs::path(part(batch).folder) / at(batch, image).name).string());
  }

 private:
  std::vector<DealtImage> images_of(const std::string& folder, const std::string& training) {
    const std::vector<std::string>& classes = info_.class_names;
    std::vector<DealtImage> images;
    for (const std::string& name : names_in(folder, true)) {
      const auto found = std::lower_bound(classes.begin(), classes.end(), name);
      if (found == classes.end() || *found != name)
        throw InputError(fmt::format("{}: class '{}' is not in {}", folder, name, training));
      const ImageFiles files = image_files_below((fs::path(folder) / name).string());
      for (const std::string& file : files.names) {
        const std::string below = name + "/" + file;
        images.push_back(
            {philox_key(0, below), {below, -1, {}, static_cast<std::int32_t>(found - classes.begin())}});
      }
      info_.left_out.add(files.left_out);
    }
    if (images.empty()) {
      const bool has_batches = std::ranges::any_of(
          classes, [](const std::string& name) { return name.starts_with("data_batch_"); });
      const std::string instead = left_out_text(info_.left_out);
      throw InputError(
          fmt::format("{}: there are no images ({}) in its folders{}{}", folder, kImageExtensions,
                      has_batches ? "; cuda-convnet2's batches need their batches.meta beside them" : "",
                      instead.empty() ? "" : "\n" + instead));
    }
    return images;
  }
};

/// Photos, in folders or tars, whose classes, tags or numbers stand in a table.
class PhotosWithTable final : public DealtImages {
 public:
  PhotosWithTable(const std::string& path, LabelledImages photos, bool hold_out)
      : photos_(std::move(photos)) {
    if (photos_.kind == LabelKind::numbers) {
      info_.number_names = photos_.class_names;
    } else {
      info_.class_names = photos_.class_names;
      info_.classes = static_cast<std::int64_t>(photos_.class_names.size());
      info_.has_tags = photos_.kind == LabelKind::tags;
    }
    info_.left_out = photos_.left_out;
    std::vector<ImagePart> parts = {{"", path, {}}};
    std::vector<std::vector<DealtImage>> images = {dealt(std::move(photos_.training))};
    if (!photos_.validation.empty()) {
      parts[0].name = "train";
      parts.push_back({"val", path, {}});
      images.push_back(dealt(std::move(photos_.validation)));
    }
    deal(std::move(parts), std::move(images), hold_out);
  }

  EncodedImage read(int batch, std::int64_t image) const override {
    const LabelledImage& photo = at(batch, image);
    const std::string name = photo.tar < 0 ? (fs::path(photos_.folder) / photo.name).string() : photo.name;
    return {name, photos_.read(photo), labels_of(photo)};
  }
  std::optional<PictureOrigin> origin(int batch, std::int64_t image) const override {
    const LabelledImage& photo = at(batch, image);
    if (photo.tar < 0) return picture_origin((fs::path(photos_.folder) / photo.name).string());
    return picture_origin(photos_.tars[static_cast<std::size_t>(photo.tar)]->path(),
                          fmt::format("@{}+{}", photo.at.offset, photo.at.size));
  }

 private:
  static std::vector<DealtImage> dealt(std::vector<LabelledImage> photos) {
    std::vector<DealtImage> images;
    images.reserve(photos.size());
    for (LabelledImage& photo : photos) images.push_back({philox_key(0, photo.name), std::move(photo)});
    return images;
  }

  LabelledImages photos_;  // its lists of images are empty
};

}  // namespace

std::unique_ptr<ImageSource> open_image_folders(const std::string& folder, bool hold_out) {
  return std::make_unique<ClassFolders>(folder, hold_out);
}

std::unique_ptr<ImageSource> open_photos(const std::string& path, const std::string& table, LabelKind kind,
                                         bool hold_out) {
  std::error_code ignored;
  LabelledImages photos = fs::is_regular_file(path, ignored) ? find_photos(std::vector{path}, table, kind)
                                                             : find_photos(path, table, kind);
  return std::make_unique<PhotosWithTable>(path, std::move(photos), hold_out);
}

}  // namespace convnet
