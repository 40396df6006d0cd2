#include "providers/file_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "providers/crop.h"
#include "providers/decode.h"
#include "providers/image.h"
#include "providers/image_source.h"
#include "providers/resize.h"

namespace convnet {
namespace {

/// The largest ratio of an image's sides.
constexpr int kMostAspect = 1000;

/// Returns the encoded image.
std::string bytes_of(const FileImage& image) {
  return image.bytes ? *image.bytes : read_whole_file(image.file);
}

class FileSource final : public ImageSource {
 public:
  /// `cropped` says that the net sees only a part of each image.
  FileSource(std::vector<FileImage> files, const MatrixInfo& images, const MatrixInfo& labels, bool cropped)
      : files_(std::move(files)) {
    // Checkpoints of older versions do not say the size of images that are cropped; then the options decide.
    const Dims& whole = cropped ? images.stored : images.dims;
    if (whole.size() == 3) info_.image_size = static_cast<int>(whole[1]);
    if (labels.type == DataType::f32) {
      info_.number_names = labels.class_names;
      info_.number_names.resize(static_cast<std::size_t>(element_count(labels.dims)));
    } else {
      info_.classes = labels.classes;
      info_.class_names = labels.class_names;
    }
  }
  bool has(int batch) const override { return batch == 1; }
  std::string contents() const override { return "batch 1"; }
  std::int64_t images_in(int) const override { return static_cast<std::int64_t>(files_.size()); }
  EncodedImage read(int, std::int64_t image) const override {
    const FileImage& file = files_[static_cast<std::size_t>(image)];
    if (info_.number_names.empty()) return {file.file, bytes_of(file), {{0}}};
    return {file.file, bytes_of(file), {{}, std::vector<float>(info_.number_names.size())}};
  }

 private:
  const std::vector<FileImage> files_;
};

/// Returns how the images of a data set of images of one size are stored, before they are cropped or
/// converted.
MatrixInfo stored_images(const LikeSet& like) {
  MatrixInfo images = like.matrices.at(0);
  images.uncropped.clear();
  if (!images.stored.empty()) images.dims = std::exchange(images.stored, {});
  images.type = images.stored_type.value_or(images.type);
  images.stored_type.reset();
  return images;
}

void check_takes_images(const std::string& file, const LikeSet& like) {
  if (like.provider == "image") return;
  const MatrixInfo images = stored_images(like);
  if (images.stores_floats())
    throw InputError(
        file +
        ": the net was trained on arrays of float32 numbers, and nothing says which numbers the pixels of a "
        "file (0 to 255) are among them; make such an array of the files and give its name instead (x.npy)");
  if (images.dims.size() != 3 || (images.dims[0] != 1 && images.dims[0] != 3))
    throw InputError(fmt::format(
        "{}: the net was not trained on images but on {} numbers each, so it takes no files of images, only "
        "arrays of such numbers (x.npy)",
        file, to_string(images.dims)));
}

void check_takes_array(const NpyArray& array, const LikeSet& like) {
  if (like.provider == "image")
    throw InputError(array.path() +
                     ": the net was trained on photographs (--data-provider image), which tests scale and "
                     "cut; it takes files of images, no arrays");
  const MatrixInfo images = stored_images(like);
  if (const Dims dims = array.record_dims(); dims != images.dims)
    throw InputError(
        fmt::format("{}: its shape is {}, so each of its records has {} numbers, but the net's "
                    "data set has images of {}",
                    array.path(), to_string(array.dims()), to_string(dims), to_string(images.dims)));
  if (array.type() == images.type) return;
  throw InputError(
      array.path() +
      (images.stores_floats()
           ? ": its numbers are bytes (uint8), but the net's data set has other numbers, which are read as "
             "float32; prepare the array as the data set was, and save it as float32"
           : ": its numbers are no bytes, but the net's data set has images of uint8; prepare the array as "
             "the data set was, and save it as uint8"));
}

/// Files and records of arrays as images of one size.
class StoredFiles final : public StoredProvider {
 public:
  StoredFiles(std::vector<FileImage> images, const LikeSet& like)
      : images_(std::move(images)), has_mean_(like.has_mean), matrices_(like.matrices) {
    matrices_[0] = stored_images(like);
  }

  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }
  void check_range(const BatchRange&, const std::string&) const override {}
  std::int64_t images_in(int) const override { return static_cast<std::int64_t>(images_.size()); }
  bool has_mean() const override { return has_mean_; }
  std::vector<float> mean_image(const BatchRange&) const override { return {}; }

