#include "convnet/data/make_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "convnet/base/checksum.h"
#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/file_lock.h"
#include "convnet/base/output_file.h"
#include "convnet/base/philox.h"
#include "convnet/base/printable.h"
#include "convnet/data/pixel_sums.h"
#include "providers/decode.h"
#include "providers/image_source.h"
#include "providers/jpeg.h"
#include "providers/pickle.h"
#include "providers/pickle_write.h"
#include "providers/resize.h"
#include "providers/workers.h"

namespace convnet {
namespace {

/// Returns the class of an image, or its tags.
std::vector<int> labels_of(const LabelledImages& images, const LabelledImage& image) {
  if (images.kind == LabelKind::tags) return image.tags;
  return {image.label};
}

namespace fs = std::filesystem;

constexpr std::size_t kPartImages = 1024;
constexpr int kValidationStep = 1000;  // validation begins at a multiple of it
constexpr int kJpegQuality = 95;
constexpr int kMaxJpegSide = 65500;
constexpr const char* meta_name = "batches.meta";
constexpr const char* state_name = "make-data.state";

constexpr const char* kHoldOut = "hold-out";
constexpr const char* kLabelKind = "label-kind";

/// Returns the value of label_kind in batches.meta.
const char* label_kind_text(const LabelledImages& images) {
  return images.kind == LabelKind::tags ? kMetaTags : kMetaClasses;
}

/// The settings that decide the data set's bytes, by option.
using Identity = std::vector<std::pair<std::string, std::string>>;

/// Returns a hash of names, sizes and classes.
std::string fingerprint(const LabelledImages& images) {
  Fnv1a hash;
  const auto add = [&](std::string_view bytes) {
    hash.add(bytes);
    hash.add(0xff);
  };
  for (const std::string& name : images.class_names) add(name);
  for (const auto* part : {&images.training, &images.validation}) {
    for (const LabelledImage& image : *part) {
      add(image.name);
      add(fmt::format("{} {}", image.at.size, fmt::join(labels_of(images, image), " ")));
    }
    add("");
  }
  return fmt::format("{:016x}", hash.value());
}

Identity identity_of(const LabelledImages& images, const MakeDataOptions& options) {
  return {{"size", std::to_string(options.size)},
          {"crop-to-square", options.crop_to_square ? "1" : "0"},
          {"batch-size", std::to_string(options.batch_size)},
          {"seed", std::to_string(options.seed)},
          {kHoldOut, options.held_out ? "1" : "0"},
          {kLabelKind, label_kind_text(images)},
          {"images", fingerprint(images)}};
}

/// Throws InputError that names the differences from a data set that was made before.
void check_identity(const std::string& folder, const PickleValue& made_with, const Identity& wanted) {
  std::string differences;
  bool other_parts = false;
  for (const auto& [option, value] : wanted) {
    const auto found = made_with.find(option);
    // Older versions held nothing out, and wrote tags as several classes of an image.
    const std::string otherwise = option == kHoldOut ? "0" : option == kLabelKind ? kMetaClasses : "another";
    const std::string before = found ? std::string(found->string(option)) : otherwise;
    if (before == value || (option == "images" && other_parts)) continue;
    other_parts = other_parts || option == kHoldOut;
    differences += differences.empty() ? "" : ", ";
    differences += option == "images" ? "other images"
                                      : fmt::format("--{} {} (now {})", option, printable(before), value);
  }
  if (!differences.empty())
    throw InputError(fmt::format("{}: holds a data set made with {}; make this one in another folder", folder,
                                 differences));
}

std::string pickled(const Identity& identity) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const auto& [option, value] : identity) entries.emplace_back(option, pickles::str(value));
  return pickles::dict(entries);
}

std::string pickled(const std::vector<std::string>& texts) {
  std::vector<std::string> items;
  for (const std::string& text : texts) items.push_back(pickles::str(text));
  return pickles::list(items);
}

std::vector<std::string> texts_of(const PickleValue& list, const char* what) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < list.size(); ++i) texts.emplace_back(list[i].string(what));
  return texts;
}

/// The work that is done so far.
struct State {
  explicit State(int size) : sums(size) {}

  std::size_t parts = 0;  ///< number of finished parts, in the order of FileDivision::parts
  PixelSums sums;         ///< sums over the training images of the finished parts
  std::vector<std::string> bad_images;
};

