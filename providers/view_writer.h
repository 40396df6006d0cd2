// Turns decoded pictures into what the net sees, for provider "image".
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "providers/augment.h"
#include "providers/decode.h"
#include "providers/provider.h"

namespace convnet {

/// Writes pictures as rows of matrix 0: scales them, cuts out what is seen, distorts, adjusts and erases it.
/// All functions may be called from several threads at once.
class ViewWriter {
 public:
  /// `image_size` is the shorter side of scaled pictures, `side` that of what the net sees. `augmentation`
  /// must outlive the writer.
  ViewWriter(const ImageOptions& options, int image_size, int side, const Augmentation& augmentation,
             std::uint64_t seed);

  /// Returns whether a random window of the image is scaled to what is seen.
  bool resizes_crops(const ImagePlace& place) const {
    return place.epoch > 0 && options_.random_resized_crop > 0;
  }
  /// Writes what is seen of an image, or in tests with several views each of them, to consecutive rows at
  /// `out`. `image` is the whole picture, or the random window if resizes_crops().
  void write(const DecodedImage& image, const ImagePlace& place, const PixelStatistics& statistics,
             std::byte* out) const;
  /// Returns the centre of a picture, scaled, in colour or grey.
  DecodedImage centre(const DecodedImage& image) const;

 private:
  struct View {
    int y = 0, x = 0;
    bool mirror = false;
  };
  std::vector<View> views_of(const ImageSize& size, const ImagePlace& place) const;
  bool is_mirrored(const Philox4x32& random) const;
  DecodedImage seen(DecodedImage square) const;
  template <class Item>
  void write_views(const DecodedImage& image, const ImagePlace& place, const PixelStatistics& statistics,
                   Item* out) const;
  template <class Item>
  void write_view(DecodedImage square, bool mirror, const ImagePlace& place,
                  const PixelStatistics& statistics, Item* out) const;
  template <class Item>
  void write_square(const DecodedImage& square, bool mirror, Item* out) const;
  void adjust(const ImagePlace& place, const PixelStatistics& statistics, float* pixels) const;

  const ImageOptions options_;
  const int image_size_, side_;
  const Augmentation& augmentation_;
  const std::size_t channels_;  ///< number of channels that the net sees
  const std::uint64_t crop_key_, color_key_;
};

}  // namespace convnet
