#include "providers/cifar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <system_error>

#include "convnet/base/error.h"
#include "convnet/base/text_file.h"
#include "convnet/base/utf8.h"
#include "providers/foreign_files.h"
#include "providers/image_parts.h"
#include "providers/pickle.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

constexpr int kTrainCuts = 5;  // batches that CIFAR-100's train file makes
constexpr std::int64_t kMaxChannels = 4096;

enum class Format { pickle, binary };

/// A batch: part `part` of `parts` of a file's images.
struct BatchSource {
  std::string path;
  int part = 0, parts = 1;

  struct Span {
    std::int64_t begin, end;
    std::int64_t count() const { return end - begin; }
  };
  /// Throws InputError if the file has fewer images than there are parts.
  Span of(std::int64_t images) const {
    if (images < parts)
      throw InputError(fmt::format("{}: {} image(s) do not make {} batches", path, images, parts));
    return {images * part / parts, images * (part + 1) / parts};
  }
};

/// A matrix of labels.
struct LabelInfo {
  std::string matrix, key;  ///< names of the matrix, and of the labels in a pickled dict
  std::int64_t classes;
  std::vector<std::string> names = {};  ///< names of the classes; empty: not known
};

/// The files of a data set, and what they hold.
struct DataSet {
  std::string folder;
  Format format = Format::pickle;
  std::map<int, BatchSource> batches;
  Dims dims = {3, 32, 32};
  DataType type = DataType::u8;  ///< type of pixels; f32 if the first batch holds other numbers than bytes
  /// Matrices from 1 on. A binary record holds them in reverse order.
  std::vector<LabelInfo> labels;
  std::vector<float> mean;  ///< the mean image of batches.meta; empty: it has none

  std::int64_t pixels() const { return element_count(dims); }
  /// Returns whether the last batch consists of the data set's test images.
  bool has_tests() const {
    return fs::path(batches.rbegin()->second.path).stem().string().starts_with("test");
  }
  std::vector<int> numbers() const {
    std::vector<int> all;
    for (const auto& [number, source] : batches) all.push_back(number);
    return all;
  }
};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// Returns the first names in a folder, for messages.
std::string listing(const std::string& folder) {
  constexpr std::size_t most = 12;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string() + (at->is_directory(error) ? "/" : ""));
  if (names.empty()) return "the folder is empty";
  std::sort(names.begin(), names.end());
  const std::size_t left = names.size() > most ? names.size() - most : 0;
  names.resize(names.size() - left);
  std::string text = fmt::format("it holds {}", fmt::join(names, ", "));
  return left == 0 ? text : text + fmt::format(" and {} more", left);
}

/// Returns the files data_batch_N`ending` by N, then test_batch`ending`.
std::map<int, BatchSource> numbered_files(const std::string& folder, const std::string& ending) {
  constexpr std::string_view stem = "data_batch_";
  constexpr int max_batch = 999'999'999;
  std::map<int, BatchSource> batches;
  for (const std::string& name : names_in(folder, false)) {
    if (!name.starts_with(stem) || !name.ends_with(ending)) continue;
    const char* const first = name.data() + stem.size();
    const char* const last = name.data() + name.size() - ending.size();
    int number = -1;
    const auto [stop, wrong] = std::from_chars(first, last, number);
    if (first == last || wrong != std::errc() || stop != last || number < 0 || number > max_batch) continue;
    const auto [batch, fresh] = batches.try_emplace(number, BatchSource{(fs::path(folder) / name).string()});
    if (!fresh)
      throw InputError(
          fmt::format("{}: batch {} is there twice, as {} too", batch->second.path, number, name));
  }
  if (batches.empty()) return batches;
  const fs::path test = fs::path(folder) / ("test_batch" + ending);
  if (is_file(test)) batches[batches.rbegin()->first + 1] = {test.string()};
  return batches;
}

/// Returns the batches in CIFAR-100's two files.
std::map<int, BatchSource> train_and_test(const std::string& folder, const std::string& ending) {
  const fs::path train = fs::path(folder) / ("train" + ending), test = fs::path(folder) / ("test" + ending);
  std::map<int, BatchSource> batches;
  if (!is_file(train)) return batches;
  for (int part = 0; part < kTrainCuts; ++part) batches[part + 1] = {train.string(), part, kTrainCuts};
  if (is_file(test)) batches[kTrainCuts + 1] = {test.string()};
  return batches;
}

