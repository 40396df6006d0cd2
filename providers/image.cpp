#include "providers/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <set>
#include <type_traits>
#include <utility>

#include "convnet/base/cores.h"
#include "convnet/base/error.h"
#include "convnet/base/output_file.h"
#include "convnet/base/philox.h"
#include "convnet/base/utf8.h"
#include "providers/augment.h"
#include "providers/channels.h"
#include "providers/color_pca.h"
#include "providers/decode.h"
#include "providers/image_source.h"
#include "providers/orientation.h"
#include "providers/resize.h"
#include "providers/shuffle.h"
#include "providers/workers.h"

namespace convnet {
namespace {

/// Number of images, and largest number of batches, over which mean image and colours are measured.
constexpr std::int64_t sample_images = 1024;
constexpr int sample_batches = 16;
/// Largest ratio of an image's sides; longer images would be scaled to enormous ones.
constexpr int max_aspect = 100;

/// A square of an image, mirrored or not.
struct View {
  int y = 0, x = 0;
  bool mirror = false;
};

/// Ratios of width to height of --random-resized-crop.
constexpr double least_ratio = 3.0 / 4, most_ratio = 4.0 / 3;

/// The largest window of one of these ratios, in the middle of an image.
ImageWindow middle_window(int height, int width) {
  const int high = std::min(height, std::max(1, static_cast<int>(std::lround(width / least_ratio))));
  const int wide = std::min(width, std::max(1, static_cast<int>(std::lround(height * most_ratio))));
  return {(height - high) / 2, (width - wide) / 2, high, wide};
}

std::vector<MatrixInfo> matrices_of(const ImageSetInfo& info, const ImageOptions& options, int image_size,
                                    int side) {
  const DataType type = options.read_subtracts_mean() || options.pixel_std ? DataType::f32 : DataType::u8;
  std::vector<MatrixInfo> matrices = {{"data", {options.channels(), side, side}, type, 0}};
  if (info.number_names.empty()) {
    matrices.push_back({"labels", {1}, DataType::s32, info.classes, escape_non_utf8(info.class_names)});
    matrices.push_back({"multi-hot labels", {info.classes}, DataType::f32, 0});
  } else {
    matrices.push_back(
        {"numbers", {std::ssize(info.number_names)}, DataType::f32, 0, escape_non_utf8(info.number_names)});
  }
  matrices[0].stored_type = DataType::u8;
  if (options.inner_size > 0) matrices[0].stored = {options.channels(), image_size, image_size};
  return matrices;
}

int choose_image_size(const ImageSetInfo& info, const ImageOptions& options) {
  if (info.image_size > 0 && options.image_size > 0 && options.image_size != info.image_size)
    throw InputError(
        fmt::format("--image-size {}: batches.meta says that the images are of size {}; this is for "
                    "folders and tars of images of any size",
                    options.image_size, info.image_size));
  constexpr int usual = 256;
  const int size = options.image_size > 0   ? options.image_size
                   : info.image_size > 0    ? info.image_size
                   : options.inner_size > 0 ? static_cast<int>(size_around(options.inner_size))
                                            : usual;
  if (options.inner_size > size)
    throw InputError(fmt::format(
        "--inner-size {}: the images are of size {} (their shorter side), and a crop can be at most that; {}",
        options.inner_size, size,
        options.image_size > 0
            ? fmt::format("without --image-size, or with --image-size {}, they are larger",
                          size_around(options.inner_size))
            : fmt::format("'convnet make-data --size {}' makes larger ones of the original photos",
                          size_around(options.inner_size))));
  return size;
}

class ImageProvider final : public Provider {
 public:
  ImageProvider(std::unique_ptr<ImageSource> source, std::string path, const ImageOptions& options,
                std::uint64_t seed, const std::optional<BatchRange>& shuffled)
      : source_(std::move(source)),
        path_(std::move(path)),
        options_(options),
        channels_(static_cast<std::size_t>(options.channels())),
        image_size_(choose_image_size(source_->info(), options)),
        side_(options.inner_size > 0 ? options.inner_size : image_size_),
        augmentation_(options, matrices_of(source_->info(), options, image_size_, side_), seed),
        matrices_(augmentation_.matrices()),
        seed_(seed),
        shuffled_(shuffled),
        crop_key_(philox_key(seed, "image.crop")),
        label_key_(philox_key(seed, "image.label")),
        color_key_(philox_key(seed, "image.color")),
        workers_(std::make_unique<WorkerPool>(options.decode_threads)) {
    if (options.crop_pad > 0)
      throw InputError("--crop-pad is for providers of small images, not for 'image'");
    if (options.color_noise > 0 && options.grey)
      throw InputError("--color-noise adds colours, and --grey makes the photographs grey; leave one out");
    if (shuffled && !source_->any_order())
      throw InputError(
          fmt::format("--{}: cuda-convnet2's batches are read a file at a time, and their images "
                      "were mixed when they were made; folders and tars of images can be shuffled",
                      options.balance ? "balance" : "shuffle"));
    if (!options.cache.empty()) check_folder_writable(options.cache, "decoded pictures are to be kept in");
    const ImageSetInfo& info = source_->info();
    if (options.balance && (info.has_tags || !info.number_names.empty()))
      throw InputError(
          fmt::format("--balance 1 draws classes evenly, and the table of --labels holds {}",
                      info.has_tags ? "tags; posWeight of cost.bce weighs rare ones" : "numbers"));
  }

  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }

