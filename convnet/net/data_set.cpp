#include "convnet/net/data_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "convnet/base/error.h"
#include "convnet/base/names.h"
#include "convnet/base/printable.h"
#include "convnet/base/text_file.h"
#include "convnet/config/ini_lines.h"
#include "convnet/net/find_net.h"
#include "convnet/net/ready_nets.h"
#include "providers/image_parts.h"
#include "providers/image_source.h"
#include "providers/pickle.h"
#include "providers/registry.h"

namespace convnet {

ImageOptions image_options(const DataOptions& options) {
  ImageOptions images;
  images.inner_size = options.inner_size;
  images.crop_pad = options.crop_pad;
  images.pixel_std = options.pixel_std;
  images.multiview = options.multiview_test;
  images.scalar_mean = options.scalar_mean;
  images.grey = options.grey;
  images.image_size = options.image_size;
  images.color_noise = options.color_noise;
  images.skip_bad_images = options.skip_bad_images;
  images.decode_threads = options.decode_threads;
  images.cache = options.cache_images;
  images.flip = options.flip;
  images.mixup = options.mixup;
  images.cutmix = options.cutmix;
  images.random_erasing = options.random_erasing;
  images.color_jitter = options.color_jitter;
  images.trivial_augment = options.trivial_augment;
  images.random_resized_crop = options.random_resized_crop;
  images.hold_out = options.hold_out;
  images.balance = options.balance;
  images.labels = options.labels;
  images.label_kind = options.label_kind;
  return images;
}

namespace {

/// Returns "cifar" for a folder of batches.meta and batches that hold arrays, "image" if they hold lists of
/// JPEGs; "" for all other folders.
std::string reader_of_batches(const std::string& folder) {
  if (!has_image_batches(folder)) return "";
  const auto first_batch = [&](bool folders) {
    std::vector<std::string> names = names_in(folder, folders);
    std::erase_if(names, [](const std::string& name) { return !name.starts_with("data_batch_"); });
    return names.empty() ? "" : *std::min_element(names.begin(), names.end());
  };
  try {
    if (!first_batch(true).empty()) return "image";
    const std::string name = first_batch(false);
    if (name.empty()) return "";
    const std::optional<PickleValue> data =
        read_pickle((std::filesystem::path(folder) / name).string()).find("data");
    if (data && data->is_sequence()) {
      if (data->size() > 0) (*data)[0].string("an image");  // throws for a list of anything else
      return "image";
    }
    return data && data->kind() == PickleKind::array ? "cifar" : "";
  } catch (const std::runtime_error&) {  // InputError, RunError
    return "";
  }
}

}  // namespace

std::vector<std::string> providers_that_read(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return names;
  for (const char* const name : {"image", "mnist", "cifar", "npy"}) {
    try {
      make_provider(name, path, 0, {});
      // Opening batches does not read them, so it does not tell those of cifar from batches of JPEGs.
      if (name == std::string_view("image") && has_image_batches(path) && reader_of_batches(path) != "image")
        continue;
      names.emplace_back(name);
    } catch (const std::runtime_error&) {  // InputError, RunError
    }
  }
  return names;
}

namespace {

/// Returns the providers, besides "image", for which the names of a folder's files speak, whether or not
/// these can be read.
std::vector<std::string> providers_by_name(const std::string& path) {
  std::vector<std::string> providers;
  const auto has_images = [](const std::string& folder) {
    std::error_code ignored;
    return std::filesystem::exists(std::filesystem::path(folder) / "images.npy", ignored);
  };
  try {
    if (has_images(find_parts(path, has_images)[0].folder)) providers.emplace_back("npy");
    const std::vector<std::string> names = names_in(path, false);
    const auto any = [&](const auto& is_wanted) {
      return std::any_of(names.begin(), names.end(), is_wanted);
    };
    if (any([](const std::string& name) { return name.find("idx3-ubyte") != std::string::npos; }))
      providers.emplace_back("mnist");
    if (any([](const std::string& name) { return name.starts_with("data_batch_"); }))
      providers.emplace_back("cifar");
  } catch (const std::runtime_error&) {  // InputError, RunError
  }
  return providers;
}

}  // namespace

std::string provider_of(const std::string& path, bool has_table) {
  // A table says which photos there are, and photos are the usual data set, whose messages say more.
  if (has_table) return "image";
  if (std::string reader = reader_of_batches(path); !reader.empty()) return reader;
  const std::vector<std::string> providers = providers_that_read(path);
  if (providers.size() > 1)
    throw InputError(
        fmt::format("{} can be read with --data-provider {}; type --data-path {} and one of them", path,
                    join(providers, " or "), shell_word(path)));
  // A provider whose files are there says best what is wrong with them.
  const std::vector<std::string> named = providers_by_name(path);
  if (named.size() == 1) return named[0];
  return providers.empty() ? "image" : providers[0];
}

namespace {

/// Returns the side of the images that a definition is made for, if its comments say that they are square;
/// else 0.
std::int64_t side_of_net(const OptionTexts& texts) {
  const auto name = texts.find("layer-def");
  if (name == texts.end()) return 0;
  const auto folder = texts.find("layer-path");
  const std::string file =
      find_net_file(folder == texts.end() ? "" : folder->second, name->second, CfgFile::definition);
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return 0;
  const std::optional<NetHeader> header = read_net_header(as_utf8(read_bytes(file, kMaxIniBytes)));
  return header && header->image[1] == header->image[2] ? header->image[1] : 0;
}

}  // namespace

std::string add_data_options(OptionTexts& texts) {
  const auto path = texts.find("data-path");
  if (path == texts.end()) return "";
  std::vector<std::string> chosen;
  const auto choose = [&](const char* key, const std::string& value) {
    texts[key] = value;
    chosen.push_back(fmt::format("--{} {}", key, value));
  };
  if (!texts.contains("data-provider"))
    choose("data-provider", provider_of(path->second, texts.contains("labels")));
  const auto provider = texts.find("data-provider");
  const bool photographs = provider != texts.end() && provider->second == "image";
  if (photographs && !texts.contains("inner-size") && !texts.contains("image-size")) {
    const std::int64_t side = side_of_net(texts);
    const auto fits = [&] {
      return !has_image_batches(path->second) || side <= side_of_image_batches(path->second);
    };
    if (side > 0 && fits()) choose("inner-size", std::to_string(side));
  }
  return chosen.empty() ? "" : fmt::format("Not given, and chosen for {}: {}", path->second, join(chosen));
}

std::unique_ptr<Provider> open_provider(const DataOptions& options, std::uint64_t seed) {
  std::optional<BatchRange> shuffled;
  if (options.shuffle || options.balance) shuffled = options.train_range;
  try {
    return make_provider(options.provider, options.path, seed, image_options(options), shuffled);
  } catch (const InputError& e) {
    const std::vector<std::string> known = provider_names();
    if (std::find(known.begin(), known.end(), options.provider) == known.end()) throw;
    const std::string own = options.provider == "cifar-cropped" ? "cifar" : options.provider;
    const std::vector<std::string> others = providers_that_read(options.path);
    if (others.empty() || std::find(others.begin(), others.end(), own) != others.end()) throw;
    throw InputError(fmt::format("{}\n{} can be read with --data-provider {}", e.what(), options.path,
                                 fmt::join(others, " or ")));
  }
}

bool names_ranges(const OptionTexts& texts) {
  return texts.contains("train-range") || texts.contains("test-range");
}

std::string choose_ranges(DataOptions& options, const OptionTexts& texts, bool may_be_of_tests) {
  if (names_ranges(texts)) return "";
  options.hold_out = true;
  DataOptions any_order = options;
  any_order.shuffle = any_order.balance = false;
  const std::optional<BatchSplit> split = open_provider(any_order, 0)->split();
  if (!split)
    throw InputError(options.path +
                     ": the numbers of its batches do not say which ones are for tests; --train-range and "
                     "--test-range must");
  options.train_range = split->train;
  std::string why;
  if (split->test) {
    options.test_range = *split->test;
    if (split->held_out) why = ": a tenth of the images, chosen by a hash of their names, is held out";
  } else {
    constexpr int kShare = 10;
    const BatchRange all = split->train;
    if (all.count() == 1)
      throw InputError(
          fmt::format("{}: has one batch, number {}, and none to test with; {}. With --train-range {} "
                      "--test-range {} a run would be tested on the images that it trains on",
                      options.path, all.str(),
                      options.provider == "image"
                          ? "make it again with 'convnet make-data', which holds out a tenth of the images"
                      : options.provider == "npy"
                          ? "put the arrays to train with into a folder train, and those to test with into a "
                            "folder val beside it"
                          : "put the images to test with into another batch",
                      all.str(), all.str()));
    options.train_range.last = all.last - std::max(1, all.count() / kShare);
    options.test_range = {options.train_range.last + 1, all.last};
    why =
        ": there are none of tests, and the last tenth is held out, which is fair only if images are in no "
        "order of their classes (convnet make-data leaves none)";
  }
  if (may_be_of_tests && !why.empty())
    return fmt::format(
        "Batches: tests {}{}. If the net was trained on other images, --test-range {} tests all of these",
        options.test_range.str(), why, BatchRange{options.train_range.first, options.test_range.last}.str());
  return fmt::format("Batches: training {}, tests {}{}", options.train_range.str(), options.test_range.str(),
                     why);
}

void check_label_kind_used(const OptionTexts& given, const DataOptions& options) {
  if (given.contains("label-kind") && options.labels.empty())
    throw InputError(
        "--label-kind says what the table of --labels holds; add that option, or leave this one out");
}

namespace {

std::string name_of_class(const Provider& provider, std::size_t number) {
  const std::vector<std::string>& names = provider.matrices().at(1).class_names;
  return number < names.size() ? printable(names[number]) : std::to_string(number);
}

}  // namespace

std::int64_t image_count(const Provider& provider, const BatchRange& range) {
  std::int64_t images = 0;
  for (int batch = range.first; batch <= range.last; ++batch) images += provider.images_in(batch);
  return images;
}

std::int64_t largest_batch(const Provider& provider, const BatchRange& range) {
  std::int64_t images = 0;
  for (int batch = range.first; batch <= range.last; ++batch)
    images = std::max(images, provider.images_in(batch));
  return images;
}

std::string classes_text(const Provider& provider, const std::vector<std::int64_t>& counts) {
  constexpr std::size_t kMostListed = 10;
  if (counts.empty()) return "";
  const auto shown = [&](std::size_t c) {
    return fmt::format("{} ({})", name_of_class(provider, c), counts[c]);
  };
  std::string text = fmt::format("Classes: {}; training images: ", counts.size());
  if (counts.size() <= kMostListed) {
    std::vector<std::string> all;
    for (std::size_t c = 0; c < counts.size(); ++c) all.push_back(shown(c));
    return text + join(all);
  }
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  return text + fmt::format("from {} to {}", shown(static_cast<std::size_t>(least - counts.begin())),
                            shown(static_cast<std::size_t>(most - counts.begin())));
}

std::string empty_classes(const Provider& provider, const std::vector<std::int64_t>& counts) {
  if (std::ranges::find(counts, 0) == counts.end()) return "";
  const char* advice = provider.matrices().at(1).class_names.empty()
                           ? "number the classes from 0 and without gaps"
                           : "remove what is no class";
  const std::optional<BatchSplit> split = provider.split();
  std::vector<std::int64_t> held_out(counts.size());
  if (split && split->held_out && split->test) held_out = provider.class_counts(*split->test);
  std::vector<std::size_t> empty, only_tests;
  for (std::size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0) (held_out[c] > 0 ? only_tests : empty).push_back(c);
  }
  std::vector<std::string> warnings;
  for (const std::size_t c : only_tests)
    warnings.push_back(
        fmt::format("warning: all images of class '{}' are held out for tests, so none is left for training: "
                    "add more, or put those of tests into a folder val beside a folder train",
                    name_of_class(provider, c)));
  if (empty.size() == 1)
    warnings.push_back(
        fmt::format("warning: class '{}' has no training images, and the net has an output for it: {}",
                    name_of_class(provider, empty[0]), advice));
  if (empty.size() > 1)
    warnings.push_back(fmt::format(
        "warning: {} classes, as '{}', have no training images, and the net has an output for each of them: "
        "{}",
        empty.size(), name_of_class(provider, empty[0]), advice));
  return join(warnings, "\n");
}