std::string pickled(const State& state, const Identity& identity) {
  const auto number = [](std::uint64_t value) { return pickles::integer(static_cast<std::int64_t>(value)); };
  const auto numbers = [](const auto& values) {
    return pickles::array({static_cast<std::int64_t>(values.size())},
                          std::vector<std::uint64_t>(values.begin(), values.end()));
  };
  return pickles::pickle_file(
      pickles::dict({{"made_with", pickled(identity)},
                     {"parts", number(state.parts)},
                     {"images", number(state.sums.images)},
                     {"pixels", pickles::array({state.sums.size, state.sums.size, 3}, state.sums.pixels)},
                     {"color_sums", numbers(state.sums.colors.sums)},
                     {"color_products", numbers(state.sums.colors.products)},
                     {"bad_images", pickled(state.bad_images)}}));
}

State read_state(const std::string& folder, const PickleValue& value, const MakeDataOptions& options,
                 const Identity& identity) {
  check_identity(folder, value.at("made_with"), identity);
  State state(options.size);
  state.parts = static_cast<std::size_t>(value.at("parts").integer("parts"));
  state.sums.images = static_cast<std::uint64_t>(value.at("images").integer("images"));
  const auto take = [&](const char* key, auto& into) {
    const PickleValue array = value.at(key);
    const std::vector<std::int64_t> items = array.integers(key);
    if (items.size() != into.size()) array.fail(fmt::format("'{}' has {} values", key, items.size()));
    std::copy(items.begin(), items.end(), into.begin());
  };
  take("pixels", state.sums.pixels);
  take("color_sums", state.sums.colors.sums);
  take("color_products", state.sums.colors.products);
  state.sums.colors.pixels = value.at("images").integer("images") * options.size * options.size;
  state.bad_images = texts_of(value.at("bad_images"), "a bad image");
  return state;
}

/// Images of one file, data_batch_N/data_batch_N.K.
struct Part {
  int batch = 0, index = 0;
  bool training = true;
  bool ends_batch = false;
  std::span<const LabelledImage* const> images;

  std::string folder() const { return fmt::format("data_batch_{}", batch); }
  std::string file() const { return fmt::format("{}/{}.{}", folder(), folder(), index); }
};

/// The images in the order in which they are written, cut into files.
struct FileDivision {
  FileDivision(const LabelledImages& images, const MakeDataOptions& options);
  FileDivision(const FileDivision&) = delete;
  FileDivision& operator=(const FileDivision&) = delete;

  std::vector<const LabelledImage*> order;
  std::vector<Part> parts;
  int training_batches = 0, first_validation_batch = 0, validation_batches = 0;

 private:
  /// Returns the number of batches.
  int cut(std::span<const LabelledImage* const> images, std::size_t batch_size, int first_batch,
          bool training);
};

FileDivision::FileDivision(const LabelledImages& images, const MakeDataOptions& options) {
  for (const LabelledImage& image : images.training) order.push_back(&image);
  const std::uint64_t key = philox_key(options.seed, "make-data");
  for (std::size_t i = order.size(); i > 1; --i) {
    const auto random = philox(key, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 0);
    const std::uint64_t word = std::uint64_t{random.value[0]} << 32 | random.value[1];
    std::swap(order[i - 1], order[static_cast<std::size_t>(word % i)]);
  }
  for (const LabelledImage& image : images.validation) order.push_back(&image);
  const std::span<const LabelledImage* const> all(order);
  const auto batch_size = static_cast<std::size_t>(options.batch_size);
  training_batches = cut(all.first(images.training.size()), batch_size, 0, true);
  first_validation_batch = (training_batches + kValidationStep - 1) / kValidationStep * kValidationStep;
  validation_batches = cut(all.subspan(images.training.size()), batch_size, first_validation_batch, false);
}

int FileDivision::cut(std::span<const LabelledImage* const> images, std::size_t batch_size, int first_batch,
                      bool training) {
  int batches = 0;
  for (std::size_t begin = 0; begin < images.size(); begin += batch_size, ++batches) {
    const auto batch = images.subspan(begin, std::min(batch_size, images.size() - begin));
    for (std::size_t at = 0; at < batch.size(); at += kPartImages) {
      const std::size_t count = std::min(kPartImages, batch.size() - at);
      parts.push_back({first_batch + batches, static_cast<int>(at / kPartImages), training,
                       at + count == batch.size(), batch.subspan(at, count)});
    }
  }
  return batches;
}

