#include "providers/augment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "convnet/base/error.h"
#include "convnet/base/mixed_labels.h"
#include "providers/crop.h"
#include "providers/distort.h"

namespace convnet {
namespace {

/// Returns the logarithm of a number from Gamma(alpha) (Marsaglia and Tsang, "A simple method for generating
/// gamma variables", 2000): small alphas give numbers that are too small for a double.
double log_gamma_variable(double alpha, std::uint64_t key, const ImagePlace& place) {
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (std::uint32_t attempt = 0;; ++attempt) {
    const Philox4x32 random = draw(key, place, attempt);
    const double x = normal(random.value[0], random.value[1]), root = 1 + c * x, v = root * root * root;
    if (v <= 0) continue;
    const auto log_uniform = [&](int i) { return std::log(1 - double{uniform01(random.value[i])}); };
    if (log_uniform(2) >= x * x / 2 + d - d * v + d * std::log(v)) continue;
    return std::log(d * v) + (alpha < 1 ? log_uniform(3) / alpha : 0);
  }
}

/// Averages numbers with those of another image; bytes are rounded to the nearest.
void blend(std::uint8_t* own, const std::uint8_t* other, std::int64_t count, std::int32_t weight) {
  for (std::int64_t i = 0; i < count; ++i)
    own[i] = static_cast<std::uint8_t>((own[i] * (kMixedUnit - weight) + other[i] * weight + kMixedUnit / 2) /
                                       kMixedUnit);
}
void blend(float* own, const float* other, std::int64_t count, std::int32_t weight) {
  const float share = static_cast<float>(weight) / static_cast<float>(kMixedUnit);
  for (std::int64_t i = 0; i < count; ++i) own[i] += (other[i] - own[i]) * share;
}

/// Calls use(p) for the indices of a box's pixels in an image (channels, height, width).
template <class Use>
void for_each_pixel(const ImageWindow& box, int channels, int height, int width, const Use& use) {
  for (int c = 0; c < channels; ++c)
    for (int y = box.y; y < box.y + box.height; ++y) {
      const std::size_t row =
          (static_cast<std::size_t>(c) * static_cast<std::size_t>(height) + static_cast<std::size_t>(y)) *
          static_cast<std::size_t>(width);
      for (int x = box.x; x < box.x + box.width; ++x) use(row + static_cast<std::size_t>(x));
    }
}

/// Returns the name of the option that distorts images, for messages.
const char* distorting_option(const ImageOptions& options) {
  return options.trivial_augment ? "--trivial-augment" : "--color-jitter";
}

/// Cuts out, distorts, erases and mixes the images of another provider.
class AugmentedProvider final : public Provider {
 public:
  AugmentedProvider(std::unique_ptr<Provider> plain, const ImageOptions& options, std::uint64_t seed)
      : plain_(std::move(plain)), augmentation_(options, plain_->matrices(), seed) {}

  const std::vector<MatrixInfo>& matrices() const override { return augmentation_.matrices(); }
  void check_range(const BatchRange& range, const std::string& option) const override {
    plain_->check_range(range, option);
  }
  std::optional<BatchSplit> split() const override { return plain_->split(); }
  std::string image_name(int batch, std::int64_t image) const override {
    return plain_->image_name(batch, image);
  }
  std::int64_t images_in(int batch) const override { return plain_->images_in(batch); }
  void check_labels(const BatchRange& range) const override { plain_->check_labels(range); }
  void add_labels(const BatchRange& range, Crc32& sum) const override { plain_->add_labels(range, sum); }
  std::vector<std::int64_t> class_counts(const BatchRange& range) const override {
    return plain_->class_counts(range);
  }
  bool has_mean() const override { return plain_->has_mean(); }
  bool step_subtracts_mean() const override { return plain_->step_subtracts_mean(); }
  PixelStatistics statistics(const BatchRange& range) const override { return plain_->statistics(range); }
  int views() const override { return plain_->views(); }
  void load_training_data(const std::function<bool()>& stopped) const override {
    plain_->load_training_data(stopped);
  }

