#include "providers/jpeg.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <utility>

extern "C" {
#include <jerror.h>
#include <jpeglib.h>
}

#include <fmt/format.h>

#include "convnet/base/error.h"
#include "providers/orientation.h"
#include "providers/resize.h"

namespace convnet {
namespace {

/// The library reports an error by a call that must not return: it jumps back to where setjmp() was. Between
/// the two lie only the library's C functions, so no destructor is missed.
struct Errors {
  jpeg_error_mgr manager;  // first: the library knows the address of this one only
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
  bool no_memory;
};

[[noreturn]] void report(j_common_ptr info) {
  auto* const errors = reinterpret_cast<Errors*>(info->err);
  errors->manager.format_message(info, errors->message);
  errors->no_memory = info->err->msg_code == JERR_OUT_OF_MEMORY;
  std::longjmp(errors->back, 1);
}

/// The library continues after damaged data. This accepts only warnings that do not affect the pixels.
void warn(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:  // between two markers
    case JWRN_ADOBE_XFORM:
    case JWRN_NOT_SEQUENTIAL:  // spectral bands of 0 to 0, which some cameras write
    case JWRN_JFIF_MAJOR: return;
    default: report(info);
  }
}

void drop(j_common_ptr) {}

/// Throws what the library reported when it was to be set up.
[[noreturn]] void fail_to_create(const Errors& errors) {
  if (errors.no_memory) throw std::bad_alloc();
  throw DeviceError(fmt::format("libjpeg cannot be used: {}", errors.message));
}

/// Ends a decompression with an error when the image has too many scans.
struct ScanLimit {
  jpeg_progress_mgr manager;  // first, as in Errors
  std::int64_t most;

  static void check(j_common_ptr info) {
    const auto& limit = *reinterpret_cast<const ScanLimit*>(info->progress);
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= limit.most) return;
    auto* const errors = reinterpret_cast<Errors*>(info->err);
    std::snprintf(errors->message, sizeof errors->message,
                  "it has more than %lld scans, the most for an image of its size",
                  static_cast<long long>(limit.most));
    std::longjmp(errors->back, 1);
  }
};

jpeg_error_mgr* prepare(Errors& errors) {
  jpeg_std_error(&errors.manager);
  errors.manager.error_exit = report;
  errors.manager.emit_message = warn;
  errors.manager.output_message = drop;
  return &errors.manager;
}

/// One image at a time. The functions return false if the library reported an error: message().
class Decompressor {
 public:
  Decompressor() {
    info_.err = prepare(errors_);
    if (setjmp(errors_.back) != 0) {
      jpeg_destroy_decompress(&info_);
      fail_to_create(errors_);
    }
    jpeg_create_decompress(&info_);
  }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;
  ~Decompressor() { jpeg_destroy_decompress(&info_); }

