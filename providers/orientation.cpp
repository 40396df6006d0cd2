#include "providers/orientation.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

namespace convnet {
namespace {

using namespace std::string_view_literals;

/// The TIFF data of an EXIF block: offsets count from its first byte. What lies beyond its end reads as
/// zeros.
class Tiff {
 public:
  explicit Tiff(std::string_view bytes) : bytes_(bytes), big_endian_(bytes.starts_with("MM"sv)) {}

  std::uint32_t number(std::size_t offset, std::size_t size) const {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t at = offset + (big_endian_ ? i : size - 1 - i);
      value = value << 8 | (at < bytes_.size() ? static_cast<unsigned char>(bytes_[at]) : 0U);
    }
    return value;
  }

 private:
  std::string_view bytes_;
  bool big_endian_;
};

/// Says how upright() moves pixels. An orientation says where row 0 and column 0 of the stored image are to
/// be seen.
struct Turn {
  bool sides_change, rows_reversed, columns_reversed;
};
Turn turn_of(int orientation) {
  const auto is_one_of = [orientation](std::initializer_list<int> all) {
    return std::find(all.begin(), all.end(), orientation) != all.end();
  };
  return {orientation >= 5, is_one_of({3, 4, 6, 7}), is_one_of({2, 3, 7, 8})};
}

}  // namespace

int exif_orientation(std::string_view block) {
  constexpr std::string_view kName = "Exif\0\0"sv;
  constexpr std::size_t kEntry = 12;
  constexpr std::uint32_t kOrientation = 0x0112, kShort = 3, kMost = 8;
  if (block.starts_with(kName)) block.remove_prefix(kName.size());
  if (!block.starts_with("II*\0"sv) && !block.starts_with("MM\0*"sv)) return 1;
  const Tiff tiff(block);
  const std::size_t first = tiff.number(4, 4);
  if (first >= block.size()) return 1;
  const std::size_t entries = std::min<std::size_t>(tiff.number(first, 2), (block.size() - first) / kEntry);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = first + 2 + i * kEntry;
    if (tiff.number(entry, 2) != kOrientation) continue;
    const std::uint32_t value = tiff.number(entry + 8, 2);
    const bool known = tiff.number(entry + 2, 2) == kShort && value >= 1 && value <= kMost;
    return known ? static_cast<int>(value) : 1;
  }
  return 1;
}

DecodedImage upright(DecodedImage image, int orientation) {
  if (orientation == 1) return image;
  const auto [sides_change, rows_reversed, columns_reversed] = turn_of(orientation);
  DecodedImage turned{image.height, image.width, {}};
  if (sides_change) std::swap(turned.height, turned.width);
  turned.pixels.reserve(image.pixels.size());
  for (int y = 0; y < turned.height; ++y)
    for (int x = 0; x < turned.width; ++x) {
      const int row = sides_change ? x : y, column = sides_change ? y : x;
      const auto pixel =
          static_cast<std::ptrdiff_t>(rows_reversed ? image.height - 1 - row : row) * image.width +
          (columns_reversed ? image.width - 1 - column : column);
      turned.pixels.insert(turned.pixels.end(), image.pixels.begin() + 3 * pixel,
                           image.pixels.begin() + 3 * pixel + 3);
    }
  return turned;
}

ImageSize upright_size(ImageSize stored, int orientation) {
  return turn_of(orientation).sides_change ? ImageSize{stored.width, stored.height} : stored;
}

ImageWindow stored_window(const ImageWindow& window, ImageSize stored, int orientation) {
  const auto [sides_change, rows_reversed, columns_reversed] = turn_of(orientation);
  ImageWindow found = window;
  if (sides_change) found = {window.x, window.y, window.width, window.height};
  if (rows_reversed) found.y = stored.height - found.y - found.height;
  if (columns_reversed) found.x = stored.width - found.x - found.width;
  return found;
}

}  // namespace convnet
