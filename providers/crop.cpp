#include "providers/crop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "convnet/base/crop.h"
#include "convnet/base/error.h"
#include "convnet/base/philox.h"

namespace convnet {
namespace {

struct ImageShape {
  std::int64_t channels, height, width;
  std::int64_t size() const { return channels * height * width; }
};

Crop crop_at(std::int64_t y, std::int64_t x, bool mirror) {
  return {static_cast<std::int32_t>(y), static_cast<std::int32_t>(x), mirror ? 1 : 0};
}

/// Returns the crop of the centre, or, if the centre is not a pixel, the upper left of the four candidates.
Crop centre_crop(const ImageShape& from, const ImageShape& to) {
  return crop_at((from.height - to.height) / 2, (from.width - to.width) / 2, false);
}

/// Cuts the crop out of an image. `Item` and `Out` are types of pixels.
template <class Item, class Out>
void cut(const ImageShape& from, const ImageShape& to, const Crop& crop, const Item* image, Out* out) {
  // The columns [begin, end) of a row lie in the image and are copied at once.
  const std::int64_t begin = std::clamp<std::int64_t>(-crop.x, 0, to.width);
  const std::int64_t end = std::clamp<std::int64_t>(from.width - crop.x, begin, to.width);
  for (std::int64_t c = 0; c < to.channels; ++c, image += from.height * from.width)
    for (std::int64_t y = crop.y; y < crop.y + to.height; ++y, out += to.width) {
      std::fill(out, out + to.width, Out{0});
      if (y < 0 || y >= from.height) continue;
      const Item* const row = image + y * from.width;
      std::transform(row + crop.x + begin, row + crop.x + end, out + begin,
                     [](Item pixel) { return static_cast<Out>(pixel); });
      if (crop.mirror != 0) std::reverse(out, out + to.width);
    }
}

/// Cuts the crop out of an image that is stored with the crop behind it.
template <class Item, class Out>
void cut_stored(const std::byte* bytes, const MatrixInfo& info, Out* out) {
  const ImageShape from{info.uncropped[0], info.uncropped[1], info.uncropped[2]};
  const ImageShape to{info.dims[0], info.dims[1], info.dims[2]};
  Crop crop;
  std::memcpy(&crop, bytes + crop_offset(from.size() * static_cast<std::int64_t>(sizeof(Item))), sizeof crop);
  cut(from, to, crop, reinterpret_cast<const Item*>(bytes), out);
}

template <class Item>
std::vector<float> seen_pixels(const std::byte* bytes, const MatrixInfo& info) {
  const auto* const pixels = reinterpret_cast<const Item*>(bytes);
  const std::int64_t count = element_count(info.dims);
  if (info.uncropped.empty()) return {pixels, pixels + count};
  std::vector<float> seen(static_cast<std::size_t>(count));
  cut_stored<Item>(bytes, info, seen.data());
  return seen;
}

template <class Item>
void cut_all(const DataBatch& batch, const MatrixInfo& info, std::byte* out) {
  const std::int64_t count = element_count(info.dims);
  for (std::int64_t i = 0; i < batch.images; ++i)
    cut_stored<Item>(batch.matrices[0].data() + i * info.image_bytes(), info,
                     reinterpret_cast<Item*>(out) + i * count);
}

class CroppedProvider final : public StoredProvider {
 public:
  CroppedProvider(std::unique_ptr<StoredProvider> whole, const ImageOptions& options, std::uint64_t seed)
      : whole_(std::move(whole)),
        options_(options),
        key_(philox_key(seed, "crop")),
        matrices_(whole_->matrices()) {
    const Dims& dims = matrices_[0].dims;
    if (dims.size() != 3)
      throw InputError(fmt::format("{} is for images, but this data is vectors of {} numbers", option_name(),
                                   to_string(dims)));
    from_ = {dims[0], dims[1], dims[2]};
    to_ = from_;
    if (options.inner_size > 0) to_.height = to_.width = options.inner_size;
    if (to_.height > from_.height || to_.width > from_.width)
      throw InputError(
          fmt::format("--inner-size {}: the images are {} (channels x height x width), and a crop can be at "
                      "most {}",
                      options.inner_size, to_string(dims), std::min(dims[1], dims[2])));
    if (places_crops()) matrices_[0].uncropped = matrices_[0].stored = dims;
    matrices_[0].dims = {to_.channels, to_.height, to_.width};
    if (options.pixel_std) matrices_[0].stored_type = std::exchange(matrices_[0].type, DataType::f32);
  }

  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }
  void check_range(const BatchRange& range, const std::string& option) const override {
    whole_->check_range(range, option);
  }
  std::optional<BatchSplit> split() const override { return whole_->split(); }
  std::string image_name(int batch, std::int64_t image) const override {
    return whole_->image_name(batch, image);
  }
  std::int64_t images_in(int batch) const override { return whole_->images_in(batch); }
  DataBatch load(int batch) const override { return whole_->load(batch); }
  void check_labels(const BatchRange& range) const override { whole_->check_labels(range); }
  void add_labels(const BatchRange& range, Crc32& sum) const override { whole_->add_labels(range, sum); }
  std::vector<std::int64_t> class_counts(const BatchRange& range) const override {
    return whole_->class_counts(range);
  }
  bool has_mean() const override { return options_.scalar_mean >= 0 || whole_->has_mean(); }
  int views() const override { return options_.multiview ? 9 : 1; }
  std::int64_t most_kept() const override { return whole_->most_kept(); }

