// Batches of cuda-convnet2's images: pickled lists of JPEGs.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"
#include "providers/image_parts.h"
#include "providers/image_source.h"
#include "providers/pickle.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBatchPrefix = "data_batch_";

/// Returns the number if `name` is `prefix` with a number behind it.
std::optional<int> number_behind(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number < 0) return std::nullopt;
  return number;
}

/// The contents of a file of a batch.
struct SubBatch {
  PickleValue root;  ///< owns the memory of `images`
  std::vector<std::string_view> images;
  std::vector<std::vector<std::int32_t>> labels;
  std::vector<std::string> names;  ///< names of the images, or none
};

/// The numbering of classes: labels begin at -offset.
struct LabelRule {
  std::int64_t offset = 0, classes = 0;

  std::int32_t apply(std::int64_t label, const PickleValue& where, std::size_t image) const {
    if (label < -offset || label >= classes - offset)
      where.fail(fmt::format("image {} (counted from 0) is of class {}; classes are {} to {}", image, label,
                             -offset, classes - 1 - offset));
    return static_cast<std::int32_t>(label + offset);
  }
};

std::vector<std::vector<std::int32_t>> read_labels(const PickleValue& labels, const LabelRule& rule) {
  std::vector<std::vector<std::int32_t>> all;
  if (!labels.is_sequence()) {
    for (const std::int64_t label : labels.integers("labels"))
      all.push_back({rule.apply(label, labels, all.size())});
    return all;
  }
  std::size_t count = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const PickleValue of_image = labels[i];
    count += of_image.size();
    if (count > labels.file_bytes())
      labels.fail("there are more labels than the file has bytes: it repeats lists of them");
    std::vector<std::int32_t>& out = all.emplace_back();
    if (of_image.kind() == PickleKind::integer || of_image.kind() == PickleKind::real) {
      const std::string what = fmt::format("the label of image {} (counted from 0)", i);
      out.push_back(rule.apply(of_image.integer(what), of_image, i));
    } else {
      if (of_image.size() > static_cast<std::size_t>(rule.classes))
        of_image.fail(fmt::format("image {} (counted from 0) has {} labels", i, of_image.size()));
      for (const std::int64_t label : of_image.integers("the labels of an image"))
        out.push_back(rule.apply(label, of_image, i));
    }
  }
  return all;
}

SubBatch read_sub_batch(const std::string& path, const LabelRule& rule) {
  SubBatch read{read_pickle(path), {}, {}, {}};
  const PickleValue data = read.root.at("data");
  if (!data.is_sequence() || data.size() == 0)
    data.fail(fmt::format("data should be a list of JPEGs, not {}{}", data.describe(),
                          data.kind() == PickleKind::array ? "; --data-provider cifar reads arrays" : ""));
  for (std::size_t i = 0; i < data.size(); ++i) read.images.push_back(data[i].string("an image"));
  const PickleValue labels = read.root.at("labels");
  read.labels = read_labels(labels, rule);
  if (read.labels.size() != read.images.size())
    labels.fail(
        fmt::format("there are labels of {} images for {} images", read.labels.size(), read.images.size()));
  read.names = read_file_names(read.root, std::ssize(read.images));
  return read;
}

class ImagePickles final : public ImageSource {
 public:
  explicit ImagePickles(const std::string& folder) {
    read_meta((fs::path(folder) / "batches.meta").string());
    for (const bool folders : {false, true})
      for (const std::string& name : names_in(folder, folders))
        if (const std::optional<int> number = number_behind(name, kBatchPrefix)) {
          std::vector<std::string>& files = files_[*number];
          if (!files.empty()) throw InputError(fmt::format("{}: batch {} is there twice", folder, *number));
          const std::string path = (fs::path(folder) / name).string();
          files = folders ? files_of(path, name) : std::vector{path};
        }
    if (files_.empty()) throw InputError(folder + ": there is no data_batch_N here, beside batches.meta");
  }

  bool has(int batch) const override { return files_.contains(batch); }
  std::string contents() const override {
    std::vector<int> numbers;
    for (const auto& [number, files] : files_) numbers.push_back(number);
    return batches_text(numbers);
  }

  /// `convnet make-data` numbers batches of training from 0, and those of tests from the next multiple of
  /// 1000.
  std::optional<BatchSplit> split() const override {
    constexpr int kThousand = 1000;
    const int first = files_.begin()->first, last = files_.rbegin()->first;
    int end = first;
    while (files_.contains(end + 1)) ++end;
    if (end == last) return BatchSplit{{first, last}, {}};
    const auto next = files_.upper_bound(end);
    const bool rest_is_tests =
        next->first % kThousand == 0 && last - next->first + 1 == std::distance(next, files_.end());
    if (!rest_is_tests) return std::nullopt;
    return BatchSplit{{first, end}, BatchRange{next->first, last}};
  }