  void check_range(const BatchRange& range, const std::string& option) const override {
    for (int batch = range.first; batch <= range.last; ++batch)
      if (!source_->has(batch))
        throw InputError(fmt::format("{} {}: batch {} is not in {}; its batch numbers: {}", option,
                                     range.str(), batch, path_, source_->contents()));
  }

  bool reads_files() const override { return source_->any_order(); }
  std::optional<BatchSplit> split() const override { return source_->split(); }
  std::string image_name(int batch, std::int64_t image) const override {
    {
      const std::lock_guard lock(mutex_);
      if (const auto other = stand_ins_.find({batch, image}); other != stand_ins_.end())
        image = other->second;
    }
    return source_->name(batch, image);
  }
  std::int64_t images_in(int batch) const override {
    check_range({batch, batch}, "batch");
    return source_->images_in(batch);
  }
  std::int64_t count_images(int batch) const override {
    check_range({batch, batch}, "batch");
    return source_->extent(batch, 0, LoadRequest::all).images;
  }
  bool has_mean() const override { return true; }
  bool step_subtracts_mean() const override { return !options_.read_subtracts_mean(); }
  int views() const override { return options_.multiview ? 10 : 1; }

  std::vector<std::string> skipped_images() const override {
    const std::lock_guard lock(mutex_);
    return {skipped_.begin(), skipped_.end()};
  }

  LeftOutFiles left_out() const override { return source_->left_out(); }

  std::string faster_reading() const override {
    std::string text;
    if (options_.cache.empty())
      text = "--cache-images FOLDER keeps decoded pictures, for later epochs and runs";
    else
      text = "the first epoch decodes what --cache-images keeps, and later ones only read it";
    if (options_.decode_threads > 0 && options_.decode_threads < usable_cores())
      text += fmt::format("; there are {} cores, and --decode-threads is {}", usable_cores(),
                          options_.decode_threads);
    if (options_.cache.empty() && source_->info().image_size == 0)
      text += "; 'convnet make-data' makes large photos small, which are decoded faster";
    return text;
  }

  DataBatch read(const LoadRequest& request, const PixelStatistics& statistics) const override {
    check_range({request.batch, request.batch}, "batch");
    const bool training = request.epoch > 0;
    if (training && shuffled_) prepare_order(request.epoch);
    const bool mixes = training && augmentation_.mixes();
    const Extent extent = extent_of(request, mixes);
    const std::int64_t copies = training ? 1 : views();
    DataBatch piece = empty_piece(extent.images * copies);
    piece.first = request.first;
    piece.last = extent.last;
    workers_->run(extent.images, [&](std::int64_t i) {
      const ImagePlace place{request.epoch, request.batch, request.first + i};
      // If bad images are replaced, all are decoded, because only that tells which image replaces a bad one.
      const bool wanted =
          request.share == nullptr || options_.skip_bad_images || request.share->wants(i, extent.images);
      if (!wanted && training) return;
      write_image(place, wanted, statistics, piece, i * copies);
      if (!mixes) return;
      const Mixture mixture = augmentation_.mixture(place, extent.end);
      if (mixture.weight == 0) return;
      DataBatch other = empty_piece(1);
      write_image({place.epoch, place.batch, mixture.other}, true, statistics, other, 0);
      augmentation_.mix(mixture, piece, i, other);
    });
    return piece;
  }