  bool read_header(std::string_view bytes) {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()),
                 static_cast<unsigned long>(bytes.size()));
    constexpr unsigned int kMostBytes = 0xFFFF;
    jpeg_save_markers(&info_, kExifMarker, kMostBytes);
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  /// Returns the orientation in the first block of EXIF data. May be called between read_header() and
  /// read_rows().
  int orientation() const {
    for (const jpeg_marker_struct* marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (marker->marker == kExifMarker && data.starts_with("Exif")) return exif_orientation(data);
    }
    return 1;
  }

  /// Starts to decode at `eighths`/8 of the size. From here on, the output's size is known.
  bool start(int eighths) {
    if (setjmp(errors_.back) != 0) return false;
    info_.scale_num = static_cast<unsigned int>(eighths);
    info_.scale_denom = 8;
    info_.out_color_space = is_cmyk() ? JCS_CMYK : JCS_RGB;
    scans_.manager.progress_monitor = ScanLimit::check;
    scans_.most = most_scans(std::int64_t{info_.image_width} * info_.image_height);
    info_.progress = &scans_.manager;
    return jpeg_start_decompress(&info_) != 0;
  }

  /// Limits the rows to the columns [begin, end), and further ones beside them. Returns the first of those
  /// that rows have, nullopt if the library reported an error.
  std::optional<int> limit_columns(int begin, int end) {
    if (setjmp(errors_.back) != 0) return std::nullopt;
    // Colours of a lower resolution are made of the neighbouring pixels, too.
    constexpr int kNeighbours = 8;
    JDIMENSION first = static_cast<JDIMENSION>(std::max(0, begin - kNeighbours));
    JDIMENSION columns = std::min(static_cast<JDIMENSION>(end + kNeighbours), info_.output_width) - first;
    if (columns < info_.output_width) jpeg_crop_scanline(&info_, &first, &columns);
    return static_cast<int>(first);
  }

  /// Reads the rows [begin, end), of row_bytes() each.
  bool read_rows(int begin, int end, std::uint8_t* pixels) {
    if (setjmp(errors_.back) != 0) return false;
    if (begin > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(begin));
    while (info_.output_scanline < static_cast<JDIMENSION>(end)) {
      JSAMPROW row = pixels + (info_.output_scanline - static_cast<JDIMENSION>(begin)) * row_bytes();
      jpeg_read_scanlines(&info_, &row, 1);
    }
    return true;
  }

  /// Returns whether the marker of the end follows somewhere in the bytes that were not read.
  bool has_end() {
    const std::string_view rest(reinterpret_cast<const char*>(info_.src->next_input_byte),
                                info_.src->bytes_in_buffer);
    return jpeg_has_multiple_scans(&info_) || rest.rfind("\xff\xd9") != std::string_view::npos;
  }

  /// Reads what is left, one row after the other into `row`, so that the library finds what is wrong with it.
  bool finish(std::uint8_t* row) {
    if (setjmp(errors_.back) != 0) return false;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW pixels = row;
      jpeg_read_scanlines(&info_, &pixels, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  const jpeg_decompress_struct& info() const { return info_; }
  bool is_cmyk() const { return info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK; }
  std::size_t channels() const { return is_cmyk() ? 4 : 3; }
  std::size_t row_bytes() const { return info_.output_width * channels(); }
  const Errors& errors() const { return errors_; }

 private:
  static constexpr int kExifMarker = JPEG_APP0 + 1;

  Errors errors_ = {};
  ScanLimit scans_ = {};
  jpeg_decompress_struct info_ = {};
};

/// Converts CMYK to RGB. Adobe's programs, which write nearly all such files, store inverted values.
void convert_cmyk(const std::vector<std::uint8_t>& from, bool inverted, std::vector<std::uint8_t>& to) {
  for (std::size_t i = 0, o = 0; i < from.size(); i += 4)
    for (std::size_t c = 0; c < 3; ++c, ++o) {
      const int light = inverted ? from[i + c] : 255 - from[i + c];
      const int paper = inverted ? from[i + 3] : 255 - from[i + 3];
      to[o] = static_cast<std::uint8_t>((light * paper + 127) / 255);
    }
}

/// Returns the pixels of an image of `eighths`/8 of the size that show any part of the window.
ImageWindow scaled_window(const ImageWindow& window, int eighths) {
  const int y = window.y * eighths / 8, x = window.x * eighths / 8;
  return {y, x, ((window.y + window.height) * eighths + 7) / 8 - y,
          ((window.x + window.width) * eighths + 7) / 8 - x};
}

/// Returns the columns [first, first + width) of rows of `row_bytes` with `channels` a pixel.
std::vector<std::uint8_t> cut_columns(const std::vector<std::uint8_t>& pixels, std::size_t row_bytes,
                                      int first, int width, std::size_t channels) {
  std::vector<std::uint8_t> cut;
  cut.reserve(pixels.size());
  for (std::size_t row = 0; row < pixels.size(); row += row_bytes) {
    const auto from =
        pixels.begin() + static_cast<std::ptrdiff_t>(row + static_cast<std::size_t>(first) * channels);
    cut.insert(cut.end(), from,
               from + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(width) * channels));
  }
  return cut;
}

class Compressor {
 public:
  Compressor() {
    info_.err = prepare(errors_);
    if (setjmp(errors_.back) != 0) {
      jpeg_destroy_compress(&info_);
      fail_to_create(errors_);
    }
    jpeg_create_compress(&info_);
  }
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;
  ~Compressor() {
    jpeg_destroy_compress(&info_);
    const std::unique_ptr<unsigned char, decltype(&std::free)> freed(bytes_, &std::free);
  }

