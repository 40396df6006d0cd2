#include "convnet/net/data_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "convnet/base/error.h"

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

std::vector<std::string> providers_that_read(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return names;
  for (const char* const name : {"image", "mnist", "cifar", "npy"}) {
    try {
      make_provider(name, path, 0, {});
      names.emplace_back(name);
    } catch (const std::runtime_error&) {  // InputError, RunError
    }
  }
  return names;
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

std::string choose_ranges(DataOptions& options, const OptionTexts& texts) {
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
                          : "put the images to test with into another batch",
                      all.str(), all.str()));
    options.train_range.last = all.last - std::max(1, all.count() / kShare);
    options.test_range = {options.train_range.last + 1, all.last};
    why =
        ": there are none of tests, and the last tenth is held out, which is fair only if images are in no "
        "order of their classes (convnet make-data leaves none)";
  }
  return fmt::format("Batches: training {}, tests {}{}", options.train_range.str(), options.test_range.str(),
                     why);
}

std::int64_t largest_batch(const Provider& provider, const BatchRange& range) {
  std::int64_t images = 0;
  for (int batch = range.first; batch <= range.last; ++batch)
    images = std::max(images, provider.images_in(batch));
  return images;
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