  DataBatch read(const LoadRequest& request, const PixelStatistics& statistics) const override {
    DataBatch piece = read_unmixed(request, statistics);
    if (request.epoch == 0 || !augmentation_.mixes()) return piece;
    const std::int64_t end = plain_->images_in(request.batch);
    for (std::int64_t i = 0; i < piece.images; ++i) {
      if (request.share != nullptr && !request.share->wants(i, piece.images)) continue;
      const Mixture mixture = augmentation_.mixture({request.epoch, request.batch, piece.first + i}, end);
      if (mixture.weight == 0) continue;
      augmentation_.mix(mixture, piece, i,
                        read_unmixed({request.batch, request.epoch, mixture.other, 1}, statistics));
    }
    return piece;
  }

 private:
  DataBatch read_unmixed(const LoadRequest& request, const PixelStatistics& statistics) const {
    DataBatch piece = plain_->read(request, statistics);
    piece.matrices[0] = cut_images(piece, plain_->matrices()[0]);
    for (std::int64_t i = 0; i < piece.images && request.epoch > 0; ++i) {
      if (request.share != nullptr && !request.share->wants(i, piece.images)) continue;
      const ImagePlace place{request.epoch, request.batch, piece.first + i};
      std::byte* const pixels = piece.matrices[0].data() + i * matrices()[0].image_bytes();
      if (augmentation_.distorts()) augmentation_.distort(place, statistics, pixels);
      if (augmentation_.erases()) augmentation_.erase(place, statistics, pixels);
    }
    for (std::size_t m = 1; m < piece.matrices.size() && augmentation_.mixes(); ++m)
      if (matrices()[m].classes > 0) piece.matrices[m] = unmixed_labels(piece.matrices[m]);
    return piece;
  }

  /// Labels, one for each image, as labels of mixed images.
  static std::vector<std::byte> unmixed_labels(const std::vector<std::byte>& labels) {
    constexpr auto values = static_cast<std::size_t>(kMixedLabelValues);
    std::vector<std::byte> out(labels.size() * values);
    const auto* const from = reinterpret_cast<const std::int32_t*>(labels.data());
    auto* const into = reinterpret_cast<std::int32_t*>(out.data());
    for (std::size_t i = 0; i < labels.size() / sizeof(std::int32_t); ++i)
      into[values * i] = into[values * i + 1] = from[i];
    return out;
  }