std::vector<std::string> class_names(const PickleValue& meta, const std::string& key) {
  const PickleValue names = meta.at(key);
  if (!names.is_sequence() || names.size() == 0)
    names.fail(fmt::format("{} should be a list of names, not {}", key, names.describe()));
  if (names.size() > static_cast<std::size_t>(kMaxClasses))
    names.fail(fmt::format("{} has {} names; there can be {} classes", key, names.size(), kMaxClasses));
  return names.strings(key);
}

void set_names(LabelInfo& info, std::vector<std::string> names) {
  info.classes = static_cast<std::int64_t>(names.size());
  info.names = std::move(names);
}

/// Returns the class names in a file beside binary batches, one a line; none if there is no such file.
std::vector<std::string> listed_names(const fs::path& path, std::int64_t classes) {
  if (!is_file(path)) return {};
  std::vector<std::string> names = read_names(path.string());
  if (static_cast<std::int64_t>(names.size()) != classes)
    throw InputError(fmt::format(
        "{}: should name {} classes, one a line, but names {}", path.string(), classes,
        static_cast<std::int64_t>(names.size()) > classes ? "more" : std::to_string(names.size())));
  return names;
}

/// Returns (channels, height, width) of the images: they have num_colors channels (3 without it), and their
/// size follows from num_vis, from the length of data_mean, or from img_size, whichever is there first.
Dims image_dims(const PickleValue& meta, std::optional<std::int64_t> mean_numbers) {
  const auto colors = meta.find("num_colors"), size = meta.find("img_size"), num_vis = meta.find("num_vis");
  const std::int64_t channels = colors ? colors->integer("num_colors") : 3;
  if (channels < 1 || channels > kMaxChannels)
    meta.fail(
        fmt::format("images of {} channels (num_colors); 1 to {} are possible", channels, kMaxChannels));
  if (!num_vis && !mean_numbers && size) {
    const std::int64_t side = size->integer("img_size");
    if (side < 1 || side > kMaxImageSide)
      meta.fail(fmt::format("images of size {} (img_size); 1 to {} are possible", side, kMaxImageSide));
    return {channels, side, side};
  }
  const std::int64_t numbers =
      !num_vis && mean_numbers ? *mean_numbers : meta.at("num_vis").integer("num_vis");
  const std::optional<std::int64_t> side = square_side(numbers, channels);
  if (!side)
    meta.fail(fmt::format(
        "images of {} numbers ({}) are not square with {} channel(s) (num_colors), of side 1 to {}", numbers,
        num_vis ? "num_vis" : "data_mean", channels, kMaxImageSide));
  return {channels, *side, *side};
}

/// Reads batches.meta of cuda-convnet2, which has a mean image, or of CIFAR-10 for Python.
void read_batches_meta(DataSet& set, const std::string& path) {
  const PickleValue meta = read_pickle(path);
  set_names(set.labels[0], class_names(meta, "label_names"));
  const auto mean = meta.find("data_mean");
  if (!mean) {
    set.dims = image_dims(meta, std::nullopt);
    return;
  }
  set.mean = read_mean_image(*mean);
  set.dims = image_dims(meta, std::ssize(set.mean));
  if (std::ssize(set.mean) != set.pixels())
    mean->fail(
        fmt::format("data_mean has {} numbers, but images have {} (num_vis)", set.mean.size(), set.pixels()));
}

/// The places of images in a pickle's array, which must outlive this.
struct ImageTable {
  const PickleArray* array = nullptr;
  std::int64_t images = 0;
  std::int64_t image_stride = 0, pixel_stride = 0;  ///< distances in items of the array

  DataType type() const { return array->is_bytes() ? DataType::u8 : DataType::f32; }
};

ImageTable image_table(const DataSet& set, const PickleValue& batch) {
  const PickleValue value = batch.at("data");
  const PickleArray& array = value.array("data");
  const std::int64_t pixels = set.pixels();
  // An array whose rows and columns could both be images has columns if there is a mean image, as in
  // cuda-convnet2's format.
  const auto is_images = [&](std::size_t axis) {
    return array.dims[axis] != 0 && array.dims[1 - axis] == pixels;
  };
  const bool columns = array.dims.size() == 2 && is_images(1) && (!is_images(0) || !set.mean.empty());
  if (array.dims.size() != 2 || (!columns && !is_images(0)))
    value.fail(fmt::format("data should be images x {0} or {0} x images numbers, not {1}", pixels,
                           value.describe()));
  const bool image_fastest = columns != array.fortran;
  ImageTable table{&array, array.dims[columns ? 1 : 0]};
  table.image_stride = image_fastest ? 1 : pixels;
  table.pixel_stride = image_fastest ? table.images : 1;
  return table;
}

