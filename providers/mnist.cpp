#include "providers/mnist.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"
#include "convnet/base/text_file.h"
#include "providers/foreign_files.h"
#include "providers/idx.h"
#include "providers/image_parts.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMnistBatchImages = 10'000;
constexpr std::int64_t kDigits = 10;
/// EMNIST's digits, capitals and small letters.
constexpr int kMostClasses = 62;

/// The place of a data set: a folder, and what its files' names begin with, "" or "emnist-letters-".
struct Place {
  fs::path folder;
  std::string prefix;
};

/// Returns the names of the classes, or none for digits, whose numbers are their names. The files hold no
/// names, so Fashion-MNIST is recognised by the folder's name. EMNIST has a file beside them, whose lines are
/// a class and the codes of its characters.
std::vector<std::string> names_of_classes(const Place& place, std::int64_t classes) {
  std::error_code ignored;
  const std::string mapping = (place.folder / (place.prefix + "mapping.txt")).string();
  if (!place.prefix.empty() && fs::is_regular_file(mapping, ignored)) {
    std::vector<std::string> names;
    for (std::int64_t i = 0; i < classes; ++i) names.push_back(std::to_string(i));
    for (const std::string& line : read_names(mapping)) {
      std::istringstream numbers(line);
      std::int64_t number = -1;
      int code = 0;
      std::string name;
      numbers >> number;
      while (numbers >> code && code > ' ' && code < 127) name += static_cast<char>(code);
      if (number < 0 || number >= classes || name.empty())
        throw InputError(fmt::format("{}: '{}' is not a class, 0 to {}, and the codes of its characters",
                                     mapping, printable(line), classes - 1));
      names[static_cast<std::size_t>(number)] = name;
    }
    return names;
  }
  std::string path = fs::weakly_canonical(place.folder, ignored).string();
  std::transform(path.begin(), path.end(), path.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (classes != kDigits || fs::path(path).filename().string().find("fashion") == std::string::npos)
    return {};
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

/// The training or the test half: an image file and a label file, which is read at once. Thread-safe.
class Half {
 public:
  Half(std::string image_path, std::string label_path, int first_batch)
      : image_path_(std::move(image_path)),
        label_path_(std::move(label_path)),
        image_header_(read_idx_header(image_path_, 3)),
        label_header_(read_idx_header(label_path_, 1)) {
    if (image_header_.records() != label_header_.records())
      throw InputError(fmt::format("{} holds {} images, but {} holds {} labels", image_path_,
                                   image_header_.records(), label_path_, label_header_.records()));
    labels_ = read_idx_records(label_path_, label_header_);
    const auto bad =
        std::find_if(labels_.begin(), labels_.end(), [](int label) { return label >= kMostClasses; });
    if (bad != labels_.end())
      throw InputError(fmt::format("{}: record {} (counted from 0) is label {}; labels are 0 to {}",
                                   label_path_, bad - labels_.begin(), int{*bad}, kMostClasses - 1));
    const std::int64_t batches = (images() + kMnistBatchImages - 1) / kMnistBatchImages;
    batches_ = {first_batch, first_batch + static_cast<int>(batches) - 1};
  }

  const std::string& image_path() const { return image_path_; }
  const BatchRange& batches() const { return batches_; }
  std::int64_t images() const { return image_header_.records(); }
  std::int64_t image_bytes() const { return image_header_.record_bytes(); }
  Dims image_dims() const { return {1, image_header_.dims[1], image_header_.dims[2]}; }

  std::int64_t first_image(int batch) const { return (batch - batches_.first) * kMnistBatchImages; }
  std::int64_t images_in(int batch) const {
    return std::min(kMnistBatchImages, images() - first_image(batch));
  }

  const std::vector<std::uint8_t>& labels() const { return labels_; }

  /// Returns the pixels (N,H,W). Reads the file in the first call that succeeds. The reference stays valid.
  const std::vector<std::uint8_t>& pixels() const {
    const std::lock_guard lock(mutex_);
    if (!pixels_) pixels_ = read_idx_records(image_path_, image_header_);
    return *pixels_;
  }

 private:
  std::string image_path_, label_path_;
  IdxHeader image_header_, label_header_;
  std::vector<std::uint8_t> labels_;
  BatchRange batches_;
  mutable std::mutex mutex_;
  mutable std::optional<std::vector<std::uint8_t>> pixels_;
};

struct FilePaths {
  std::string train_images, train_labels, test_images, test_labels;
};

/// Returns what the names of files with training images in the folder begin with.
std::set<std::string> prefixes_in(const std::string& folder) {
  std::set<std::string> prefixes;
  for (const std::string& name : names_in(folder, false))
    for (const char* kind : {"train-images-idx3-ubyte", "train-images.idx3-ubyte"})
      if (const std::size_t at = name.find(kind); at != std::string::npos)
        prefixes.insert(name.substr(0, at));
  return prefixes;
}

Place find_place(const std::string& path) {
  if (path.empty())
    throw InputError("data provider 'mnist' needs --data-path: the folder of the four IDX files");
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const std::set<std::string> prefixes = prefixes_in(path);
    if (prefixes.empty() || prefixes.contains("")) return {path, ""};
    if (prefixes.size() == 1) return {path, *prefixes.begin()};
    const std::string first = prefixes.begin()->substr(0, prefixes.begin()->find_last_not_of('-') + 1);
    throw InputError(
        fmt::format("--data-path {}: holds several data sets, whose names begin with {}; name one, as "
                    "in --data-path {}",
                    path, fmt::join(prefixes, ", "), (fs::path(path) / first).string()));
  }
  const Place place{fs::path(path).parent_path(), fs::path(path).filename().string() + "-"};
  const std::string folder = place.folder.empty() ? "." : place.folder.string();
  if (fs::is_directory(folder, ignored) && !place.prefix.starts_with('.') &&
      prefixes_in(folder).contains(place.prefix))
    return {folder, place.prefix};
  throw InputError(fmt::format("--data-path {}: no such folder{}", path, foreign_files_text(path)));
}

FilePaths find_files(const Place& place) {
  std::string missing;
  const auto find = [&](const std::vector<std::string>& stems, const char* kind) {
    for (const std::string& stem : stems)
      if (const auto path = find_file(place.folder, place.prefix + stem, kind)) return *path;
    missing +=
        fmt::format("{0}{1}-{2} (or {1}.{2})", missing.empty() ? "" : ", ", place.prefix + stems[0], kind);
    return std::string();
  };
  // EMNIST calls its test images so, and has prefixes.
  const std::vector<std::string> tests =
      place.prefix.empty() ? std::vector<std::string>{"t10k"} : std::vector<std::string>{"test", "t10k"};
  const auto stems = [&](const char* what) {
    std::vector<std::string> all;
    for (const std::string& test : tests) all.push_back(test + what);
    return all;
  };
  FilePaths paths;
  paths.train_images = find({"train-images"}, "idx3-ubyte");
  paths.train_labels = find({"train-labels"}, "idx1-ubyte");
  paths.test_images = find(stems("-images"), "idx3-ubyte");
  paths.test_labels = find(stems("-labels"), "idx1-ubyte");
  const auto is_read = [](const std::string& name) { return name.ends_with("-ubyte.gz"); };
  if (!missing.empty())
    throw InputError(fmt::format("{}: missing, plain or .gz: {}{}", place.folder.string(), missing,
                                 foreign_files_text(place.folder.string(), is_read)));
  return paths;
}

class MnistProvider final : public StoredProvider {
 public:
  MnistProvider(const std::string& path, const Place& place, const FilePaths& paths)
      : folder_(path),
        train_(paths.train_images, paths.train_labels, 1),
        test_(paths.test_images, paths.test_labels, train_.batches().last + 1) {
    if (train_.image_dims() != test_.image_dims())
      throw InputError(fmt::format("{} holds images of {}, but {} of {} (channels x height x width)",
                                   train_.image_path(), to_string(train_.image_dims()), test_.image_path(),
                                   to_string(test_.image_dims())));
    std::int64_t classes = kDigits;
    for (const Half* half : {&train_, &test_})
      classes = std::max(classes, std::int64_t{*std::ranges::max_element(half->labels())} + 1);
    matrices_ = {{"data", train_.image_dims(), DataType::u8, 0},
                 {"labels", {1}, DataType::s32, classes, names_of_classes(place, classes)}};
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
    const std::vector<std::uint8_t>& pixels = half.pixels();  // first: it checks how many there are
    const std::int64_t first = half.first_image(batch);
    DataBatch loaded;
    loaded.images = half.images_in(batch);
    loaded.matrices.resize(2);
    const auto pixel_count = static_cast<std::size_t>(loaded.images * half.image_bytes());
    loaded.matrices[0].resize(pixel_count);
    std::memcpy(loaded.matrices[0].data(), pixels.data() + first * half.image_bytes(), pixel_count);
    const auto from = half.labels().begin() + first;
    const std::vector<std::int32_t> labels(from, from + loaded.images);
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
  const Place place = find_place(path);
  return std::make_unique<MnistProvider>(path, place, find_files(place));
}

}  // namespace convnet