  PixelStatistics statistics(const BatchRange& range) const override {
    const ImageSetInfo& info = source_->info();
    PixelStatistics statistics;
    const bool wants_mean = options_.scalar_mean < 0;
    const bool wants_pca = options_.color_noise > 0;
    const std::size_t plane = static_cast<std::size_t>(side_) * static_cast<std::size_t>(side_);
    if (!wants_mean) statistics.mean.assign(channels_ * plane, static_cast<float>(options_.scalar_mean));
    if (wants_mean && !info.mean.empty()) statistics.mean = centre_of(info.mean);
    if (wants_pca) statistics.color_pca = info.color_pca;
    if (statistics.mean.empty() || (wants_pca && statistics.color_pca.empty()) || options_.pixel_std) {
      const Sample sample = measure(range);
      if (statistics.mean.empty()) statistics.mean = sample.mean;
      if (wants_pca && statistics.color_pca.empty()) statistics.color_pca = color_pca(sample.colors);
      if (options_.pixel_std) {
        statistics.deviations = color_deviations(sample.colors);
        statistics.deviations.resize(channels_);
      }
    }
    for (std::size_t i = 0; i < statistics.mean.size() && options_.pixel_std; ++i)
      statistics.mean[i] /= statistics.deviations[i / plane];
    return statistics;
  }

 private:
  struct Found {
    DecodedImage image;
    ImageLabels labels;
  };
  struct Sample {
    std::vector<float> mean;  ///< (C,side,side)
    ColorSums colors;
  };

  template <class Item>
  Item* row(DataBatch& piece, std::size_t matrix, std::int64_t image) const {
    return reinterpret_cast<Item*>(piece.matrices[matrix].data()) +
           image * element_count(matrices_[matrix].dims);
  }

  struct Extent {
    std::int64_t images = 0;
    bool last = true;
    std::int64_t end = 0;  ///< end of the batch's images that may be mixed with those of the piece
  };
  /// Makes the images of a piece ready to be read, with the groups that they are mixed in.
  Extent extent_of(const LoadRequest& request, bool mixes) const {
    constexpr std::int64_t group = Augmentation::group;
    const std::int64_t first = mixes ? request.first / group * group : request.first;
    std::int64_t count = request.count;
    if (mixes && count < LoadRequest::all - request.first - group)
      count = (request.first + count + group - 1) / group * group - first;
    const ImageSource::Extent found = source_->extent(request.batch, first, count);
    const std::int64_t end = first + found.images;
    const std::int64_t images = std::clamp<std::int64_t>(end - request.first, 0, request.count);
    return {images, found.last && request.first + images >= end, end};
  }

  DataBatch empty_piece(std::int64_t images) const {
    DataBatch piece;
    piece.images = images;
    for (const MatrixInfo& info : matrices_)
      piece.matrices.emplace_back(static_cast<std::size_t>(images * info.image_bytes()));
    return piece;
  }

  void prepare_order(int epoch) const {
    if (!order_) {
      std::vector<std::int64_t> images;
      for (int batch = shuffled_->first; batch <= shuffled_->last; ++batch)
        images.push_back(source_->extent(batch, 0, LoadRequest::all).images);
      if (options_.balance)
        order_.emplace(images, classes_of(images), seed_);
      else
        order_.emplace(images, seed_);
    }
    order_->prepare(epoch);
  }