std::string channels_last_warning(const DataOptions& options, const MatrixInfo& images) {
  if (options.provider != "npy") return "";
  const Dims& dims = images.uncropped.empty() ? images.dims : images.uncropped;
  const auto may_be_channels = [](std::int64_t size) { return size == 1 || size == 3 || size == 4; };
  // Feature maps of 3x3 or 1x1 pixels are square.
  if (dims.size() != 3 || may_be_channels(dims[0]) || !may_be_channels(dims[2]) || dims[1] == dims[2])
    return "";
  return fmt::format(
      "warning: the images of images.npy are read as {} channels of {}x{} pixels, because its shape is taken "
      "for (N,C,H,W); if it is (N,H,W,C), save a.transpose(0, 3, 1, 2)",
      dims[0], dims[1], dims[2]);
}

std::int64_t rows_of_test(const Provider& provider, std::int64_t mini) {
  const std::int64_t views = provider.views();
  return std::max<std::int64_t>(1, mini / views) * views;
}

std::string smaller_batches(std::int64_t mini, std::int64_t largest) {
  if (mini <= largest) return "";
  const std::string images = fmt::format("{} image{}", largest, largest == 1 ? "" : "s");
  return fmt::format("warning: --mini {} is more than the largest batch has, {}: minibatches have at most {}",
                     mini, images, images);
}

}  // namespace convnet
