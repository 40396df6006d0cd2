#include "providers/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>

#include "convnet/base/checksum.h"
#include "convnet/base/error.h"
#include "convnet/base/utf8.h"
#include "providers/foreign_files.h"
#include "providers/image_parts.h"
#include "providers/npy_array.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kImagesPerBatch = 1000;

std::string array_path(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / (name + ".npy")).string();
}
bool has_array(const std::string& folder, const std::string& name) {
  std::error_code ignored;
  return fs::exists(array_path(folder, name), ignored);
}

/// The folder itself, or its folders for training and tests.
std::vector<ImagePart> parts_of(const std::string& path) {
  if (path.empty()) throw InputError("data provider 'npy' needs --data-path: the folder of the .npy files");
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    throw InputError(fmt::format(
        "--data-path {}: {}{}", path,
        fs::exists(path, ignored) ? "is a file; name the folder that holds images.npy" : "no such folder",
        foreign_files_text(path)));
  if (has_array(path, "images")) return {{"", path, {}}};
  return find_parts(path, [](const std::string& folder) { return has_array(folder, "images"); });
}

/// The names of the arrays in a folder, in the order of the provider's matrices.
std::vector<std::string> array_names(const std::string& folder) {
  if (!has_array(folder, "images"))
    throw InputError(fmt::format("{}: there is no images.npy here, nor in a folder train in it{}", folder,
                                 foreign_files_text(folder)));
  std::vector<std::string> names;
  for (const std::string& file : names_in(folder, false)) {
    const std::string name = fs::path(file).stem().string();
    if (file == name + ".npy" && name != "images" && name != "labels") names.push_back(name);
  }
  std::sort(names.begin(), names.end(), natural_less);
  if (has_array(folder, "labels")) names.insert(names.begin(), "labels");
  names.insert(names.begin(), "images");
  return names;
}

/// The arrays of a part.
using Arrays = std::vector<std::unique_ptr<NpyArray>>;

/// Returns how labels are made of an array of these dims that holds none.
std::string labels_advice(const Dims& dims) {
  const bool number_each = element_count(dims) == dims[0];
  return number_each        ? "save whole numbers by labels.astype(numpy.int32)"
         : dims.size() == 2 ? "save numbers of classes by labels.argmax(1) if each row is one-hot"
                            : "its shape is " + to_string(dims);
}

Arrays open_arrays(const std::string& folder, const std::vector<std::string>& names) {
  Arrays arrays;
  for (const std::string& name : names) {
    arrays.push_back(std::make_unique<NpyArray>(array_path(folder, name)));
    const NpyArray& first = *arrays[0];
    if (arrays.back()->records() != first.records())
      throw InputError(fmt::format("{} holds {} records, but {} holds {}", arrays.back()->path(),
                                   arrays.back()->records(), first.path(), first.records()));
  }
  if (arrays.size() > 1 && names[1] == "labels" && !arrays[1]->is_labels())
    throw InputError(fmt::format(
        "{}: labels are a whole number for each image; {}; rows of tags or of other numbers belong "
        "in an array of another name, like target.npy",
        arrays[1]->path(), labels_advice(arrays[1]->dims())));
  if (arrays[0]->is_labels())
    throw InputError(fmt::format("{}: its shape is {}; images are (N,C,H,W), (N,H,W) or (N,D)",
                                 arrays[0]->path(), to_string(arrays[0]->dims())));
  return arrays;
}