  /// Returns the classes of the images of the shuffled range, which has `images` in each batch.
  std::vector<std::int32_t> classes_of(const std::vector<std::int64_t>& images) const {
    std::vector<std::int32_t> classes;
    for (std::size_t b = 0; b < images.size(); ++b)
      for (std::int64_t i = 0; i < images[b]; ++i) {
        const ImageLabels labels = source_->labels(shuffled_->first + static_cast<int>(b), i);
        classes.push_back(labels.classes.empty() ? -1 : labels.classes.front());
      }
    return classes;
  }

  /// Writes a row of a piece, or in tests a row for each view, from row `first_row` on. Writes the image
  /// itself only if it is wanted.
  void write_image(const ImagePlace& place, bool wanted, const PixelStatistics& statistics, DataBatch& piece,
                   std::int64_t first_row) const {
    int batch = place.batch;
    std::int64_t image = place.image;
    if (place.epoch > 0 && shuffled_) {
      const EpochOrder::Stored stored =
          order_->at(static_cast<std::size_t>(batch - shuffled_->first), place.image);
      batch = shuffled_->first + static_cast<int>(stored.batch);
      image = stored.image;
    }
    const Found found = wanted
                            ? find(batch, image, resizes_crops(place) ? std::optional(place) : std::nullopt)
                            : Found{{}, source_->labels(batch, image)};
    if (wanted && matrices_[0].type == DataType::f32)
      write_views(found.image, place, statistics, row<float>(piece, 0, first_row));
    else if (wanted)
      write_views(found.image, place, statistics, row<std::uint8_t>(piece, 0, first_row));
    const std::int64_t copies = place.epoch > 0 ? 1 : views();
    for (std::int64_t copy = first_row; copy < first_row + copies; ++copy) {
      if (!source_->info().number_names.empty()) {
        std::ranges::copy(found.labels.numbers, row<float>(piece, 1, copy));
        continue;
      }
      std::int32_t* const label = row<std::int32_t>(piece, 1, copy);
      label[0] = choose_label(found.labels.classes, place);
      if (augmentation_.mixes()) label[1] = label[0];
      for (const std::int32_t of_image : found.labels.classes) row<float>(piece, 2, copy)[of_image] = 1;
    }
  }

  DecodedImage decode_whole(const EncodedImage& encoded) const {
    DecodedImage image = decode_image(encoded.bytes, encoded.name, image_size_);
    check_aspect({image.height, image.width}, encoded.name, max_aspect);
    return image;
  }

  /// Returns the random window of a training image that will be scaled to what is seen.
  ImageWindow crop_window(ImageSize size, const ImagePlace& place) const {
    const auto window = random_window(crop_key_, place, size.height, size.width,
                                      {options_.random_resized_crop, 1, least_ratio, most_ratio});
    return window ? *window : middle_window(size.height, size.width);
  }

  /// Returns a picture as the cache keeps it: its shorter side is at most the image size.
  DecodedImage shortened(DecodedImage image) const {
    if (std::min(image.height, image.width) <= image_size_) return image;
    return resize_image(image, scaled_to_shorter_side({image.height, image.width}, image_size_));
  }

  PictureCache& cache() const {
    std::call_once(cache_opened_,
                   [&] { cache_ = std::make_unique<PictureCache>(options_.cache, image_size_); });
    return *cache_;
  }

  /// Reads the window for `crop` of an image, or all of it. With a cache it is a window of the shortened
  /// picture, even while the cache is being filled, so that all epochs have the same pixels.
  Found read_picture(int batch, std::int64_t image, const std::optional<ImagePlace>& crop,
                     std::string& name) const {
    const auto choose = [&](ImageSize size) {
      return crop ? crop_window(size, *crop) : ImageWindow{0, 0, size.height, size.width};
    };
    std::optional<PictureOrigin> origin;
    if (!options_.cache.empty()) origin = source_->origin(batch, image);
    if (origin) {
      if (std::optional<DecodedImage> kept = cache().read(*origin, choose))
        return {std::move(*kept), source_->labels(batch, image)};
    }
    EncodedImage encoded = source_->read(batch, image);
    name = encoded.name;
    if (origin) {
      DecodedImage whole = shortened(decode_whole(encoded));
      cache().add(*origin, whole);
      if (crop) whole = cut_window(whole, choose({whole.height, whole.width}));
      return {std::move(whole), std::move(encoded.labels)};
    }
    if (!crop) return {decode_whole(encoded), std::move(encoded.labels)};
    const auto choose_checked = [&](ImageSize size) {
      check_aspect(size, name, max_aspect);
      return choose(size);
    };
    return {decode_window(encoded.bytes, name, choose_checked, side_), std::move(encoded.labels)};
  }

