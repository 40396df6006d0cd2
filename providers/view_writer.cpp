#include "providers/view_writer.h"

#include <array>
#include <type_traits>
#include <utility>

#include "convnet/base/philox.h"
#include "providers/channels.h"
#include "providers/orientation.h"
#include "providers/resize.h"

namespace convnet {

ViewWriter::ViewWriter(const ImageOptions& options, int image_size, int side,
                       const Augmentation& augmentation, std::uint64_t seed)
    : options_(options),
      image_size_(image_size),
      side_(side),
      augmentation_(augmentation),
      channels_(static_cast<std::size_t>(options.channels())),
      crop_key_(philox_key(seed, "image.crop")),
      color_key_(philox_key(seed, "image.color")) {}

/// Chooses what is seen of an image that was scaled to `size`.
std::vector<ViewWriter::View> ViewWriter::views_of(const ImageSize& size, const ImagePlace& place) const {
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

bool ViewWriter::is_mirrored(const Philox4x32& random) const {
  return options_.flip != Flip::off && (random.value[2] & 1) != 0;
}

/// Returns a square as the net sees it: in colour or grey.
DecodedImage ViewWriter::seen(DecodedImage square) const {
  if (channels_ == 1) make_grey(square);
  return square;
}

template <class Item>
void ViewWriter::write_views(const DecodedImage& image, const ImagePlace& place,
                             const PixelStatistics& statistics, Item* out) const {
  if (resizes_crops(place)) {
    write_view(seen(resize_image(image, {side_, side_})), is_mirrored(draw(crop_key_, place)), place,
               statistics, out);
    return;
  }
  const ImageSize size = scaled_to_shorter_side({image.height, image.width}, image_size_);
  for (const View& view : views_of(size, place)) {
    write_view(seen(resize_image(image, size, {view.y, view.x, side_, side_})), view.mirror, place,
               statistics, out);
    out += element_count(augmentation_.matrices()[0].dims);
  }
}

template <class Item>
void ViewWriter::write_view(DecodedImage square, bool mirror, const ImagePlace& place,
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
void ViewWriter::write_square(const DecodedImage& square, bool mirror, Item* out) const {
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
void ViewWriter::adjust(const ImagePlace& place, const PixelStatistics& statistics, float* pixels) const {
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

void ViewWriter::write(const DecodedImage& image, const ImagePlace& place, const PixelStatistics& statistics,
                       std::byte* out) const {
  if (augmentation_.matrices()[0].type == DataType::f32)
    write_views(image, place, statistics, reinterpret_cast<float*>(out));
  else
    write_views(image, place, statistics, reinterpret_cast<std::uint8_t*>(out));
}

DecodedImage ViewWriter::centre(const DecodedImage& image) const {
  const ImageSize size = scaled_to_shorter_side({image.height, image.width}, image_size_);
  return seen(resize_image(image, size, {(size.height - side_) / 2, (size.width - side_) / 2, side_, side_}));
}

}  // namespace convnet