class NpyProvider final : public StoredProvider {
 public:
  explicit NpyProvider(const std::string& path) : path_(path), parts_(parts_of(path)) {
    const std::vector<std::string> names = array_names(parts_[0].folder);
    std::vector<std::size_t> batches;
    for (const ImagePart& part : parts_) {
      if (const auto other = array_names(part.folder); other != names)
        throw InputError(fmt::format("{} holds the arrays {}, but {} holds {}", parts_[0].folder,
                                     fmt::join(names, ", "), part.folder, fmt::join(other, ", ")));
      arrays_.push_back(open_arrays(part.folder, names));
      const std::int64_t count = (arrays_.back()[0]->records() + kImagesPerBatch - 1) / kImagesPerBatch;
      if (count > 1'000'000) throw InputError(fmt::format("{}: more than a billion images", part.folder));
      batches.push_back(static_cast<std::size_t>(count));
    }
    number_parts(parts_, batches);
    for (std::size_t m = 0; m < names.size(); ++m) matrices_.push_back(matrix(m, names[m]));
    if (names.size() > 1 && names[1] != "labels") name_targets();
    matrices_[0].name = "data";
  }

  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }

  void check_range(const BatchRange& range, const std::string& option) const override {
    if (range.first >= 1 && range.last <= parts_.back().batches.last) return;
    throw InputError(fmt::format("{} {}: {} has batches {}", option, range.str(), path_, parts_text(parts_)));
  }

  std::optional<BatchSplit> split() const override { return split_of(parts_); }
  std::int64_t images_in(int batch) const override {
    const std::size_t part = part_of(batch);
    return std::min(kImagesPerBatch, arrays_[part][0]->records() - first_of(part, batch));
  }

  DataBatch load(int batch) const override {
    const std::size_t part = part_of(batch);
    DataBatch loaded;
    loaded.images = images_in(batch);
    for (std::size_t m = 0; m < matrices_.size(); ++m) {
      const NpyArray& array = *arrays_[part][m];
      if (matrices_[m].classes == 0) {
        loaded.matrices.push_back(array.numbers(first_of(part, batch), loaded.images));
        continue;
      }
      const auto labels = array.labels(first_of(part, batch), loaded.images);
      const auto bytes = std::as_bytes(std::span(labels));
      loaded.matrices.emplace_back(bytes.begin(), bytes.end());
    }
    return loaded;
  }

  // Leaves the other arrays unread: they may be larger than the images.
  std::vector<std::byte> load_images(int batch) const override {
    const std::size_t part = part_of(batch);
    return arrays_[part][0]->numbers(first_of(part, batch), images_in(batch));
  }

  void check_labels(const BatchRange&) const override {}  // the constructor has read all of them
  void add_labels(const BatchRange& range, Crc32& sum) const override {
    for (int batch = range.first; batch <= range.last; ++batch) {
      const std::size_t part = part_of(batch);
      for (std::size_t m = 1; m < matrices_.size(); ++m) {
        if (matrices_[m].classes == 0) continue;
        const auto labels = arrays_[part][m]->labels(first_of(part, batch), images_in(batch));
        sum.add(labels.data(), labels.size() * sizeof labels[0]);
      }
    }
  }
  std::vector<std::int64_t> class_counts(const BatchRange& range) const override {
    if (matrices_.size() < 2 || matrices_[1].classes == 0) return {};
    std::vector<std::int64_t> counts(static_cast<std::size_t>(matrices_[1].classes));
    for (int batch = range.first; batch <= range.last; ++batch) {
      const std::size_t part = part_of(batch);
      for (const std::int32_t label : arrays_[part][1]->labels(first_of(part, batch), images_in(batch)))
        ++counts[static_cast<std::size_t>(label)];
    }
    return counts;
  }
  bool has_mean() const override { return true; }

 private:
  /// Gives the names of the classes to arrays with a number for each class, where there are no labels.
  void name_targets() {
    const std::vector<std::string> found = escape_non_utf8(read_class_names(path_));
    for (std::size_t m = 1; m < matrices_.size(); ++m) {
      if (matrices_[m].classes == 0 && element_count(matrices_[m].dims) == std::ssize(found))
        matrices_[m].class_names = found;
    }
  }

  /// Describes matrix `m`, which all parts must have alike.
  MatrixInfo matrix(std::size_t m, const std::string& name) const {
    const NpyArray& array = *arrays_[0][m];
    MatrixInfo info{name, array.record_dims(), array.type()};
    for (const Arrays& arrays : arrays_) {
      const NpyArray& other = *arrays[m];
      if (other.record_dims() != info.dims || other.is_labels() != array.is_labels() ||
          other.type() != info.type)
        throw InputError(fmt::format("{} holds records of {}, but {} of {}, or of another type", array.path(),
                                     to_string(info.dims), other.path(), to_string(other.record_dims())));
    }
    if (!array.is_labels()) return info;
    info.type = DataType::s32;
    for (const Arrays& arrays : arrays_) {
      const std::vector<std::int32_t> all = arrays[m]->labels(0, arrays[m]->records());
      info.classes = std::max(info.classes, std::int64_t{*std::max_element(all.begin(), all.end())} + 1);
    }
    if (name != "labels") return info;
    info.class_names = escape_non_utf8(read_class_names(path_));
    if (info.class_names.empty()) return info;
    if (const std::int64_t named = std::ssize(info.class_names); named < info.classes)
      throw InputError(fmt::format("{} has {} lines, but there are labels up to {}",
                                   (fs::path(path_) / "classes.txt").string(), named, info.classes - 1));
    info.classes = std::ssize(info.class_names);
    return info;
  }

  std::size_t part_of(int batch) const {
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (parts_[i].batches.holds(batch)) return i;
    throw InputError(
        fmt::format("{}: there is no batch {}; its batch numbers: {}", path_, batch, parts_text(parts_)));
  }
  std::int64_t first_of(std::size_t part, int batch) const {
    return std::int64_t{batch - parts_[part].batches.first} * kImagesPerBatch;
  }

  std::string path_;
  std::vector<ImagePart> parts_;
  std::vector<Arrays> arrays_;  ///< the arrays of each part, by matrix
  std::vector<MatrixInfo> matrices_;
};

}  // namespace

std::unique_ptr<StoredProvider> make_npy_provider(const std::string& path) {
  return std::make_unique<NpyProvider>(path);
}

void refuse_among_arrays(const std::string& option, const std::string& output, const std::string& path) {
  std::error_code ignored;
  if (output.empty() || !fs::is_directory(path, ignored)) return;
  for (const ImagePart& part : parts_of(path)) {
    if (fs::equivalent(output, part.folder, ignored))
      throw InputError(fmt::format(
          "{} {}: holds the arrays of the data set, and what is written there would be one of them; choose "
          "another folder",
          option, output));
  }
}

}  // namespace convnet
