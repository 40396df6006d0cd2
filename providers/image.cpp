#include "providers/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <set>
#include <type_traits>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/philox.h"
#include "providers/color_pca.h"
#include "providers/decode.h"
#include "providers/image_source.h"
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

/// Uniform in 0 … most.
int uniform(std::uint32_t word, int most) {
  return static_cast<int>(word * (static_cast<std::uint64_t>(most) + 1) >> 32);
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
                   : options.inner_size > 0 ? (options.inner_size * 8 + 3) / 7
                                            : usual;
  if (options.inner_size > size)
    throw InputError(fmt::format("--inner-size {}: the images are of size {} (their shorter side)",
                                 options.inner_size, size));
  return size;
}

class ImageProvider final : public Provider {
 public:
  ImageProvider(std::unique_ptr<ImageSource> source, std::string path, const ImageOptions& options,
                std::uint64_t seed)
      : source_(std::move(source)),
        path_(std::move(path)),
        options_(options),
        image_size_(choose_image_size(source_->info(), options)),
        side_(options.inner_size > 0 ? options.inner_size : image_size_),
        crop_key_(philox_key(seed, "image.crop")),
        label_key_(philox_key(seed, "image.label")),
        color_key_(philox_key(seed, "image.color")),
        workers_(std::make_unique<WorkerPool>(options.decode_threads)) {
    if (options.crop_pad > 0)
      throw InputError("--crop-pad is for providers of small images, not for 'image'");
    const std::int64_t classes = source_->info().classes;
    const DataType type = options.read_subtracts_mean() || options.pixel_std ? DataType::f32 : DataType::u8;
    matrices_ = {{"data", {3, side_, side_}, type, 0},
                 {"labels", {1}, DataType::s32, classes, source_->info().class_names},
                 {"multi-hot labels", {classes}, DataType::f32, 0}};
  }

  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }

  void check_range(const BatchRange& range, const std::string& option) const override {
    for (int batch = range.first; batch <= range.last; ++batch)
      if (!source_->has(batch))
        throw InputError(fmt::format("{} {}: batch {} is not in {}; it has {}", option, range.str(), batch,
                                     path_, source_->contents()));
  }

  std::int64_t images_in(int batch) const override {
    check_range({batch, batch}, "batch");
    return source_->images_in(batch);
  }
  bool has_mean() const override { return true; }
  bool step_subtracts_mean() const override { return !options_.read_subtracts_mean(); }
  int views() const override { return options_.multiview ? 10 : 1; }

  std::vector<std::string> skipped_images() const override {
    const std::lock_guard lock(mutex_);
    return {skipped_.begin(), skipped_.end()};
  }

  std::vector<std::string> dangling_links() const override { return source_->info().dangling_links; }

  DataBatch read(const LoadRequest& request, const PixelStatistics& statistics) const override {
    check_range({request.batch, request.batch}, "batch");
    const ImageSource::Extent extent = source_->extent(request.batch, request.first, request.count);
    const std::int64_t copies = request.epoch == 0 ? views() : 1;
    DataBatch piece;
    piece.first = request.first;
    piece.last = extent.last;
    piece.images = extent.images * copies;
    for (const MatrixInfo& info : matrices_)
      piece.matrices.emplace_back(
          static_cast<std::size_t>(piece.images * element_count(info.dims) * size_of(info.type)));
    workers_->run(extent.images, [&](std::int64_t i) {
      const Place place{request.epoch, request.batch, request.first + i};
      // Which image takes the place of a bad one is found out by decoding only.
      const bool wanted =
          request.share == nullptr || options_.skip_bad_images || request.share->wants(i, extent.images);
      if (!wanted && request.epoch > 0) return;
      const Found found = wanted ? find(request.batch, request.first + i)
                                 : Found{{}, source_->read(request.batch, request.first + i).labels};
      if (wanted && matrices_[0].type == DataType::f32)
        write_views(found.image, place, statistics, row<float>(piece, 0, i * copies));
      else if (wanted)
        write_views(found.image, place, statistics, row<std::uint8_t>(piece, 0, i * copies));
      for (std::int64_t copy = i * copies; copy < (i + 1) * copies; ++copy) {
        *row<std::int32_t>(piece, 1, copy) = choose_label(found.labels, place);
        for (const std::int32_t label : found.labels) row<float>(piece, 2, copy)[label] = 1;
      }
    });
    return piece;
  }

  PixelStatistics statistics(const BatchRange& range) const override {
    const ImageSetInfo& info = source_->info();
    PixelStatistics statistics;
    const bool wants_mean = options_.scalar_mean < 0;
    const bool wants_pca = options_.color_noise > 0;
    const std::size_t plane = static_cast<std::size_t>(side_) * static_cast<std::size_t>(side_);
    if (!wants_mean) statistics.mean.assign(3 * plane, static_cast<float>(options_.scalar_mean));
    if (wants_mean && !info.mean.empty()) statistics.mean = centre_of(info.mean);
    if (wants_pca) statistics.color_pca = info.color_pca;
    if (statistics.mean.empty() || (wants_pca && statistics.color_pca.empty()) || options_.pixel_std) {
      const Sample sample = measure(range);
      if (statistics.mean.empty()) statistics.mean = sample.mean;
      if (wants_pca && statistics.color_pca.empty()) statistics.color_pca = color_pca(sample.colors);
      if (options_.pixel_std) statistics.deviations = color_deviations(sample.colors);
    }
    for (std::size_t i = 0; i < statistics.mean.size() && options_.pixel_std; ++i)
      statistics.mean[i] /= statistics.deviations[i / plane];
    return statistics;
  }

 private:
  struct Place {
    int epoch = 0, batch = 0;
    std::int64_t image = 0;
  };
  struct Found {
    DecodedImage image;
    std::vector<std::int32_t> labels;
  };
  struct Sample {
    std::vector<float> mean;  ///< (3,side,side)
    ColorSums colors;
  };

  template <class Item>
  Item* row(DataBatch& piece, std::size_t matrix, std::int64_t image) const {
    return reinterpret_cast<Item*>(piece.matrices[matrix].data()) +
           image * element_count(matrices_[matrix].dims);
  }

  DecodedImage decode(const EncodedImage& encoded) const {
    DecodedImage image = decode_image(encoded.bytes, encoded.name, image_size_);
    const auto [shorter, longer] = std::minmax(image.height, image.width);
    if (longer / shorter > max_aspect)
      throw InputError(fmt::format("{}: {} x {} pixels; one side is more than {} times the other",
                                   encoded.name, image.width, image.height, max_aspect));
    return image;
  }

  /// The image, or the next readable one of the batch if bad ones are skipped.
  Found find(int batch, std::int64_t image) const {
    for (std::int64_t at = image;;) {
      EncodedImage encoded = source_->read(batch, at);
      try {
        return {decode(encoded), std::move(encoded.labels)};
      } catch (const InputError&) {
        if (!options_.skip_bad_images) throw;
        const std::lock_guard lock(mutex_);
        skipped_.insert(encoded.name);
      }
      ++at;
      if (source_->extent(batch, at, 1).images == 0) at = 0;
      if (at == image)
        throw InputError(fmt::format("{}: none of the images of batch {} can be read", path_, batch));
    }
  }

  std::int32_t choose_label(const std::vector<std::int32_t>& labels, const Place& place) const {
    if (labels.empty()) return -1;
    if (place.epoch == 0) return labels.front();
    return labels[static_cast<std::size_t>(
        uniform(draw(label_key_, place).value[0], static_cast<int>(labels.size()) - 1))];
  }

  static Philox4x32 draw(std::uint64_t key, const Place& place) {
    return philox(key, static_cast<std::uint32_t>(place.image), static_cast<std::uint32_t>(place.batch),
                  static_cast<std::uint32_t>(place.epoch), 0);
  }

  /// Chooses what is seen of an image that was scaled to `size`.
  std::vector<View> views_of(const ImageSize& size, const Place& place) const {
    const int high = size.height - side_, wide = size.width - side_;
    const View centre{high / 2, wide / 2, false};
    if (place.epoch > 0) {
      const Philox4x32 random = draw(crop_key_, place);
      return {{uniform(random.value[0], high), uniform(random.value[1], wide), (random.value[2] & 1) != 0}};
    }
    if (!options_.multiview) return {centre};
    std::vector<View> views = {{0, 0}, {0, wide}, centre, {high, 0}, {high, wide}};
    for (std::size_t i = 0; i < 5; ++i) views.push_back({views[i].y, views[i].x, true});
    return views;
  }

  template <class Item>
  void write_views(const DecodedImage& image, const Place& place, const PixelStatistics& statistics,
                   Item* out) const {
    const ImageSize size = scaled_to_shorter_side({image.height, image.width}, image_size_);
    for (const View& view : views_of(size, place)) {
      const DecodedImage square = resize_image(image, size, {view.y, view.x, side_, side_});
      write_square(square, view.mirror, out);
      if constexpr (std::is_same_v<Item, float>) adjust(place, statistics, out);
      out += element_count(matrices_[0].dims);
    }
  }

  /// Copies a square from (H,W,3) to (3,H,W).
  template <class Item>
  void write_square(const DecodedImage& square, bool mirror, Item* out) const {
    const auto side = static_cast<std::size_t>(side_);
    for (std::size_t y = 0; y < side; ++y)
      for (std::size_t c = 0; c < 3; ++c) {
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
  void adjust(const Place& place, const PixelStatistics& statistics, float* pixels) const {
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
    for (std::size_t c = 0; c < 3; ++c) {
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

  /// Cuts the centre out of a mean image of image_size_.
  std::vector<float> centre_of(const std::vector<float>& mean) const {
    std::vector<float> out;
    const std::ptrdiff_t border = (image_size_ - side_) / 2;
    for (std::ptrdiff_t c = 0; c < 3; ++c)
      for (std::ptrdiff_t y = 0; y < side_; ++y) {
        const auto from = mean.begin() + (c * image_size_ + border + y) * image_size_ + border;
        out.insert(out.end(), from, from + side_);
      }
    return out;
  }

  /// Measures the centres of a fixed sample of the range's images.
  Sample measure(const BatchRange& range) const {
    const int batches = std::min(sample_batches, range.count());
    const std::size_t size =
        std::size_t{3} * static_cast<std::size_t>(side_) * static_cast<std::size_t>(side_);
    std::vector<std::int64_t> sums(size, 0);  // integers: the order of adding does not matter
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
        const DecodedImage square = resize_image(found.image, scaled, {centre.y, centre.x, side_, side_});
        ColorSums colors;
        colors.add(square);
        const std::lock_guard lock(mutex);
        sample.colors.add(colors);
        for (std::size_t p = 0; p < size; ++p) sums[p] += square.pixels[p];
      });
    }
    const std::size_t plane = size / 3;
    const double images = static_cast<double>(sample.colors.pixels) / static_cast<double>(plane);
    sample.mean.resize(size);
    for (std::size_t p = 0; p < size; ++p)
      sample.mean[p % 3 * plane + p / 3] = static_cast<float>(static_cast<double>(sums[p]) / images);
    return sample;
  }

  const std::unique_ptr<ImageSource> source_;
  const std::string path_;
  const ImageOptions options_;
  const int image_size_, side_;  ///< shorter side of scaled images; side of what the net sees
  const std::uint64_t crop_key_, label_key_, color_key_;
  const std::unique_ptr<WorkerPool> workers_;
  std::vector<MatrixInfo> matrices_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> skipped_;  // under the mutex
};

}  // namespace

std::unique_ptr<Provider> make_image_provider(const std::string& path, const ImageOptions& options,
                                              std::uint64_t seed) {
  return make_image_provider(open_image_source(path), path, options, seed);
}

std::unique_ptr<Provider> make_image_provider(std::unique_ptr<ImageSource> source, const std::string& path,
                                              const ImageOptions& options, std::uint64_t seed) {
  return std::make_unique<ImageProvider>(std::move(source), path, options, seed);
}

}  // namespace convnet