  /// Returns what read_picture() does for the image, or for the next readable one of the batch if bad ones
  /// are skipped.
  Found find(int batch, std::int64_t image, const std::optional<ImagePlace>& crop = {}) const {
    for (std::int64_t at = image;;) {
      std::string name;
      try {
        Found found = read_picture(batch, at, crop, name);
        if (at != image) {
          const std::lock_guard lock(mutex_);
          stand_ins_[{batch, image}] = at;
        }
        return found;
      } catch (const InputError& bad) {
        // Without a name, not the image is bad, but the file it is in, or the cache.
        if (!options_.can_skip || name.empty()) throw;
        if (!options_.skip_bad_images)
          throw InputError(
              fmt::format("{}; --skip-bad-images 1 goes on past images that cannot be read", bad.what()));
        const std::lock_guard lock(mutex_);
        skipped_.insert(name);
      }
      ++at;
      if (source_->extent(batch, at, 1).images == 0) at = 0;
      if (at == image)
        throw InputError(fmt::format("{}: none of the images of batch {} can be read", path_, batch));
    }
  }

  std::int32_t choose_label(const std::vector<std::int32_t>& labels, const ImagePlace& place) const {
    if (labels.empty()) return -1;
    if (place.epoch == 0) return labels.front();
    return labels[static_cast<std::size_t>(
        uniform(draw(label_key_, place).value[0], static_cast<int>(labels.size()) - 1))];
  }

  /// Chooses what is seen of an image that was scaled to `size`.
  std::vector<View> views_of(const ImageSize& size, const ImagePlace& place) const {
    const int high = size.height - side_, wide = size.width - side_;
    const View centre{high / 2, wide / 2, false};
    if (place.epoch > 0) {
      const Philox4x32 random = draw(crop_key_, place);
      return {{uniform(random.value[0], high), uniform(random.value[1], wide), is_mirrored(random)}};
    }
    if (!options_.multiview) return {centre};
    std::vector<View> views = {{0, 0}, {0, wide}, centre, {high, 0}, {high, wide}};
    for (std::size_t i = 0; i < 5; ++i) views.push_back({views[i].y, views[i].x, true});
    return views;
  }

  bool is_mirrored(const Philox4x32& random) const {
    return options_.flip != Flip::off && (random.value[2] & 1) != 0;
  }

  /// Returns a square as the net sees it: in colour or grey.
  DecodedImage seen(DecodedImage square) const {
    if (channels_ == 1) make_grey(square);
    return square;
  }

  /// Returns whether a random window of the image is scaled to what is seen.
  bool resizes_crops(const ImagePlace& place) const {
    return place.epoch > 0 && options_.random_resized_crop > 0;
  }

  template <class Item>
  void write_views(const DecodedImage& image, const ImagePlace& place, const PixelStatistics& statistics,
                   Item* out) const {
    if (resizes_crops(place)) {
      write_view(seen(resize_image(image, {side_, side_})), is_mirrored(draw(crop_key_, place)), place,
                 statistics, out);
      return;
    }
    const ImageSize size = scaled_to_shorter_side({image.height, image.width}, image_size_);
    for (const View& view : views_of(size, place)) {
      write_view(seen(resize_image(image, size, {view.y, view.x, side_, side_})), view.mirror, place,
                 statistics, out);
      out += element_count(matrices_[0].dims);
    }
  }

  template <class Item>
  void write_view(DecodedImage square, bool mirror, const ImagePlace& place,
                  const PixelStatistics& statistics, Item* out) const {
    if (place.epoch > 0 && augmentation_.distorts()) {
      constexpr int kMirrored = 2;
      if (std::exchange(mirror, false)) square = upright(std::move(square), kMirrored);
      augmentation_.distort(place, square);
    }
    write_square(square, mirror, out);
    if constexpr (std::is_same_v<Item, float>) adjust(place, statistics, out);
    if (place.epoch > 0 && augmentation_.erases())
      augmentation_.erase(place, statistics, reinterpret_cast<std::byte*>(out));
  }