  const std::unique_ptr<Provider> plain_;
  const Augmentation augmentation_;
};

}  // namespace

Philox4x32 draw(std::uint64_t key, const ImagePlace& place, std::uint32_t attempt) {
  return philox(key, static_cast<std::uint32_t>(place.image), static_cast<std::uint32_t>(place.batch),
                static_cast<std::uint32_t>(place.epoch), attempt);
}

int uniform(std::uint32_t word, int most) {
  return static_cast<int>(word * (static_cast<std::uint64_t>(most) + 1) >> 32);
}

std::optional<ImageWindow> random_window(std::uint64_t key, const ImagePlace& place, int height, int width,
                                         const WindowBounds& bounds) {
  constexpr std::uint32_t attempts = 10;
  for (std::uint32_t attempt = 1; attempt <= attempts; ++attempt) {
    const Philox4x32 random = draw(key, place, attempt);
    const double part =
        bounds.least_area + (bounds.most_area - bounds.least_area) * double{uniform01(random.value[0])};
    const double area = part * height * width;
    const double ratio = bounds.least_ratio *
                         std::pow(bounds.most_ratio / bounds.least_ratio, double{uniform01(random.value[1])});
    const std::int64_t high = std::lround(std::sqrt(area / ratio)),
                       wide = std::lround(std::sqrt(area * ratio));
    if (high < 1 || wide < 1 || high > height || wide > width) continue;
    const auto h = static_cast<int>(high), w = static_cast<int>(wide);
    return ImageWindow{uniform(random.value[2], height - h), uniform(random.value[3], width - w), h, w};
  }
  return std::nullopt;
}

Augmentation::Augmentation(const ImageOptions& options, const std::vector<MatrixInfo>& matrices,
                           std::uint64_t seed)
    : options_(options),
      matrices_(matrices),
      mix_key_(philox_key(seed, "mix")),
      own_key_(philox_key(seed, "mix.own")),
      other_key_(philox_key(seed, "mix.other")),
      erase_key_(philox_key(seed, "erase")),
      trivial_key_(philox_key(seed, "trivial-augment")),
      jitter_key_(philox_key(seed, "color-jitter")) {
  MatrixInfo& images = matrices_[0];
  images.uncropped.clear();
  if (images.dims.size() == 3) {
    channels_ = static_cast<int>(images.dims[0]);
    height_ = static_cast<int>(images.dims[1]);
    width_ = static_cast<int>(images.dims[2]);
  } else if (options.cutmix > 0 || erases() || distorts()) {
    throw InputError(fmt::format("{} is for images, but this data is vectors of {} numbers",
                                 options.cutmix > 0 ? "--cutmix"
                                 : erases()         ? "--random-erasing"
                                                    : distorting_option(options),
                                 to_string(images.dims)));
  } else {
    width_ = static_cast<int>(element_count(images.dims));
  }
  if (distorts() && images.stores_floats())
    throw InputError(
        fmt::format("{} is for images of bytes, but this data is floats", distorting_option(options)));
  if (distorts() && channels_ != 1 && channels_ != 3)
    throw InputError(fmt::format("{} is for grey or RGB images, but these have {} channels",
                                 distorting_option(options), channels_));
  if (!mixes()) return;
  bool labelled = false;
  for (MatrixInfo& info : matrices_) {
    if (info.classes == 0) continue;
    info.dims = {kMixedLabelValues};
    labelled = true;
  }
  if (!labelled)
    throw InputError(fmt::format("{} mixes images and their labels, but this data has no labels",
                                 options.mixup > 0 ? "--mixup" : "--cutmix"));
}

void Augmentation::distort(const ImagePlace& place, DecodedImage& image) const {
  if (options_.trivial_augment) {
    const DrawnDistortion drawn = draw_distortion(draw(trivial_key_, place));
    convnet::distort(image, drawn.kind, drawn.magnitude);
  }
  if (options_.color_jitter > 0) jitter_colors(image, options_.color_jitter, draw(jitter_key_, place));
}

void Augmentation::distort(const ImagePlace& place, const PixelStatistics& statistics,
                           std::byte* pixels) const {
  if (matrices_[0].type == DataType::f32)
    distort_pixels(place, statistics.deviations, reinterpret_cast<float*>(pixels));
  else
    distort_pixels(place, {}, reinterpret_cast<std::uint8_t*>(pixels));
}

template <class Item>
void Augmentation::distort_pixels(const ImagePlace& place, const std::vector<float>& deviations,
                                  Item* pixels) const {
  const auto channels = static_cast<std::size_t>(channels_);
  const std::size_t plane = static_cast<std::size_t>(height_) * static_cast<std::size_t>(width_);
  // A float is a byte divided by its channel's deviation.
  const auto deviation = [&](std::size_t c) { return deviations.empty() ? 1 : deviations[c]; };
  DecodedImage image{height_, width_, std::vector<std::uint8_t>(3 * plane)};
  for (std::size_t c = 0; c < 3; ++c) {
    const std::size_t from = channels == 1 ? 0 : c;  // grey images have three equal colours
    for (std::size_t i = 0; i < plane; ++i) {
      if constexpr (std::is_same_v<Item, float>)
        image.pixels[3 * i + c] =
            static_cast<std::uint8_t>(std::lround(pixels[from * plane + i] * deviation(from)));
      else
        image.pixels[3 * i + c] = pixels[from * plane + i];
    }
  }
  distort(place, image);
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t i = 0; i < plane; ++i) {
      const auto byte = static_cast<Item>(image.pixels[3 * i + c]);
      if constexpr (std::is_same_v<Item, float>)
        pixels[c * plane + i] = byte / deviation(c);
      else
        pixels[c * plane + i] = byte;
    }
}