  bool any_order() const override { return false; }  // a file is read whole

  std::string name(int batch, std::int64_t image) const override {
    const std::lock_guard lock(mutex_);
    for (const std::string& path : files_.at(batch)) {
      if (!counts_.contains(path)) get(path);
      if (image < counts_.at(path)) {
        const auto names = names_.find(path);
        return names == names_.end() ? "" : names->second[static_cast<std::size_t>(image)];
      }
      image -= counts_.at(path);
    }
    return "";
  }

  std::int64_t images_in(int batch) const override {
    const std::lock_guard lock(mutex_);
    std::int64_t images = 0;
    for (const std::string& path : files_.at(batch)) {
      const auto known = counts_.find(path);
      if (known == counts_.end()) return batch_size_;
      images += known->second;
    }
    return images;
  }

  Extent extent(int batch, std::int64_t first, std::int64_t count) const override {
    const std::lock_guard lock(mutex_);
    const std::vector<std::string>& paths = files_.at(batch);
    const std::int64_t end = first < LoadRequest::all - count ? first + count : LoadRequest::all;
    auto needed = std::make_shared<Files>();
    std::int64_t begins = 0;  // index in the batch of the file's first image
    bool last = true;
    for (const std::string& path : paths) {
      if (begins >= end) {
        last = false;
        break;
      }
      const auto known = counts_.find(path);
      const bool before = known != counts_.end() && begins + known->second <= first;
      if (!before) {
        std::shared_ptr<const SubBatch> file = get(path);
        if (begins + counts_.at(path) > first) needed->emplace(path, std::move(file));
      }
      begins += counts_.at(path);
      if (begins > batch_size_)
        throw InputError(fmt::format("{}: with it, batch {} has {} images; batches.meta says {} (batch_size)",
                                     path, batch, begins, batch_size_));
    }
    std::erase_if(open_, [](const auto& file) { return file.second.expired(); });
    for (const auto& [path, file] : *needed) open_[path] = file;
    latest_ = needed;
    return {std::max<std::int64_t>(0, std::min(end, begins) - first), last && end >= begins, needed};
  }

  EncodedImage read(int batch, std::int64_t image) const override {
    std::shared_ptr<const SubBatch> file;
    std::string path;
    {
      const std::lock_guard lock(mutex_);
      auto at = files_.at(batch).begin();
      for (; image >= counts_.at(*at); ++at) image -= counts_.at(*at);
      path = *at;
      file = get(path);
    }
    const auto i = static_cast<std::size_t>(image);
    return {fmt::format("{}: image {} (counted from 0)", path, image),
            std::string(file->images[i]),
            {file->labels[i]}};
  }
  std::optional<PictureOrigin> origin(int batch, std::int64_t image) const override {
    const std::lock_guard lock(mutex_);
    auto at = files_.at(batch).begin();
    for (; image >= counts_.at(*at); ++at) image -= counts_.at(*at);
    return picture_origin(*at, fmt::format("#{}", image));
  }

 private:
  using Files = std::map<std::string, std::shared_ptr<const SubBatch>>;

  /// Returns the contents of a file. Also keeps the number and the names of its images. The caller holds
  /// mutex_.
  std::shared_ptr<const SubBatch> get(const std::string& path) const {
    if (const auto found = open_.find(path); found != open_.end())
      if (std::shared_ptr<const SubBatch> file = found->second.lock()) return file;
    SubBatch file = read_sub_batch(path, rule_);
    counts_[path] = static_cast<std::int64_t>(file.images.size());
    if (!file.names.empty()) names_[path] = std::exchange(file.names, {});
    return std::make_shared<const SubBatch>(std::move(file));
  }

  /// Returns the files `name`.0, `name`.1, ... in the folder of a batch.
  static std::vector<std::string> files_of(const std::string& folder, const std::string& name) {
    std::map<int, std::string> numbered;
    for (const std::string& file : names_in(folder, false))
      if (const std::optional<int> k = number_behind(file, name + "."))
        numbered[*k] = (fs::path(folder) / file).string();
    std::vector<std::string> files;
    for (const auto& [k, path] : numbered) {
      if (k != static_cast<int>(files.size()))
        throw InputError(fmt::format("{}: {}.{} is missing", folder, name, files.size()));
      files.push_back(path);
    }
    if (files.empty()) throw InputError(fmt::format("{}: there is no {}.0 in it", folder, name));
    return files;
  }

