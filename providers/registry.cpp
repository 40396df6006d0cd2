#include "providers/registry.h"

#include <fmt/format.h>

#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/names.h"
#include "providers/augment.h"
#include "providers/cifar.h"
#include "providers/crop.h"
#include "providers/dummy.h"
#include "providers/image.h"
#include "providers/mnist.h"
#include "providers/npy.h"
#include "providers/shuffle.h"

namespace convnet {
namespace {

/// Returns whether this is the provider of CIFAR that crops: its name in cuda-convnet2, or a name that older
/// versions of this program used.
bool is_cropped_cifar(const std::string& name) { return name == "cifar-cropped" || name == "cropped-cifar"; }

std::unique_ptr<StoredProvider> make_stored_provider(const std::string& name, const std::string& path,
                                                     std::uint64_t seed) {
  if (name == "mnist") return make_mnist_provider(path);
  if (name == "npy") return make_npy_provider(path);
  if (name == "cifar" || is_cropped_cifar(name)) return make_cifar_provider(path);
  if (name.starts_with("dummy-")) return make_dummy_provider(name, seed);
  // The names of dummy providers are patterns, not what would be typed.
  std::vector<std::string> typed = provider_names();
  std::erase_if(typed, [](const std::string& known) { return known.starts_with("dummy-"); });
  const int most_edits = name.size() < 6 ? 1 : 2;
  throw InputError("data provider '" + name + "' is not known" +
                   did_you_mean(name, typed, "the known ones are " + join(provider_names()), most_edits));
}

/// Throws InputError naming an option that would do nothing.
void check_stored_options(const std::string& name, const ImageOptions& images) {
  for (const OptionOfImage& option : options_of_image()) {
    if (option.is_on(images))
      throw InputError(fmt::format("--{} is for data provider 'image', not for '{}'", option.name, name));
  }
}

}  // namespace

std::unique_ptr<Provider> make_provider(const std::string& name, const std::string& path, std::uint64_t seed,
                                        const ImageOptions& images,
                                        const std::optional<BatchRange>& shuffled) {
  if (is_cropped_cifar(name) && !images.crops())
    throw InputError(
        fmt::format("data provider '{}' needs --inner-size, the side of the crops, or --crop-pad", name));
  check_views(images);
  if (name == "image") return make_image_provider(path, images, seed, shuffled);
  auto stored = make_stored_provider(name, path, seed);
  check_stored_options(name, images);
  if (images.crops() || images.flip == Flip::on || images.pixel_std || images.scalar_mean >= 0)
    stored = make_cropped_provider(std::move(stored), images, seed);
  std::unique_ptr<Provider> provider =
      shuffled ? make_shuffled_provider(std::move(stored), *shuffled, seed, images.balance)
               : std::move(stored);
  if (images.mixes() || images.distorts() || images.random_erasing > 0)
    provider = make_augmented_provider(std::move(provider), images, seed);
  return provider;
}

std::vector<std::string> provider_names() {
  return {"image",         "mnist",   "cifar",           "cifar-cropped", "npy",
          "dummy-CxHxW-K", "dummy-n", "dummy-labeled-n", "dummy-lr-n"};
}

}  // namespace convnet