/// The image as it is written, before compression.
DecodedImage scaled_image(const std::string& bytes, const LabelledImage& image,
                          const MakeDataOptions& options) {
  const DecodedImage decoded = decode_image(bytes, image.name, options.size);
  check_aspect({decoded.height, decoded.width}, image.name);
  const ImageSize scaled = scaled_to_shorter_side({decoded.height, decoded.width}, options.size);
  ImageWindow window = {0, 0, scaled.height, scaled.width};
  if (options.crop_to_square)
    window = {(scaled.height - options.size) / 2, (scaled.width - options.size) / 2, options.size,
              options.size};
  if (std::max(window.height, window.width) > kMaxJpegSide)
    throw InputError(fmt::format("{}: is too narrow: with a shorter side of {} it would have {}x{} pixels",
                                 image.name, options.size, window.width, window.height));
  return resize_image(decoded, scaled, window);
}

class Maker {
 public:
  Maker(const LabelledImages& images, const MakeDataOptions& options,
        const std::function<void(const MakeDataProgress&)>& report)
      : images_(images),
        options_(options),
        report_(report),
        division_(images, options),
        identity_(identity_of(images, options)),
        workers_(options.threads) {}

  MakeDataResult make();

 private:
  std::string path(const std::string& name) const { return (fs::path(options_.folder) / name).string(); }
  State open_folder();
  void check_files(std::size_t parts) const;
  void remove_leftovers() const;
  void make_part(const Part& part, State& state);
  void write_meta(const State& state) const;
  MakeDataResult result() const;

  const LabelledImages& images_;
  const MakeDataOptions& options_;
  const std::function<void(const MakeDataProgress&)>& report_;
  const FileDivision division_;
  const Identity identity_;
  WorkerPool workers_;
  MakeDataProgress progress_;
};

/// Makes or checks the folder, and returns the work that was done in it before.
State Maker::open_folder() {
  if (fs::exists(path(state_name))) {
    State state = read_state(options_.folder, read_pickle(path(state_name)), options_, identity_);
    remove_leftovers();
    check_files(state.parts);
    if (!state.bad_images.empty() && !options_.skip_bad_images)
      throw InputError(
          fmt::format("{}: bad images were left out of it before: {}; go "
                      "on with --skip-bad-images 1, or in another folder",
                      options_.folder, state.bad_images[0]));
    return state;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.folder)) {
    const std::string name = entry.path().filename().string();
    if (target_of_temporary(name) != state_name)
      throw InputError(
          fmt::format("{}: is not empty ({} is there), and not a data set that make-data has begun",
                      options_.folder, name));
  }
  remove_leftovers();
  State state(options_.size);
  write_whole_file(path(state_name), pickled(state, identity_));
  return state;
}

/// Checks that the first `parts` files exist.
void Maker::check_files(std::size_t parts) const {
  if (parts > division_.parts.size())
    throw InputError(path(state_name) + ": is damaged: remove the folder and start again");
  for (std::size_t i = 0; i < parts; ++i)
    if (const std::string file = path(division_.parts[i].file()); !fs::exists(file))
      throw InputError(file + ": was made and is gone: remove the folder and start again");
}

/// Removes the temporary files of a run that was killed.
void Maker::remove_leftovers() const {
  std::vector<fs::path> leftovers;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(options_.folder))
    if (target_of_temporary(entry.path().filename().string())) leftovers.push_back(entry.path());
  for (const fs::path& leftover : leftovers) fs::remove(leftover);
}

void Maker::make_part(const Part& part, State& state) {
  const std::size_t count = part.images.size();
  std::vector<std::string> jpegs(count), wrong(count);
  std::mutex mutex;
  workers_.run(static_cast<std::int64_t>(count), [&](std::int64_t number) {
    const auto i = static_cast<std::size_t>(number);
    const LabelledImage& image = *part.images[i];
    const std::string bytes = images_.read(image);
    std::optional<DecodedImage> square;
    try {
      const DecodedImage scaled = scaled_image(bytes, image, options_);
      jpegs[i] = encode_jpeg(scaled, kJpegQuality);
      if (part.training) square = centre_square(scaled, options_.size);
    } catch (const InputError& e) {
      if (!options_.skip_bad_images)
        throw InputError(std::string(e.what()) + "; --skip-bad-images 1 leaves such images out");
      wrong[i] = e.what();
    }
    const std::lock_guard lock(mutex);
    if (square) state.sums.add(*square);
    ++progress_.done;
    report_(progress_);
  });
  std::vector<std::string> data, labels;
  for (std::size_t i = 0; i < count; ++i) {
    if (!wrong[i].empty()) {
      state.bad_images.push_back(wrong[i]);
      continue;
    }
    data.push_back(pickles::str(jpegs[i]));
    labels.push_back(pickles::integers(labels_of(images_, *part.images[i])));
  }
  fs::create_directory(path(part.folder()));
  sync_parent_folder(path(part.folder()));
  write_whole_file(path(part.file()),
                   pickles::pickle_file(
                       pickles::dict({{"data", pickles::list(data)}, {"labels", pickles::list(labels)}})));
}