  std::vector<float> mean_image(const BatchRange& range) const override {
    if (options_.scalar_mean >= 0)
      return std::vector<float>(static_cast<std::size_t>(to_.size()),
                                static_cast<float>(options_.scalar_mean));
    return crop_mean(whole_->mean_image(range));
  }

  PixelStatistics statistics(const BatchRange& range) const override {
    PixelStatistics statistics{mean_image(range), {}, {}};
    if (!options_.pixel_std) return statistics;
    statistics.deviations = deviations(range);
    const std::int64_t plane = to_.height * to_.width;
    for (std::size_t i = 0; i < statistics.mean.size(); ++i)
      statistics.mean[i] /= statistics.deviations[i / static_cast<std::size_t>(plane)];
    return statistics;
  }

  DataBatch finish(DataBatch piece, const LoadRequest& request,
                   const PixelStatistics& statistics) const override {
    std::vector<std::byte>& images = piece.matrices[0];
    if (options_.pixel_std)
      images = whole_->matrices()[0].type == DataType::f32
                   ? scale<float>(images, statistics.deviations)
                   : scale<std::uint8_t>(images, statistics.deviations);
    if (places_crops()) images = with_crops(images, piece.images, request);
    if (const int views = views_of(request); views > 1) {
      for (std::size_t m = 1; m < piece.matrices.size(); ++m)
        piece.matrices[m] = repeat(piece.matrices[m], piece.images, views);
      piece.images *= views;
    }
    return piece;
  }

 private:
  const char* option_name() const {
    return options_.inner_size > 0     ? "--inner-size"
           : options_.crop_pad > 0     ? "--crop-pad"
           : options_.flip == Flip::on ? "--flip"
           : options_.pixel_std        ? "--pixel-std"
                                       : "--scalar-mean";
  }

  /// Returns whether images are followed by a Crop. Without random crops, it only mirrors them.
  bool places_crops() const { return options_.crops() || options_.flip == Flip::on; }

  Crop crop_of(const LoadRequest& request, std::int64_t image) const {
    if (request.epoch == 0) return centre_crop(from_, to_);
    const Philox4x32 random =
        philox(key_, static_cast<std::uint32_t>(image), static_cast<std::uint32_t>(request.batch),
               static_cast<std::uint32_t>(request.epoch), 0);
    const auto origin = [&](std::int64_t side, std::int64_t inner, std::uint32_t word) {
      const std::int64_t pad = options_.crop_pad;
      const std::int64_t places = (side + 2 * pad - inner) / 2 * 2 + 1;
      return static_cast<std::int64_t>(word * static_cast<std::uint64_t>(places) >> 32) - pad;
    };
    return crop_at(origin(from_.height, to_.height, random.value[0]),
                   origin(from_.width, to_.width, random.value[1]),
                   options_.flip != Flip::off && (random.value[2] & 1) != 0);
  }

  /// Returns the crop of view `view` of a test image.
  Crop view_of(int view) const {
    const Crop centre = centre_crop(from_, to_);
    return crop_at(std::int64_t{view / 3} * centre.y, std::int64_t{view % 3} * centre.x, false);
  }

  /// Repeats each image as often as it is seen, and appends the crop of each view.
  std::vector<std::byte> with_crops(const std::vector<std::byte>& images, std::int64_t count,
                                    const LoadRequest& request) const {
    const int views = views_of(request);
    const std::int64_t pixels = from_.size() * size_of(matrices_[0].type), bytes = matrices_[0].image_bytes();
    std::vector<std::byte> out(static_cast<std::size_t>(count * views * bytes));
    std::byte* into = out.data();
    for (std::int64_t i = 0; i < count; ++i)
      for (int view = 0; view < views; ++view, into += bytes) {
        const Crop crop = views > 1 ? view_of(view) : crop_of(request, request.first + i);
        std::memcpy(into, images.data() + i * pixels, static_cast<std::size_t>(pixels));
        std::memcpy(into + crop_offset(pixels), &crop, sizeof crop);
      }
    return out;
  }

  int views_of(const LoadRequest& request) const { return request.epoch == 0 ? views() : 1; }

