// Folders of images, a class each.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <tuple>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/philox.h"
#include "providers/image_parts.h"
#include "providers/image_source.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

struct ImageFile {
  std::uint64_t order = 0;  ///< hash of class and name
  std::int32_t label = 0;
  std::string name;  ///< in the folder of its class
};

class ImageFolders final : public ImageSource {
 public:
  ImageFolders(const std::string& path, bool hold_out) : parts_(find_parts(path)) {
    classes_ = names_in(parts_[0].folder, true);
    std::sort(classes_.begin(), classes_.end());
    if (classes_.empty())
      throw InputError(fmt::format(
          "{}: there is no batches.meta (the original's batches), no tar and no folder of images here; "
          "photos belong into a folder for each class",
          parts_[0].folder));
    info_.classes = static_cast<std::int64_t>(classes_.size());
    info_.class_names = classes_;
    for (const ImagePart& part : parts_) files_.push_back(files_of(part.folder));
    if (hold_out && parts_.size() == 1) hold_out_tenth();
    std::vector<std::size_t> batches;
    for (const std::vector<ImageFile>& files : files_)
      batches.push_back((files.size() + dealt_batch_images - 1) / dealt_batch_images);
    number_parts(parts_, batches);
  }

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
    return std::min(dealt_batch_images,
                    static_cast<std::int64_t>(files_[part].size()) - first_of(part, batch));
  }

  std::string name(int batch, std::int64_t image) const override {
    const std::size_t part = part_of(batch);
    const ImageFile& file = files_[part][static_cast<std::size_t>(first_of(part, batch) + image)];
    return (fs::path(classes_[static_cast<std::size_t>(file.label)]) / file.name).string();
  }

  EncodedImage read(int batch, std::int64_t image) const override {
    const std::size_t part = part_of(batch);
    const ImageFile& file = files_[part][static_cast<std::size_t>(first_of(part, batch) + image)];
    const std::string path =
        (fs::path(parts_[part].folder) / classes_[static_cast<std::size_t>(file.label)] / file.name).string();
    return {path, read_whole_file(path), {file.label}};
  }

 private:
  std::size_t part_of(int batch) const { return parts_[0].batches.holds(batch) ? 0 : 1; }
  std::int64_t first_of(std::size_t part, int batch) const {
    return (batch - parts_[part].batches.first) * dealt_batch_images;
  }

  std::vector<ImageFile> files_of(const std::string& folder) {
    std::vector<ImageFile> files;
    for (const std::string& name : names_in(folder, true)) {
      const auto found = std::lower_bound(classes_.begin(), classes_.end(), name);
      if (found == classes_.end() || *found != name)
        throw InputError(fmt::format("{}: class '{}' is not in {}", folder, name, parts_[0].folder));
      add_files((fs::path(folder) / name).string(), static_cast<std::int32_t>(found - classes_.begin()),
                files);
    }
    if (files.empty())
      throw InputError(folder + ": there are no images (.jpg, .jpeg, .png, .bmp) in its folders");
    std::sort(files.begin(), files.end(), [](const ImageFile& a, const ImageFile& b) {
      return std::tie(a.order, a.label, a.name) < std::tie(b.order, b.label, b.name);
    });
    return files;
  }

  /// Makes a second part. Which images are in it does not change where others are added.
  void hold_out_tenth() {
    constexpr std::uint64_t kShare = 10;
    std::vector<ImageFile>& all = files_[0];
    if (all.size() < 2)
      throw InputError(parts_[0].folder + ": there is one image, and none is left to test with");
    auto held = std::stable_partition(all.begin(), all.end(),
                                      [](const ImageFile& file) { return file.order % kShare != 0; });
    // If there are few images, the hash may put all of them into one part.
    held = std::clamp(held, all.begin() + 1, all.end() - 1);
    std::vector<ImageFile> tests(std::make_move_iterator(held), std::make_move_iterator(all.end()));
    all.erase(held, all.end());
    files_.push_back(std::move(tests));
    parts_[0].name = "train";
    parts_.push_back({"held out", parts_[0].folder, {}});
    held_out_ = true;
  }

  void add_files(const std::string& folder, std::int32_t label, std::vector<ImageFile>& files) {
    ImageFiles found = image_files_below(folder);
    for (std::string& name : found.names) {
      const std::uint64_t order = philox_key(0, classes_[static_cast<std::size_t>(label)] + "/" + name);
      files.push_back({order, label, std::move(name)});
    }
    info_.left_out.add(found.left_out);
  }

  std::vector<ImagePart> parts_;
  std::vector<std::string> classes_;           // sorted
  std::vector<std::vector<ImageFile>> files_;  // by part, in the order of batches
  bool held_out_ = false;
};

}  // namespace

std::unique_ptr<ImageSource> open_image_folders(const std::string& folder, bool hold_out) {
  return std::make_unique<ImageFolders>(folder, hold_out);
}

}  // namespace convnet