void Maker::write_meta(const State& state) const {
  const int size = options_.size;
  // Readers take it for the number of images in a batch that they have not read.
  const auto largest_batch = std::min<std::int64_t>(
      options_.batch_size, std::max(std::ssize(images_.training), std::ssize(images_.validation)));
  const std::vector<float> pca = color_pca(state.sums.colors);  // (4,3)
  const std::vector<float> deviations(pca.begin(), pca.begin() + 3), axes(pca.begin() + 3, pca.end());
  write_whole_file(
      path(meta_name),
      pickles::pickle_file(pickles::dict(
          {{"batch_size", pickles::integer(largest_batch)},
           {"num_vis", pickles::integer(std::int64_t{3} * size * size)},
           {"img_size", pickles::integer(size)},
           {"label_names", pickled(images_.class_names)},
           {"label_offset", pickles::integer(0)},
           {"label_kind", pickles::str(label_kind_text(images_))},
           {"data_mean", pickles::array({std::int64_t{3} * size * size, 1}, state.sums.mean_image())},
           {"color_pca", pickles::tuple({pickles::array({3}, deviations), pickles::array({3, 3}, axes)})},
           {"made_with", pickled(identity_)},
           {"training_images", pickles::integer(static_cast<std::int64_t>(state.sums.images))},
           {"bad_images", pickled(state.bad_images)}})));
}

/// Returns the description of the finished data set.
MakeDataResult Maker::result() const {
  const PickleValue meta = read_pickle(path(meta_name));
  const auto made_with = meta.find("made_with");
  if (!made_with)
    throw InputError(
        fmt::format("{}: holds another data set: its {} is not from make-data", options_.folder, meta_name));
  check_identity(options_.folder, *made_with, identity_);
  check_files(division_.parts.size());
  MakeDataResult result;
  result.bad_images = texts_of(meta.at("bad_images"), "a bad image");
  result.training_images = meta.at("training_images").integer("training_images");
  result.validation_images =
      static_cast<std::int64_t>(division_.order.size() - result.bad_images.size()) - result.training_images;
  result.training_batches = division_.training_batches;
  result.first_validation_batch = division_.first_validation_batch;
  result.validation_batches = division_.validation_batches;
  return result;
}

MakeDataResult Maker::make() {
  progress_.total = static_cast<std::int64_t>(division_.order.size());
  if (!fs::exists(path(meta_name))) {
    State state = open_folder();
    for (std::size_t i = 0; i < state.parts; ++i)
      progress_.before += static_cast<std::int64_t>(division_.parts[i].images.size());
    progress_.done = progress_.before;
    while (state.parts < division_.parts.size()) {
      const Part& part = division_.parts[state.parts];
      make_part(part, state);
      ++state.parts;
      write_whole_file(path(state_name), pickled(state, identity_));
      if (!part.ends_batch) continue;
      progress_.finished = part.folder();
      report_(progress_);
      progress_.finished.clear();
    }
    if (state.sums.images == 0) throw InputError(options_.folder + ": no training image could be decoded");
    write_meta(state);
  }
  MakeDataResult made = result();
  remove_leftovers();
  if (fs::remove(path(state_name))) sync_parent_folder(path(state_name));
  return made;
}

/// Keeps a second process out of the folder as long as the lock lives.
FileLock lock_folder(const std::string& folder) {
  FileLock lock(folder, FileLock::Kind::folder);
  if (lock.state() == FileLock::State::not_open)
    throw RunError(fmt::format("{}: cannot be opened: {}", folder, error_text(lock.error())));
  if (lock.state() == FileLock::State::taken)
    throw InputError(folder + ": another make-data is at work in it");
  return lock;
}

}  // namespace

MakeDataResult make_data(const LabelledImages& images, const MakeDataOptions& options,
                         const std::function<void(const MakeDataProgress&)>& report) {
  try {
    fs::create_directories(options.folder);
    const FileLock lock = lock_folder(options.folder);
    return Maker(images, options, report).make();
  } catch (const fs::filesystem_error& e) {
    throw RunError(fmt::format("{}: {}", e.path1().string(), e.code().message()));
  }
}

}  // namespace convnet
