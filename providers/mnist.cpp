#include "providers/mnist.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>

#include "convnet/base/error.h"
#include "providers/idx.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t images_per_batch = 10'000;
constexpr int classes = 10;

/// Returns the names of the classes, or none for digits, whose numbers are their names. The files hold no
/// names, so Fashion-MNIST is recognised by the folder's name.
std::vector<std::string> names_of_classes(const std::string& folder) {
  std::error_code ignored;
  std::string path = fs::weakly_canonical(folder, ignored).string();
  std::transform(path.begin(), path.end(), path.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (fs::path(path).filename().string().find("fashion") == std::string::npos) return {};
  return {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
          "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
}

/// Returns the file called `stem`-`kind` or `stem`.`kind`, plain or .gz; nullopt if there is none.
std::optional<std::string> find_file(const fs::path& folder, const std::string& stem,
                                     const std::string& kind) {
  for (const char* separator : {"-", "."})
    for (const char* ending : {"", ".gz"}) {
      const fs::path path = folder / (stem + separator + kind + ending);
      std::error_code ignored;
      if (fs::is_regular_file(path, ignored)) return path.string();
    }
  return std::nullopt;
}

/// The training or the test half: an image file and a label file. Thread-safe.
class Half {
 public:
  struct Contents {
    std::vector<std::uint8_t> pixels;  // (N,H,W)
    std::vector<std::uint8_t> labels;  // (N)
  };

  Half(std::string image_path, std::string label_path, int first_batch)
      : image_path_(std::move(image_path)),
        label_path_(std::move(label_path)),
        image_header_(read_idx_header(image_path_, 3)),
        label_header_(read_idx_header(label_path_, 1)) {
    if (image_header_.records() != label_header_.records())
      throw InputError(fmt::format("{} holds {} images, but {} holds {} labels", image_path_,
                                   image_header_.records(), label_path_, label_header_.records()));
    const std::int64_t batches = (images() + images_per_batch - 1) / images_per_batch;
    batches_ = {first_batch, first_batch + static_cast<int>(batches) - 1};
  }

  const std::string& image_path() const { return image_path_; }
  const BatchRange& batches() const { return batches_; }
  std::int64_t images() const { return image_header_.records(); }
  std::int64_t image_bytes() const { return image_header_.record_bytes(); }
  Dims image_dims() const { return {1, image_header_.dims[1], image_header_.dims[2]}; }

  std::int64_t first_image(int batch) const { return (batch - batches_.first) * images_per_batch; }
  std::int64_t images_in(int batch) const {
    return std::min(images_per_batch, images() - first_image(batch));
  }

  /// Reads the files in the first call that succeeds. The reference stays valid.
  const Contents& contents() const {
    const std::lock_guard lock(mutex_);
    if (contents_) return *contents_;
    Contents read;
    read.labels = read_idx_records(label_path_, label_header_);
    const auto bad =
        std::find_if(read.labels.begin(), read.labels.end(), [](int label) { return label >= classes; });
    if (bad != read.labels.end())
      throw InputError(fmt::format("{}: record {} (counted from 0) is label {}; labels are 0 to {}",
                                   label_path_, bad - read.labels.begin(), int{*bad}, classes - 1));
    read.pixels = read_idx_records(image_path_, image_header_);
    contents_ = std::move(read);
    return *contents_;
  }

 private:
  std::string image_path_, label_path_;
  IdxHeader image_header_, label_header_;
  BatchRange batches_;
  mutable std::mutex mutex_;
  mutable std::optional<Contents> contents_;
};

struct FilePaths {
  std::string train_images, train_labels, test_images, test_labels;
};

FilePaths find_files(const std::string& folder) {
  if (folder.empty())
    throw InputError("data provider 'mnist' needs --data-path: the folder of the four IDX files");
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw InputError(fmt::format("--data-path {}: no such folder", folder));
  std::string missing;
  const auto find = [&](const char* stem, const char* kind) {
    const auto path = find_file(folder, stem, kind);
    if (!path) missing += fmt::format("{0}{1}-{2} (or {1}.{2})", missing.empty() ? "" : ", ", stem, kind);
    return path.value_or("");
  };
  FilePaths paths;
  paths.train_images = find("train-images", "idx3-ubyte");
  paths.train_labels = find("train-labels", "idx1-ubyte");
  paths.test_images = find("t10k-images", "idx3-ubyte");
  paths.test_labels = find("t10k-labels", "idx1-ubyte");
  if (!missing.empty()) throw InputError(fmt::format("{}: missing, plain or .gz: {}", folder, missing));
  return paths;
}

class MnistProvider final : public StoredProvider {
 public:
  MnistProvider(const std::string& folder, const FilePaths& paths)
      : folder_(folder),
        train_(paths.train_images, paths.train_labels, 1),
        test_(paths.test_images, paths.test_labels, train_.batches().last + 1) {
    if (train_.image_dims() != test_.image_dims())
      throw InputError(fmt::format("{} holds images of {}, but {} of {} (channels x height x width)",
                                   train_.image_path(), to_string(train_.image_dims()), test_.image_path(),
                                   to_string(test_.image_dims())));
    matrices_ = {{"data", train_.image_dims(), DataType::u8, 0},
                 {"labels", {1}, DataType::s32, classes, names_of_classes(folder)}};
  }

  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }

  void check_range(const BatchRange& range, const std::string& option) const override {
    const int last = test_.batches().last;
    std::vector<BatchRange> missing;
    if (range.first < 1) missing.push_back({range.first, std::min(range.last, 0)});
    if (range.last > last) missing.push_back({std::max(range.first, last + 1), range.last});
    if (missing.empty()) return;
    const bool one = missing.size() == 1 && missing[0].count() == 1;
    const std::string which =
        missing.size() == 1 ? missing[0].str() : missing[0].str() + " and " + missing[1].str();
    throw InputError(fmt::format("{} {}: {} {} {} not in {}; its batch numbers: 1-{} (training {}, test {})",
                                 option, range.str(), one ? "batch" : "batches", which, one ? "is" : "are",
                                 folder_, last, train_.batches().str(), test_.batches().str()));
  }

  std::optional<BatchSplit> split() const override { return BatchSplit{train_.batches(), test_.batches()}; }
  std::int64_t images_in(int batch) const override { return half_of(batch).images_in(batch); }

  DataBatch load(int batch) const override {
    const Half& half = half_of(batch);
    const Half::Contents& contents = half.contents();
    const std::int64_t first = half.first_image(batch);
    DataBatch loaded;
    loaded.images = half.images_in(batch);
    loaded.matrices.resize(2);
    const auto pixel_count = static_cast<std::size_t>(loaded.images * half.image_bytes());
    loaded.matrices[0].resize(pixel_count);
    std::memcpy(loaded.matrices[0].data(), contents.pixels.data() + first * half.image_bytes(), pixel_count);
    const std::vector<std::int32_t> labels(contents.labels.begin() + first,
                                           contents.labels.begin() + first + loaded.images);
    loaded.matrices[1].resize(labels.size() * sizeof(std::int32_t));
    std::memcpy(loaded.matrices[1].data(), labels.data(), loaded.matrices[1].size());
    return loaded;
  }

  bool has_mean() const override { return true; }
  std::int64_t most_kept() const override { return 0; }  // the files' contents are

 private:
  const Half& half_of(int batch) const {
    if (train_.batches().holds(batch)) return train_;
    if (test_.batches().holds(batch)) return test_;
    throw InputError(fmt::format("{}: there is no batch {}; its batch numbers: 1-{}", folder_, batch,
                                 test_.batches().last));
  }

  std::string folder_;
  Half train_, test_;
  std::vector<MatrixInfo> matrices_;
};

}  // namespace

std::unique_ptr<StoredProvider> make_mnist_provider(const std::string& path) {
  return std::make_unique<MnistProvider>(path, find_files(path));
}

}  // namespace convnet