void Augmentation::erase(const ImagePlace& place, const PixelStatistics& statistics,
                         std::byte* pixels) const {
  constexpr WindowBounds bounds{0.02, 0.33, 0.3, 3.3};
  if (double{uniform01(draw(erase_key_, place).value[0])} >= options_.random_erasing) return;
  const std::optional<ImageWindow> box = random_window(erase_key_, place, height_, width_, bounds);
  if (!box) return;
  const bool zeros = options_.read_subtracts_mean() || statistics.mean.empty();
  for_each_pixel(*box, channels_, height_, width_, [&](std::size_t p) {
    const float value = zeros ? 0 : statistics.mean[p];
    if (matrices_[0].type == DataType::f32)
      reinterpret_cast<float*>(pixels)[p] = value;
    else
      reinterpret_cast<std::uint8_t*>(pixels)[p] =
          static_cast<std::uint8_t>(std::lround(std::clamp(value, 0.0F, 255.0F)));
  });
}

double Augmentation::beta_variable(double alpha, const ImagePlace& place) const {
  // With an even smaller alpha all weights are still 0 or 1, but the logarithms would overflow.
  constexpr double least = 1e-6;
  alpha = std::max(alpha, least);
  return 1 / (1 + std::exp(log_gamma_variable(alpha, own_key_, place) -
                           log_gamma_variable(alpha, other_key_, place)));
}

Mixture Augmentation::mixture(const ImagePlace& place, std::int64_t end) const {
  const std::int64_t first = place.image / group * group;
  const auto images = static_cast<int>(std::min(group, end - first));
  if (images < 2) return {};
  const Philox4x32 random = draw(mix_key_, place);
  Mixture mixture;
  mixture.other = first + (place.image - first + 1 + uniform(random.value[0], images - 2)) % images;
  const bool cuts = options_.mixup == 0 || (options_.cutmix > 0 && (random.value[1] & 1) != 0);
  const double share = beta_variable(cuts ? options_.cutmix : options_.mixup, place);
  double weight = share;
  if (cuts) {
    const auto extent = [&](int side, std::uint32_t word) {
      const int inner = static_cast<int>(side * std::sqrt(share));
      const int begin = uniform(word, side - 1) - inner / 2;
      return std::pair(std::max(0, begin), std::min(side, begin + inner));
    };
    const auto [top, bottom] = extent(height_, random.value[2]);
    const auto [left, right] = extent(width_, random.value[3]);
    mixture.box = {top, left, bottom - top, right - left};
    weight = static_cast<double>(bottom - top) * (right - left) / (static_cast<double>(height_) * width_);
  }
  mixture.weight = std::min(kMixedUnit - 1, static_cast<std::int32_t>(std::lround(weight * kMixedUnit)));
  return mixture;
}

template <class Item>
void Augmentation::mix_numbers(const Mixture& mixture, std::size_t matrix, Item* own,
                               const Item* other) const {
  if (matrix == 0 && mixture.box)
    for_each_pixel(*mixture.box, channels_, height_, width_, [&](std::size_t p) { own[p] = other[p]; });
  else
    blend(own, other, element_count(matrices_[matrix].dims), mixture.weight);
}

void Augmentation::mix(const Mixture& mixture, DataBatch& piece, std::int64_t image,
                       const DataBatch& other) const {
  for (std::size_t m = 0; m < matrices_.size(); ++m) {
    const MatrixInfo& info = matrices_[m];
    std::byte* const own = piece.matrices[m].data() + image * info.image_bytes();
    const std::byte* const from = other.matrices[m].data();
    if (info.classes > 0) {
      auto* const label = reinterpret_cast<std::int32_t*>(own);
      label[1] = *reinterpret_cast<const std::int32_t*>(from);
      label[2] = mixture.weight;
    } else if (info.type == DataType::f32) {
      mix_numbers(mixture, m, reinterpret_cast<float*>(own), reinterpret_cast<const float*>(from));
    } else {
      mix_numbers(mixture, m, reinterpret_cast<std::uint8_t*>(own),
                  reinterpret_cast<const std::uint8_t*>(from));
    }
  }
}

std::unique_ptr<Provider> make_augmented_provider(std::unique_ptr<Provider> plain,
                                                  const ImageOptions& options, std::uint64_t seed) {
  return std::make_unique<AugmentedProvider>(std::move(plain), options, seed);
}

}  // namespace convnet
