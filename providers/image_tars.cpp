// Shards of images and labels, in the style of WebDataset.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>
#include <system_error>

#include "convnet/base/error.h"
#include "providers/image_parts.h"
#include "providers/image_source.h"
#include "providers/tar.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

using Shard = std::vector<ShardImage>;

/// The number in a .cls file.
std::int32_t read_label(const InputFile& file, const TarMember& member, std::int64_t classes) {
  const auto fail = [&](const std::string& what) {
    throw InputError(fmt::format("{}: {}: {}", file.path(), printable(member.name), what));
  };
  constexpr std::uint64_t most = 32;
  const std::string text = file.read(member.at.offset, std::min(member.at.size, most));
  const auto blank = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  const auto begin = std::find_if_not(text.begin(), text.end(), blank);
  const auto end = std::find_if_not(text.rbegin(), text.rend(), blank).base();
  std::int32_t label = -1;
  const char* const last = text.data() + (end - text.begin());
  const auto parsed = std::from_chars(text.data() + (begin - text.begin()), last, label);
  if (member.at.size > most || begin >= end || parsed.ec != std::errc() || parsed.ptr != last)
    fail(fmt::format("'{}' is not the number of a class", printable(text)));
  if (label < 0 || label >= classes) fail(fmt::format("class {}; classes are 0 to {}", label, classes - 1));
  return label;
}

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
      info_.classes = max_classes;
      std::int32_t largest = 0;
      for (std::size_t s = 0; s < shards_.size(); ++s)
        for (const ShardImage& image : *shard(static_cast<int>(s) + 1))
          largest = std::max(largest, image.label);
      info_.classes = std::int64_t{largest} + 1;
    }
  }

  bool has(int batch) const override { return batch >= 1 && batch <= static_cast<int>(shards_.size()); }
  std::string contents() const override { return parts_text(parts_); }
  std::optional<BatchSplit> split() const override { return split_of(parts_); }

  std::int64_t images_in(int batch) const override {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = read_.find(batch); found != read_.end())
        return static_cast<std::int64_t>(found->second->size());
    }
    constexpr std::uint64_t least = 1024;  // bytes of an image in a tar
    return static_cast<std::int64_t>(std::max<std::uint64_t>(1, InputFile(path_of(batch)).size() / least));
  }

  Extent extent(int batch, std::int64_t first, std::int64_t count) const override {
    const std::int64_t left =
        std::max<std::int64_t>(0, static_cast<std::int64_t>(shard(batch)->size()) - first);
    return {std::min(count, left), count >= left};
  }

  std::string name(int batch, std::int64_t image) const override {
    return (*shard(batch))[static_cast<std::size_t>(image)].name;
  }

  EncodedImage read(int batch, std::int64_t image) const override {
    const std::shared_ptr<const Shard> images = shard(batch);
    const ShardImage& it = (*images)[static_cast<std::size_t>(image)];
    // Opened for each image: there may be more shards than files may be open.
    const InputFile file(path_of(batch));
    return {fmt::format("{}: {}", file.path(), printable(it.name)),
            file.read(it.at.offset, it.at.size),
            {it.label}};
  }

 private:
  const std::string& path_of(int batch) const { return shards_[static_cast<std::size_t>(batch - 1)]; }

  std::size_t add_shards(const std::string& folder) {
    std::vector<std::string> names = names_in(folder, false);
    std::erase_if(names, [](const std::string& name) { return !name.ends_with(".tar"); });
    if (names.empty()) throw InputError(folder + ": there is no tar here, as there is beside it");
    std::sort(names.begin(), names.end(), natural_less);
    for (const std::string& name : names) shards_.push_back((fs::path(folder) / name).string());
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
  mutable std::map<int, std::shared_ptr<const Shard>> read_;  // by batch, under the mutex
};

}  // namespace

std::vector<ShardImage> read_shard(const InputFile& file, std::int64_t classes) {
  const std::string& path = file.path();
  struct Pair {
    const TarMember *image = nullptr, *label = nullptr;
  };
  const std::vector<TarMember> members = index_tar(file);
  std::map<std::string_view, Pair> pairs;
  std::vector<std::string_view> order;  // keys of images
  for (const TarMember& member : members) {
    const std::string_view name = member.name;
    const std::size_t base = name.rfind('/') + 1;  // 0 without one
    const std::size_t dot = name.find('.', base);
    if (dot == base || dot == std::string_view::npos) continue;  // hidden, or without extension
    const std::string extension = lower_extension(name, dot);
    const bool is_image = is_image_extension(extension);
    if (!is_image && extension != "cls") continue;
    Pair& pair = pairs[name.substr(0, dot)];
    const TarMember*& place = is_image ? pair.image : pair.label;
    if (place)
      throw InputError(
          fmt::format("{}: '{}' and '{}' are of one image", path, printable(place->name), printable(name)));
    place = &member;
    if (is_image) order.push_back(name.substr(0, dot));
  }
  for (const auto& [key, pair] : pairs)
    if (!pair.image || !pair.label)
      throw InputError(fmt::format(
          "{}: '{}' is there without {}", path, printable((pair.image ? pair.image : pair.label)->name),
          pair.image ? "its .cls, the label" : "an image (.jpg, .jpeg, .png, .bmp)"));
  if (order.empty()) throw InputError(path + ": there are no images (.jpg, .jpeg, .png, .bmp) in it");
  std::vector<ShardImage> shard;
  for (const std::string_view key : order) {
    const Pair& pair = pairs[key];
    shard.push_back({pair.image->name, pair.image->at, read_label(file, *pair.label, classes)});
  }
  return shard;
}

std::vector<std::string> read_class_names(const std::string& folder) {
  const std::string path = (fs::path(folder) / "classes.txt").string();
  std::vector<std::string> names;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return names;
  std::istringstream lines(read_whole_file(path));
  for (std::string line; std::getline(lines, line);) {
    line.resize(line.find_last_not_of(" \t\r") + 1);
    if (!line.empty()) names.push_back(line);
  }
  if (names.empty()) throw InputError(path + ": holds no name of a class");
  return names;
}

std::unique_ptr<ImageSource> open_image_tars(const std::string& path) {
  return std::make_unique<ImageTars>(path);
}

}  // namespace convnet