/// Copies the images of `span`, each in one piece. pixel(i) returns item i of the array as an Item.
template <class Item, class Pixel>
std::vector<std::byte> copy_images(const ImageTable& table, std::int64_t pixels,
                                   const BatchSource::Span& span, const Pixel& pixel) {
  std::vector<std::byte> out(static_cast<std::size_t>(span.count() * pixels) * sizeof(Item));
  auto* const into = reinterpret_cast<Item*>(out.data());
  // Copies in tiles whose lines stay in the cache.
  constexpr std::int64_t tile = 64;
  for (std::int64_t i0 = span.begin; i0 < span.end; i0 += tile)
    for (std::int64_t p = 0; p < pixels; ++p)
      for (std::int64_t i = i0; i < std::min(i0 + tile, span.end); ++i)
        into[(i - span.begin) * pixels + p] =
            pixel(static_cast<std::size_t>(i * table.image_stride + p * table.pixel_stride));
  return out;
}

/// Returns the images of `span` as numbers of the data set's type.
std::vector<std::byte> read_images(const std::string& path, const DataSet& set, const ImageTable& table,
                                   const BatchSource::Span& span) {
  const PickleArray& array = *table.array;
  if (set.type == DataType::f32)
    return copy_images<float>(table, set.pixels(), span, [&](std::size_t item) {
      const auto number = static_cast<float>(array.number(item));
      if (std::isfinite(number)) return number;
      const auto at = static_cast<std::int64_t>(item);
      throw InputError(fmt::format(
          "{}: record {} (counted from 0) has the number {}, which is not finite as a float32", path,
          table.image_stride == 1 ? at % table.images : at / table.image_stride, array.number(item)));
    });
  if (table.pixel_stride != 1)
    return copy_images<std::uint8_t>(table, set.pixels(), span, [&](std::size_t item) {
      return static_cast<std::uint8_t>(array.data[item]);
    });
  const auto bytes = std::as_bytes(std::span(array.data));
  return {bytes.begin() + span.begin * set.pixels(), bytes.begin() + span.end * set.pixels()};
}

DataSet find_data_set(const std::string& folder) {
  if (folder.empty()) throw InputError("data provider 'cifar' needs --data-path: the folder of the batches");
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw InputError(fmt::format("--data-path {}: no such folder{}", folder, foreign_files_text(folder)));
  const std::vector<LabelInfo> ten = {{"labels", "labels", 10}};
  const std::vector<LabelInfo> hundred = {{"labels", "fine_labels", 100},
                                          {"coarse_labels", "coarse_labels", 20}};
  std::vector<DataSet> found;
  const auto add_if_found = [&](Format format, std::map<int, BatchSource> batches,
                                const std::vector<LabelInfo>& labels) {
    if (!batches.empty())
      found.push_back({folder, format, std::move(batches), {3, 32, 32}, DataType::u8, labels, {}});
  };
  add_if_found(Format::pickle, numbered_files(folder, ""), ten);
  add_if_found(Format::binary, numbered_files(folder, ".bin"), ten);
  add_if_found(Format::pickle, train_and_test(folder, ""), hundred);
  add_if_found(Format::binary, train_and_test(folder, ".bin"), hundred);
  if (found.empty())
    throw InputError(
        fmt::format("{}: no batches are here: batches.meta with data_batch_1, …; "
                    "data_batch_1.bin, …; meta with train and test; or train.bin and test.bin; {}{}",
                    folder, listing(folder), foreign_files_text(folder)));
  if (found.size() > 1)
    throw InputError(
        fmt::format("{}: there are several data sets, beginning with {} and {}; each needs its own folder",
                    folder, found[0].batches.begin()->second.path, found[1].batches.begin()->second.path));
  DataSet set = std::move(found[0]);
  const bool numbered = set.labels.size() == 1;
  if (set.format == Format::binary) {
    for (LabelInfo& info : set.labels) {
      const std::string file = numbered                    ? "batches.meta.txt"
                               : info.key == "fine_labels" ? "fine_label_names.txt"
                                                           : "coarse_label_names.txt";
      info.names = listed_names(fs::path(folder) / file, info.classes);
    }
    return set;
  }
  const std::string meta = (fs::path(folder) / (numbered ? "batches.meta" : "meta")).string();
  if (!is_file(meta))
    throw InputError(fmt::format("{}: missing, beside {}", meta, set.batches.begin()->second.path));
  if (numbered) {
    read_batches_meta(set, meta);
  } else {
    const PickleValue names = read_pickle(meta);
    set_names(set.labels[0], class_names(names, "fine_label_names"));
    set_names(set.labels[1], class_names(names, "coarse_label_names"));
  }
  const PickleValue first = read_pickle(set.batches.begin()->second.path);
  set.type = image_table(set, first).type();
  return set;
}