  /// Copies a square from (H,W,3) to (C,H,W).
  template <class Item>
  void write_square(const DecodedImage& square, bool mirror, Item* out) const {
    const auto side = static_cast<std::size_t>(side_);
    if constexpr (std::is_same_v<Item, std::uint8_t>) {
      if (channels_ == 3) {
        for (std::size_t y = 0; y < side; ++y)
          split_channels(square.pixels.data() + y * side * 3, side, mirror, out + y * side, side * side);
        return;
      }
    }
    for (std::size_t y = 0; y < side; ++y)
      for (std::size_t c = 0; c < channels_; ++c) {
        const std::uint8_t* const from = square.pixels.data() + y * side * 3 + c;
        Item* const to = out + (c * side + y) * side;
        if (mirror)
          for (std::size_t x = 0; x < side; ++x) to[side - 1 - x] = from[3 * x];
        else
          for (std::size_t x = 0; x < side; ++x) to[x] = from[3 * x];
      }
  }

  /// Divides pixels by the deviations. With colour noise it also subtracts the mean, and in training leaves
  /// (pixel - mean + noise) / (1 + scale).
  void adjust(const ImagePlace& place, const PixelStatistics& statistics, float* pixels) const {
    const std::size_t plane = static_cast<std::size_t>(side_) * static_cast<std::size_t>(side_);
    const auto scale = static_cast<float>(options_.color_noise);
    const bool noisy = scale > 0 && place.epoch > 0 && !statistics.color_pca.empty();
    std::array<float, 3> noise = {};
    if (noisy) {
      const Philox4x32 a = draw(color_key_, place), b = draw(color_key_ + 1, place);
      const std::array<float, 3> lots = {normal(a.value[0], a.value[1]), normal(a.value[2], a.value[3]),
                                         normal(b.value[0], b.value[1])};
      const std::vector<float>& pca = statistics.color_pca;
      for (std::size_t c = 0; c < 3; ++c)
        for (std::size_t k = 0; k < 3; ++k) noise[c] += scale * pca[3 + 3 * c + k] * pca[k] * lots[k];
    }
    for (std::size_t c = 0; c < channels_; ++c) {
      const float deviation = statistics.deviations.empty() ? 1 : statistics.deviations[c];
      float* const channel = pixels + c * plane;
      for (std::size_t i = 0; i < plane; ++i) channel[i] /= deviation;
      if (options_.read_subtracts_mean() && !statistics.mean.empty()) {
        const float* const mean = statistics.mean.data() + c * plane;
        for (std::size_t i = 0; i < plane; ++i) channel[i] -= mean[i];
      }
      if (!noisy) continue;
      const float shift = noise[c] / deviation, factor = 1 / (1 + scale);
      for (std::size_t i = 0; i < plane; ++i) channel[i] = (channel[i] + shift) * factor;
    }
  }

  /// Cuts the centre out of a mean image (3,H,W) of image_size_; makes it grey if the net sees grey.
  std::vector<float> centre_of(const std::vector<float>& mean) const {
    std::vector<float> out;
    const std::ptrdiff_t border = (image_size_ - side_) / 2;
    for (std::ptrdiff_t c = 0; c < 3; ++c)
      for (std::ptrdiff_t y = 0; y < side_; ++y) {
        const auto from = mean.begin() + (c * image_size_ + border + y) * image_size_ + border;
        out.insert(out.end(), from, from + side_);
      }
    if (channels_ == 3) return out;
    const std::size_t plane = out.size() / 3;
    for (std::size_t i = 0; i < plane; ++i)
      out[i] = (299 * out[i] + 587 * out[plane + i] + 114 * out[2 * plane + i]) / 1000;
    out.resize(plane);
    return out;
  }

