#include "providers/files.h"

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

class FileSource final : public ImageSource {
 public:
  FileSource(std::vector<std::string> files, const MatrixInfo& labels) : files_(std::move(files)) {
    info_.classes = labels.classes;
    info_.class_names = labels.class_names;
  }
  bool has(int batch) const override { return batch == 1; }
  std::string contents() const override { return "batch 1"; }
  std::int64_t images_in(int) const override { return static_cast<std::int64_t>(files_.size()); }
  EncodedImage read(int, std::int64_t image) const override {
    const std::string& file = files_[static_cast<std::size_t>(image)];
    return {file, read_whole_file(file), {0}};
  }

 private:
  const std::vector<std::string> files_;
};

/// Files as images of one small size.
class StoredFiles final : public StoredProvider {
 public:
  StoredFiles(std::vector<std::string> files, const LikeSet& like)
      : files_(std::move(files)), has_mean_(like.has_mean), matrices_(like.matrices) {
    MatrixInfo& images = matrices_.at(0);
    images.whole.clear();
    if (!images.stored.empty()) images.dims = std::exchange(images.stored, {});
    if (images.stores_floats())
      throw InputError(
          "the net was trained on arrays of float32 numbers, and nothing says which numbers the pixels of "
          "a file (0 to 255) are among them; make such an array of the files and test the net on it "
          "(--test-only 1 --test-out FOLDER)");
    images.stored_type.reset();
    images.type = DataType::u8;
    if (images.dims.size() != 3 || (images.dims[0] != 1 && images.dims[0] != 3))
      throw InputError("the net was not trained on images but on " + to_string(images.dims) +
                       " numbers each; files of images cannot be classified");
  }

  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }
  void check_range(const BatchRange&, const std::string&) const override {}
  std::int64_t images_in(int) const override { return static_cast<std::int64_t>(files_.size()); }
  bool has_mean() const override { return has_mean_; }
  std::vector<float> mean_image(const BatchRange&) const override { return {}; }

  DataBatch load(int) const override {
    DataBatch batch;
    batch.images = images_in(1);
    for (const MatrixInfo& info : matrices_)
      batch.matrices.emplace_back(static_cast<std::size_t>(batch.images * info.image_bytes()));
    for (std::size_t i = 0; i < files_.size(); ++i)
      write(files_[i], batch.matrices[0].data() + static_cast<std::int64_t>(i) * matrices_[0].image_bytes());
    return batch;
  }

 private:
  void write(const std::string& file, std::byte* to) const {
    const Dims& dims = matrices_[0].dims;
    const int height = static_cast<int>(dims[1]), width = static_cast<int>(dims[2]);
    const DecodedImage image = decode_image(read_whole_file(file), file);
    check_aspect(image, file, kMostAspect);
    // Scaled until it covers the size; what is too long is cut off at both ends.
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
        // ITU-R BT.601, as JPEG's grey.
        to[p] = static_cast<std::byte>((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000);
      }
    }
  }

  const std::vector<std::string> files_;
  const bool has_mean_;
  std::vector<MatrixInfo> matrices_;
};

}  // namespace

std::unique_ptr<Provider> make_files_provider(std::vector<std::string> files, const LikeSet& like,
                                              const ImageOptions& options) {
  check_views(options);
  if (like.provider == "image")
    return make_image_provider(std::make_unique<FileSource>(std::move(files), like.matrices.at(1)),
                               "the files", options, 0);
  auto stored = std::make_unique<StoredFiles>(std::move(files), like);
  // Tests see no augmentation.
  const bool plain = !options.crops() && !options.pixel_std && !options.multiview && options.scalar_mean < 0;
  if (plain) return stored;
  return make_cropped_provider(std::move(stored), options, 0);
}

}  // namespace convnet