void check_label(const std::string& path, std::int64_t record, const LabelInfo& info, std::int64_t label) {
  if (label >= 0 && label < info.classes) return;
  throw InputError(fmt::format("{}: record {} (counted from 0) is {} {}; {} are 0 to {}", path, record,
                               info.matrix == "labels" ? "label" : "coarse label", label,
                               info.matrix == "labels" ? "labels" : "coarse labels", info.classes - 1));
}

std::vector<std::byte> as_bytes(const std::vector<std::int32_t>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(std::int32_t));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

DataBatch load_pickle(const DataSet& set, const BatchSource& source) {
  const PickleValue batch = read_pickle(source.path);
  const ImageTable table = image_table(set, batch);
  if (set.type == DataType::u8 && table.type() != DataType::u8) {
    const PickleValue data = batch.at("data");
    data.fail(fmt::format("data should be bytes (type u1), as in {}, not {}",
                          set.batches.begin()->second.path, data.describe()));
  }
  const BatchSource::Span span = source.of(table.images);
  DataBatch loaded;
  loaded.images = span.count();
  loaded.matrices.push_back(read_images(source.path, set, table, span));
  for (const LabelInfo& info : set.labels) {
    const PickleValue value = batch.at(info.key);
    const std::vector<std::int64_t> labels = value.integers(info.key);
    if (static_cast<std::int64_t>(labels.size()) != table.images)
      value.fail(fmt::format("there are {} {} for {} images", labels.size(), info.key, table.images));
    std::vector<std::int32_t> out;
    for (std::int64_t i = span.begin; i < span.end; ++i) {
      const std::int64_t label = labels[static_cast<std::size_t>(i)];
      check_label(source.path, i, info, label);
      out.push_back(static_cast<std::int32_t>(label));
    }
    loaded.matrices.push_back(as_bytes(out));
  }
  return loaded;
}

/// Returns the number of images in a file of records, which hold the labels, coarse before fine, then the
/// image.
std::int64_t binary_images(const DataSet& set, const std::string& path) {
  const auto record = static_cast<std::uintmax_t>(set.pixels()) + set.labels.size();
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) throw RunError(fmt::format("{}: cannot be read: {}", path, error.message()));
  if (size == 0 || size % record != 0)
    throw InputError(fmt::format("{}: {} bytes are not whole records of {} ({} label(s), then {} pixels)",
                                 path, size, record, set.labels.size(), set.pixels()));
  return static_cast<std::int64_t>(size / record);
}

DataBatch load_binary(const DataSet& set, const BatchSource& source) {
  const std::int64_t images = binary_images(set, source.path);
  const auto [begin, end] = source.of(images);
  const auto record = static_cast<std::size_t>(set.pixels()) + set.labels.size();
  std::string bytes(static_cast<std::size_t>(end - begin) * record, '\0');
  std::ifstream file(source.path, std::ios::binary);
  if (!file)
    throw RunError(
        fmt::format("{}: cannot be opened: {}", source.path, std::generic_category().message(errno)));
  file.seekg(static_cast<std::streamoff>(begin) * static_cast<std::streamoff>(record));
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (static_cast<std::size_t>(file.gcount()) != bytes.size())
    throw InputError(source.path + ": the file was changed while it was in use");
  DataBatch loaded;
  loaded.images = end - begin;
  loaded.matrices.emplace_back();
  std::vector<std::vector<std::int32_t>> labels(set.labels.size());
  std::vector<std::byte>& images_out = loaded.matrices[0];
  images_out.resize(static_cast<std::size_t>(loaded.images * set.pixels()));
  for (std::int64_t i = 0; i < loaded.images; ++i) {
    const char* const from = bytes.data() + static_cast<std::size_t>(i) * record;
    for (std::size_t l = 0; l < labels.size(); ++l) {
      const auto label = static_cast<unsigned char>(from[labels.size() - 1 - l]);
      check_label(source.path, begin + i, set.labels[l], label);
      labels[l].push_back(label);
    }
    std::memcpy(images_out.data() + i * set.pixels(), from + labels.size(),
                static_cast<std::size_t>(set.pixels()));
  }
  for (const std::vector<std::int32_t>& values : labels) loaded.matrices.push_back(as_bytes(values));
  return loaded;
}