  /// Measures the centres of a fixed sample of the range's images.
  Sample measure(const BatchRange& range) const {
    const int batches = std::min(sample_batches, range.count());
    const std::size_t plane = static_cast<std::size_t>(side_) * static_cast<std::size_t>(side_);
    std::vector<std::int64_t> sums(channels_ * plane, 0);  // integers: the order of adding does not matter
    Sample sample;
    std::mutex mutex;
    for (int b = 0; b < batches; ++b) {
      const int batch = range.first + static_cast<int>(std::int64_t{b} * range.count() / batches);
      const std::int64_t images = source_->extent(batch, 0, LoadRequest::all).images;
      const std::int64_t taken = std::min<std::int64_t>(images, sample_images / batches);
      workers_->run(taken, [&](std::int64_t i) {
        const Found found = find(batch, i * images / taken);
        const ImageSize scaled = scaled_to_shorter_side({found.image.height, found.image.width}, image_size_);
        const View centre = {(scaled.height - side_) / 2, (scaled.width - side_) / 2, false};
        const DecodedImage square =
            seen(resize_image(found.image, scaled, {centre.y, centre.x, side_, side_}));
        ColorSums colors;
        colors.add(square);
        const std::lock_guard lock(mutex);
        sample.colors.add(colors);
        for (std::size_t c = 0; c < channels_; ++c)
          for (std::size_t p = 0; p < plane; ++p) sums[c * plane + p] += square.pixels[3 * p + c];
      });
    }
    const double images = static_cast<double>(sample.colors.pixels) / static_cast<double>(plane);
    for (const std::int64_t sum : sums)
      sample.mean.push_back(static_cast<float>(static_cast<double>(sum) / images));
    return sample;
  }

  const std::unique_ptr<ImageSource> source_;
  const std::string path_;
  const ImageOptions options_;
  const std::size_t channels_;   ///< number of channels that the net sees
  const int image_size_, side_;  ///< shorter side of scaled images; side of what the net sees
  const Augmentation augmentation_;
  const std::vector<MatrixInfo> matrices_;
  const std::uint64_t seed_;
  const std::optional<BatchRange> shuffled_;
  mutable std::optional<EpochOrder> order_;  // made and changed by read() before it starts the workers
  const std::uint64_t crop_key_, label_key_, color_key_;
  mutable std::once_flag cache_opened_;
  mutable std::unique_ptr<PictureCache> cache_;  // made by cache()
  const std::unique_ptr<WorkerPool> workers_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> skipped_;                                   // under the mutex
  mutable std::map<std::pair<int, std::int64_t>, std::int64_t> stand_ins_;  // by batch and image; the same
};

}  // namespace

std::unique_ptr<Provider> make_image_provider(const std::string& path, const ImageOptions& options,
                                              std::uint64_t seed, const std::optional<BatchRange>& shuffled) {
  return make_image_provider(open_image_source(path, options.hold_out, options.labels, options.label_kind),
                             path, options, seed, shuffled);
}

std::unique_ptr<Provider> make_image_provider(std::unique_ptr<ImageSource> source, const std::string& path,
                                              const ImageOptions& options, std::uint64_t seed,
                                              const std::optional<BatchRange>& shuffled) {
  return std::make_unique<ImageProvider>(std::move(source), path, options, seed, shuffled);
}

const std::vector<OptionOfImage>& options_of_image() {
  using Options = ImageOptions;
  static const std::vector<OptionOfImage> all = {
      {"labels", [](const Options& o) { return !o.labels.empty(); }},
      {"label-kind", [](const Options& o) { return o.label_kind != LabelKind::automatic; }},
      {"grey", [](const Options& o) { return o.grey; }},
      {"image-size", [](const Options& o) { return o.image_size > 0; }},
      {"color-noise", [](const Options& o) { return o.color_noise > 0; }},
      {"skip-bad-images", [](const Options& o) { return o.skip_bad_images; }},
      {"random-resized-crop", [](const Options& o) { return o.random_resized_crop > 0; }},
      {"decode-threads", [](const Options& o) { return o.decode_threads > 0; }},
      {"cache-images", [](const Options& o) { return !o.cache.empty(); }}};
  return all;
}

}  // namespace convnet