  bool write(const DecodedImage& image, int quality) {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_mem_dest(&info_, &bytes_, &size_);
    info_.image_width = static_cast<JDIMENSION>(image.width);
    info_.image_height = static_cast<JDIMENSION>(image.height);
    info_.input_components = 3;
    info_.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info_);
    jpeg_set_quality(&info_, quality, TRUE);
    jpeg_start_compress(&info_, TRUE);
    while (info_.next_scanline < info_.image_height) {
      // The library does not write to it.
      JSAMPROW row = const_cast<std::uint8_t*>(image.pixels.data()) +
                     std::size_t{info_.next_scanline} * info_.image_width * 3;
      jpeg_write_scanlines(&info_, &row, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }

  std::string bytes() const { return {reinterpret_cast<const char*>(bytes_), size_}; }
  const Errors& errors() const { return errors_; }

 private:
  Errors errors_ = {};
  jpeg_compress_struct info_ = {};
  unsigned char* bytes_ = nullptr;  // the library allocates it
  unsigned long size_ = 0;
};

}  // namespace

std::int64_t most_scans(std::int64_t pixels) {
  constexpr std::int64_t kMost = 100, kMostOfLargest = 15;
  return std::min(kMost, kMostOfLargest * kMaxImagePixels / std::max<std::int64_t>(1, pixels));
}

DecodedImage decode_jpeg(std::string_view bytes, const std::string& name, const ChooseWindow& choose,
                         int wanted_side) {
  Decompressor jpeg;
  const auto fail = [&](const std::string& what) { throw InputError(name + ": " + what); };
  const auto check = [&](bool fine) {
    if (fine) return;
    if (jpeg.errors().no_memory) throw std::bad_alloc();
    fail(fmt::format("a damaged JPEG: {}", jpeg.errors().message));
  };
  check(jpeg.read_header(bytes));
  const std::int64_t width = jpeg.info().image_width, height = jpeg.info().image_height;
  if (width * height > kMaxImagePixels)
    fail(fmt::format("{} x {} pixels; {} are allowed", width, height, kMaxImagePixels));
  const int orientation = jpeg.orientation();
  const ImageSize stored{static_cast<int>(height), static_cast<int>(width)};
  ImageWindow window{0, 0, stored.height, stored.width};
  if (choose) {
    window = stored_window(choose(upright_size(stored, orientation)), stored, orientation);
  }
  const int eighths = eighths_for(window, wanted_side);
  window = scaled_window(window, eighths);
  check(jpeg.start(eighths));
  const std::optional<int> first_column = jpeg.limit_columns(window.x, window.x + window.width);
  check(first_column.has_value());
  std::vector<std::uint8_t> pixels(jpeg.row_bytes() * static_cast<std::size_t>(window.height));
  check(jpeg.read_rows(window.y, window.y + window.height, pixels.data()));
  const bool reads_all = jpeg.info().output_scanline == jpeg.info().output_height;
  if (reads_all || !jpeg.has_end()) {
    std::vector<std::uint8_t> row(jpeg.row_bytes());
    check(jpeg.finish(row.data()));
  }
  if (jpeg.info().output_width > static_cast<JDIMENSION>(window.width))
    pixels = cut_columns(pixels, jpeg.row_bytes(), window.x - *first_column, window.width, jpeg.channels());
  DecodedImage image{window.height, window.width, {}};
  if (jpeg.is_cmyk()) {
    image.pixels.resize(pixels.size() / 4 * 3);
    convert_cmyk(pixels, jpeg.info().saw_Adobe_marker != 0, image.pixels);
  } else {
    image.pixels = std::move(pixels);
  }
  return upright(std::move(image), orientation);
}

std::string encode_jpeg(const DecodedImage& image, int quality) {
  Compressor jpeg;
  if (jpeg.write(image, quality)) return jpeg.bytes();
  if (jpeg.errors().no_memory) throw std::bad_alloc();
  throw RunError(fmt::format("a JPEG cannot be made: {}", jpeg.errors().message));
}

}  // namespace convnet