  /// Returns the matrix with every image's values repeated `times` times.
  static std::vector<std::byte> repeat(const std::vector<std::byte>& matrix, std::int64_t images, int times) {
    std::vector<std::byte> out;
    out.reserve(matrix.size() * static_cast<std::size_t>(times));
    const auto bytes = static_cast<std::ptrdiff_t>(matrix.size()) / std::max<std::int64_t>(1, images);
    for (auto at = matrix.begin(); at != matrix.end(); at += bytes)
      for (int t = 0; t < times; ++t) out.insert(out.end(), at, at + bytes);
    return out;
  }

  template <class Item>
  std::vector<std::byte> scale(const std::vector<std::byte>& images,
                               const std::vector<float>& deviations) const {
    const std::size_t count = images.size() / sizeof(Item);
    std::vector<std::byte> out(count * sizeof(float));
    const auto* const source = reinterpret_cast<const Item*>(images.data());
    auto* const into = reinterpret_cast<float*>(out.data());
    const auto plane = static_cast<std::size_t>(from_.height * from_.width),
               channels = static_cast<std::size_t>(from_.channels);
    for (std::size_t i = 0, c = 0; i < count; i += plane, c = c + 1 == channels ? 0 : c + 1) {
      const float deviation = deviations.empty() ? 1 : deviations[c];
      for (std::size_t j = i; j < i + plane; ++j) into[j] = static_cast<float>(source[j]) / deviation;
    }
    return out;
  }

  std::vector<float> crop_mean(const std::vector<float>& mean) const {
    if (mean.empty()) return mean;
    std::vector<float> seen(static_cast<std::size_t>(to_.size()));
    cut(from_, to_, centre_crop(from_, to_), mean.data(), seen.data());
    return seen;
  }

  /// Returns the standard deviation of each channel's pixels over all images of a range; 1 for a channel of
  /// one colour.
  std::vector<float> deviations(const BatchRange& range) const {
    const auto channels = static_cast<std::size_t>(from_.channels),
               plane = static_cast<std::size_t>(from_.height * from_.width);
    std::vector<double> sums(channels, 0.0), squares(channels, 0.0);
    double count = 0;
    const auto add = [&](const auto* pixels, std::int64_t images) {
      for (std::size_t p = 0; p < static_cast<std::size_t>(images) * channels; ++p, pixels += plane) {
        double sum = 0, square = 0;
        for (std::size_t j = 0; j < plane; ++j) {
          const auto value = static_cast<double>(pixels[j]);
          sum += value;
          square += value * value;
        }
        sums[p % channels] += sum;
        squares[p % channels] += square;
      }
      count += static_cast<double>(images) * static_cast<double>(plane);
    };
    for (int batch = range.first; batch <= range.last; ++batch) {
      const DataBatch stored = whole_->load(batch);
      const std::byte* const data = stored.matrices[0].data();
      if (whole_->matrices()[0].type == DataType::f32)
        add(reinterpret_cast<const float*>(data), stored.images);
      else
        add(reinterpret_cast<const std::uint8_t*>(data), stored.images);
    }
    std::vector<float> out;
    for (std::size_t c = 0; c < channels; ++c) {
      const double mean = sums[c] / count;
      const auto deviation = static_cast<float>(std::sqrt(std::max(0.0, squares[c] / count - mean * mean)));
      out.push_back(deviation > 0 ? deviation : 1);
    }
    return out;
  }

  const std::unique_ptr<StoredProvider> whole_;
  const ImageOptions options_;
  const std::uint64_t key_;
  std::vector<MatrixInfo> matrices_;
  ImageShape from_ = {}, to_ = {};
};

}  // namespace

std::unique_ptr<StoredProvider> make_cropped_provider(std::unique_ptr<StoredProvider> whole,
                                                      const ImageOptions& options, std::uint64_t seed) {
  return std::make_unique<CroppedProvider>(std::move(whole), options, seed);
}

std::vector<std::byte> cut_images(const DataBatch& batch, const MatrixInfo& info) {
  if (info.uncropped.empty()) return batch.matrices[0];
  std::vector<std::byte> out(
      static_cast<std::size_t>(batch.images * element_count(info.dims) * size_of(info.type)));
  if (info.type == DataType::f32)
    cut_all<float>(batch, info, out.data());
  else
    cut_all<std::uint8_t>(batch, info, out.data());
  return out;
}

std::vector<float> seen_pixels(const DataBatch& batch, const MatrixInfo& info, std::int64_t image) {
  const std::byte* const bytes = batch.matrices[0].data() + image * info.image_bytes();
  return info.type == DataType::f32 ? seen_pixels<float>(bytes, info)
                                    : seen_pixels<std::uint8_t>(bytes, info);
}

}  // namespace convnet