  DataBatch load(int) const override {
    DataBatch batch;
    batch.images = images_in(1);
    for (const MatrixInfo& info : matrices_)
      batch.matrices.emplace_back(static_cast<std::size_t>(batch.images * info.image_bytes()));
    std::byte* to = batch.matrices[0].data();
    for (const FileImage& image : images_) {
      if (image.array)
        std::ranges::copy(image.array->numbers(image.record, 1), to);
      else
        write(image, to);
      to += matrices_[0].image_bytes();
    }
    return batch;
  }

 private:
  void write(const FileImage& file, std::byte* to) const {
    const Dims& dims = matrices_[0].dims;
    const int height = static_cast<int>(dims[1]), width = static_cast<int>(dims[2]);
    const DecodedImage image = decode_image(bytes_of(file), file.file);
    check_aspect({image.height, image.width}, file.file, kMostAspect);
    // The image is scaled until it covers the size. What is too long is cut off at both ends.
    const double scale =
        std::max(static_cast<double>(height) / image.height, static_cast<double>(width) / image.width);
    const ImageSize size{std::max(height, static_cast<int>(std::lround(image.height * scale))),
                         std::max(width, static_cast<int>(std::lround(image.width * scale)))};
    const DecodedImage seen =
        resize_image(image, size, {(size.height - height) / 2, (size.width - width) / 2, height, width});
    const std::size_t plane = static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
    for (std::size_t p = 0; p < plane; ++p) {
      const std::uint8_t* const rgb = seen.pixels.data() + 3 * p;
      if (dims[0] == 3) {
        for (std::size_t c = 0; c < 3; ++c) to[c * plane + p] = std::byte{rgb[c]};
      } else {
        to[p] = std::byte{luma(rgb[0], rgb[1], rgb[2])};
      }
    }
  }

  const std::vector<FileImage> images_;
  const bool has_mean_;
  std::vector<MatrixInfo> matrices_;
};

}  // namespace

std::string FileImage::name() const { return array ? fmt::format("{}[{}]", file, record) : file; }

std::vector<FileImage> images_in_file(const std::string& file, const LikeSet& like) {
  if (!file.ends_with(".npy")) {
    check_takes_images(file, like);
    return {{file}};
  }
  const auto array = std::make_shared<const NpyArray>(file);
  check_takes_array(*array, like);
  std::vector<FileImage> images;
  for (std::int64_t record = 0; record < array->records(); ++record) images.push_back({file, array, record});
  return images;
}

FileImage image_in_bytes(const std::string& name, std::string bytes, const LikeSet& like) {
  check_takes_images(name, like);
  return {name, nullptr, 0, std::make_shared<const std::string>(std::move(bytes))};
}

std::unique_ptr<Provider> make_files_provider(std::vector<FileImage> images, const LikeSet& like,
                                              const ImageOptions& options) {
  check_views(options);
  if (like.provider == "image") {
    if (like.matrices.size() < 2)
      throw InputError(
          "the checkpoint's metadata 'matrices' describes no labels; those of photos have images "
          "and labels");
    ImageOptions of_files = options;
    of_files.can_skip = false;
    return make_image_provider(std::make_unique<FileSource>(std::move(images), like.matrices.at(0),
                                                            like.matrices.at(1), options.inner_size > 0),
                               "the files", of_files, 0);
  }
  auto stored = std::make_unique<StoredFiles>(std::move(images), like);
  // Files are only tested, so options of augmentation do not count.
  const bool plain = !options.crops() && !options.pixel_std && !options.multiview && options.scalar_mean < 0;
  if (plain) return stored;
  return make_cropped_provider(std::move(stored), options, 0);
}

}  // namespace convnet