  void read_meta(const std::string& path) {
    const PickleValue meta = read_pickle(path);
    const PickleValue names = meta.at("label_names");
    if (!names.is_sequence() || names.size() == 0)
      names.fail(fmt::format("label_names should be a list of names, not {}", names.describe()));
    info_.classes = rule_.classes = static_cast<std::int64_t>(names.size());
    info_.class_names = names.strings("label_names", true);
    if (const auto offset = meta.find("label_offset")) {
      rule_.offset = offset->integer("label_offset");
      if (std::abs(static_cast<double>(rule_.offset)) > 1e9)
        offset->fail(fmt::format("a label_offset of {}", rule_.offset));
    }
    if (const auto kind = meta.find("label_kind")) {
      const std::string_view text = kind->string("label_kind");
      info_.has_tags = text == kMetaTags;
      if (!info_.has_tags && text != kMetaClasses)
        kind->fail(fmt::format("a label_kind of {}; it is {} or {}", excerpt(text), kMetaClasses, kMetaTags));
    }
    const auto size = meta.find("batch_size");
    batch_size_ = (size ? *size : meta.at("num_cases_per_batch")).integer("batch_size");
    if (batch_size_ < 1 || batch_size_ > 1'000'000'000)
      meta.fail(fmt::format("batches of {} images (batch_size)", batch_size_));
    info_.image_size = static_cast<int>(read_side(meta));
    if (const auto mean = meta.find("data_mean")) read_mean(*mean);
    if (const auto pca = meta.find("color_pca")) read_pca(*pca);
  }

  /// Returns img_size, or without it the side of num_vis pixels, to which cuda-convnet2 cuts images then.
  static std::int64_t read_side(const PickleValue& meta) {
    const auto size = meta.find("img_size"), num_vis = meta.find("num_vis"), mean = meta.find("data_mean");
    if (size || (!num_vis && !mean)) {
      const std::int64_t side = meta.at("img_size").integer("img_size");
      if (side < 1 || side > kMaxImageSide)
        meta.fail(fmt::format("images of size {} (img_size); 1 to {} are possible", side, kMaxImageSide));
      return side;
    }
    const std::int64_t numbers =
        num_vis ? num_vis->integer("num_vis") : std::ssize(mean->numbers("data_mean"));
    const std::optional<std::int64_t> side = square_side(numbers, 3);
    if (!side)
      meta.fail(
          fmt::format("images of {} numbers ({}) are not square with 3 channels, of side 1 to {}; img_size "
                      "may say their side",
                      numbers, num_vis ? "num_vis" : "data_mean", kMaxImageSide));
    return *side;
  }

  void read_mean(const PickleValue& mean) {
    info_.mean = read_mean_image(mean);
    const auto expected = std::size_t{3} * static_cast<std::size_t>(info_.image_size * info_.image_size);
    if (info_.mean.size() != expected)
      mean.fail(fmt::format("data_mean has {} numbers; images of size {} have {}", info_.mean.size(),
                            info_.image_size, expected));
  }

  void read_pca(const PickleValue& pca) {
    if (!pca.is_sequence() || pca.size() != 2)
      pca.fail(fmt::format("color_pca should be three standard deviations and 3 x 3 axes, not {}",
                           pca.describe()));
    const std::vector<double> deviations = pca[0].numbers("color_pca"), axes = pca[1].numbers("color_pca");
    if (deviations.size() != 3 || axes.size() != 9)
      pca.fail("color_pca should be three standard deviations and 3 x 3 axes");
    info_.color_pca.assign(deviations.begin(), deviations.end());
    info_.color_pca.insert(info_.color_pca.end(), axes.begin(), axes.end());
    if (!std::all_of(info_.color_pca.begin(), info_.color_pca.end(),
                     [](float v) { return std::abs(v) < 1e6F; }))
      pca.fail("color_pca holds numbers that are not finite, or beyond any colour");
  }

  LabelRule rule_;
  std::int64_t batch_size_ = 0;
  std::map<int, std::vector<std::string>> files_;  // the files of each batch, in order
  mutable std::mutex mutex_;                       // guards the members below
  mutable std::map<std::string, std::int64_t> counts_;
  mutable std::map<std::string, std::vector<std::string>> names_;  // by file, if it was read and has names
  mutable std::map<std::string, std::weak_ptr<const SubBatch>> open_;  // the files of extents that are held
  mutable std::shared_ptr<const Files> latest_;                        // those of the last extent()
};

}  // namespace

std::unique_ptr<ImageSource> open_image_pickles(const std::string& folder) {
  return std::make_unique<ImagePickles>(folder);
}

}  // namespace convnet