class CifarProvider final : public StoredProvider {
 public:
  explicit CifarProvider(DataSet set) : set_(std::move(set)) {
    matrices_ = {{"data", set_.dims, set_.type, 0}};
    for (const LabelInfo& info : set_.labels)
      matrices_.push_back({info.matrix, {1}, DataType::s32, info.classes, escape_non_utf8(info.names)});
  }

  const std::vector<MatrixInfo>& matrices() const override { return matrices_; }

  void check_range(const BatchRange& range, const std::string& option) const override {
    for (int batch = range.first; batch <= range.last; ++batch)
      if (!set_.batches.contains(batch))
        throw InputError(fmt::format("{} {}: batch {} is not in {}; its batch numbers: {}", option,
                                     range.str(), batch, set_.folder, batches_text(set_.numbers())));
  }

  std::optional<BatchSplit> split() const override {
    const std::vector<int> numbers = set_.numbers();
    if (numbers.back() - numbers.front() + 1 != std::ssize(numbers)) return std::nullopt;
    const BatchRange all{numbers.front(), numbers.back()};
    if (!set_.has_tests() || all.count() == 1) return BatchSplit{all, {}};
    return BatchSplit{{all.first, all.last - 1}, BatchRange{all.last, all.last}};
  }

  std::int64_t images_in(int batch) const override {
    const BatchSource& source = source_of(batch);
    const std::lock_guard lock(mutex_);
    auto found = images_.find(source.path);
    if (found == images_.end()) {
      const std::int64_t images = set_.format == Format::binary
                                      ? binary_images(set_, source.path)
                                      : image_table(set_, read_pickle(source.path)).images;
      found = images_.emplace(source.path, images).first;
    }
    return source.of(found->second).count();
  }

  std::string image_name(int batch, std::int64_t image) const override {
    if (set_.format == Format::binary) return "";
    const BatchSource& source = source_of(batch);
    const std::lock_guard lock(mutex_);
    auto found = names_.find(source.path);
    if (found == names_.end()) {
      const PickleValue dict = read_pickle(source.path);
      found = names_.emplace(source.path, read_file_names(dict, image_table(set_, dict).images)).first;
    }
    if (found->second.empty()) return "";
    const BatchSource::Span span = source.of(static_cast<std::int64_t>(found->second.size()));
    return found->second[static_cast<std::size_t>(span.begin + image)];
  }

  DataBatch load(int batch) const override {
    const BatchSource& source = source_of(batch);
    return set_.format == Format::binary ? load_binary(set_, source) : load_pickle(set_, source);
  }

  bool has_mean() const override { return true; }

  std::vector<float> mean_image(const BatchRange& range) const override {
    return set_.mean.empty() ? StoredProvider::mean_image(range) : set_.mean;
  }

 private:
  const BatchSource& source_of(int batch) const {
    const auto found = set_.batches.find(batch);
    if (found == set_.batches.end())
      throw InputError(fmt::format("{}: there is no batch {}; its batch numbers: {}", set_.folder, batch,
                                   batches_text(set_.numbers())));
    return found->second;
  }

  const DataSet set_;
  std::vector<MatrixInfo> matrices_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::int64_t> images_;             // by file; mutex_ guards it
  mutable std::map<std::string, std::vector<std::string>> names_;  // by file; mutex_ guards it
};

}  // namespace

std::unique_ptr<StoredProvider> make_cifar_provider(const std::string& path) {
  return std::make_unique<CifarProvider>(find_data_set(path));
}

}  // namespace convnet
