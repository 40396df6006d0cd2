#include "providers/jpeg.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

extern "C" {
#include <jerror.h>
#include <jpeglib.h>
}

#include <fmt/format.h>

#include "convnet/base/error.h"
#include "providers/orientation.h"

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
  bool start(unsigned int eighths) {
    if (setjmp(errors_.back) != 0) return false;
    info_.scale_num = eighths;
    info_.scale_denom = 8;
    info_.out_color_space = is_cmyk() ? JCS_CMYK : JCS_RGB;
    scans_.manager.progress_monitor = ScanLimit::check;
    scans_.most = most_scans(std::int64_t{info_.image_width} * info_.image_height);
    info_.progress = &scans_.manager;
    return jpeg_start_decompress(&info_) != 0;
  }

  /// Reads all rows, of row_bytes() each.
  bool read_rows(std::uint8_t* pixels) {
    if (setjmp(errors_.back) != 0) return false;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels + info_.output_scanline * row_bytes();
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  const jpeg_decompress_struct& info() const { return info_; }
  bool is_cmyk() const { return info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK; }
  std::size_t row_bytes() const { return std::size_t{info_.output_width} * (is_cmyk() ? 4U : 3U); }
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

/// Returns the scale in eighths at which to decode: 8, 4, 2 or 1, for which the library is fast.
unsigned int eighths_for(const jpeg_decompress_struct& info, int wanted_side) {
  if (wanted_side <= 0) return 8;
  const std::uint64_t side = std::min(info.image_width, info.image_height);
  for (const unsigned int eighths : {1U, 2U, 4U})
    if ((side * eighths + 7) / 8 >= static_cast<std::uint64_t>(wanted_side)) return eighths;
  return 8;
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
  return std::min(kMost, kMostOfLargest * max_image_pixels / std::max<std::int64_t>(1, pixels));
}

DecodedImage decode_jpeg(std::string_view bytes, const std::string& name, int wanted_side) {
  Decompressor jpeg;
  const auto fail = [&](const std::string& what) { throw InputError(name + ": " + what); };
  const auto check = [&](bool fine) {
    if (fine) return;
    if (jpeg.errors().no_memory) throw std::bad_alloc();
    fail(fmt::format("a damaged JPEG: {}", jpeg.errors().message));
  };
  check(jpeg.read_header(bytes));
  const std::int64_t width = jpeg.info().image_width, height = jpeg.info().image_height;
  if (width * height > max_image_pixels)
    fail(fmt::format("{} x {} pixels; {} are allowed", width, height, max_image_pixels));
  check(jpeg.start(eighths_for(jpeg.info(), wanted_side)));
  const int orientation = jpeg.orientation();
  DecodedImage image;
  image.height = static_cast<int>(jpeg.info().output_height);
  image.width = static_cast<int>(jpeg.info().output_width);
  image.pixels.resize(std::size_t{jpeg.info().output_height} * jpeg.info().output_width * 3);
  if (jpeg.is_cmyk()) {
    std::vector<std::uint8_t> inks(image.pixels.size() / 3 * 4);
    check(jpeg.read_rows(inks.data()));
    convert_cmyk(inks, jpeg.info().saw_Adobe_marker != 0, image.pixels);
  } else {
    check(jpeg.read_rows(image.pixels.data()));
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
