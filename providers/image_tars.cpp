// Shards of images and labels, in the style of WebDataset.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"
#include "providers/image_parts.h"
#include "providers/image_source.h"
#include "providers/shard.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

class ImageTars final : public ImageSource {
 public:
  explicit ImageTars(const std::string& path) {
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) {
      parts_ = {{"", fs::path(path).parent_path().string(), {1, 1}}};
      shards_ = {path};
    } else {
      parts_ = find_parts(path);
      std::vector<std::size_t> batches;
      for (const ImagePart& part : parts_) batches.push_back(add_shards(part.folder));
      number_parts(parts_, batches);
    }
    const std::string beside = fs::is_regular_file(path, ignored) ? parts_[0].folder : path;
    info_.class_names = read_class_names(beside);
    info_.classes = static_cast<std::int64_t>(info_.class_names.size());
    if (info_.classes == 0) {
      info_.classes = kMaxClasses;
      std::int32_t largest = 0;
      for (std::size_t s = 0; s < shards_.size(); ++s)
        for (const ShardImage& image : shard(static_cast<int>(s) + 1)->images)
          largest = std::max(largest, image.label);
      info_.classes = std::int64_t{largest} + 1;
    }
  }

  bool has(int batch) const override { return batch >= 1 && batch <= static_cast<int>(shards_.size()); }
  LeftOutFiles left_out() const override {
    const std::lock_guard lock(mutex_);
    LeftOutFiles all = info_.left_out;
    for (const auto& [batch, shard] : read_) all.add(shard->left_out);
    return all;
  }
  std::string contents() const override { return parts_text(parts_); }
  std::optional<BatchSplit> split() const override { return split_of(parts_); }

  std::int64_t images_in(int batch) const override {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = read_.find(batch); found != read_.end())
        return std::ssize(found->second->images);
    }
    constexpr std::uint64_t least = 1024;  // bytes of an image in a tar
    return static_cast<std::int64_t>(std::max<std::uint64_t>(1, InputFile(path_of(batch)).size() / least));
  }

  Extent extent(int batch, std::int64_t first, std::int64_t count) const override {
    const std::int64_t left = std::max<std::int64_t>(0, std::ssize(shard(batch)->images) - first);
    return {std::min(count, left), count >= left};
  }

  std::string name(int batch, std::int64_t image) const override {
    return shard(batch)->images[static_cast<std::size_t>(image)].name;
  }
  ImageLabels labels(int batch, std::int64_t image) const override {
    return {{shard(batch)->images[static_cast<std::size_t>(image)].label}};
  }

  EncodedImage read(int batch, std::int64_t image) const override {
    const std::shared_ptr<const Shard> in = shard(batch);
    const ShardImage& it = in->images[static_cast<std::size_t>(image)];
    // The file is opened for each image, because there may be more shards than a process may have open files.
    const InputFile file(path_of(batch));
    return {fmt::format("{}: {}", file.path(), printable(it.name)),
            file.read(it.at.offset, it.at.size),
            {{it.label}}};
  }
  std::optional<PictureOrigin> origin(int batch, std::int64_t image) const override {
    const FileRegion at = shard(batch)->images[static_cast<std::size_t>(image)].at;
    return picture_origin(path_of(batch), fmt::format("@{}+{}", at.offset, at.size));
  }

 private:
  const std::string& path_of(int batch) const { return shards_[static_cast<std::size_t>(batch - 1)]; }

  /// Adds the shards of a folder and returns their number.
  std::size_t add_shards(const std::string& folder) {
    const std::vector<std::string> names = tars_in(folder);
    if (names.empty()) throw InputError(folder + ": there is no tar here, as there is beside it");
    for (const std::string& name : names) shards_.push_back((fs::path(folder) / name).string());
    info_.left_out.packed_tars.add(packed_tars_in(folder));
    return names.size();
  }

  std::shared_ptr<const Shard> shard(int batch) const {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const Shard>& known = read_[batch];
    if (!known) {
      try {
        known = std::make_shared<const Shard>(read_shard(InputFile(path_of(batch)), info_.classes));
      } catch (...) {
        read_.erase(batch);
        throw;
      }
    }
    return known;
  }

  std::vector<ImagePart> parts_;
  std::vector<std::string> shards_;
  mutable std::mutex mutex_;
  /// The shards that were read, by batch; mutex_ guards it.
  mutable std::map<int, std::shared_ptr<const Shard>> read_;
};

}  // namespace

std::unique_ptr<ImageSource> open_image_tars(const std::string& path) {
  return std::make_unique<ImageTars>(path);
}

}  // namespace convnet
