// The providers by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "providers/provider.h"

namespace convnet {

/// Makes a provider: "image" (reads `path`: image.h), "mnist", "cifar", "cifar-cropped" and "npy" (read
/// `path`), "dummy-CxHxW-K", "dummy-n", "dummy-labeled-n", "dummy-lr-n" (no path). With `shuffled`, training
/// sees the images of that range in another order each epoch (shuffle.h). `seed` decides everything random.
/// Throws InputError for an unknown name, with the known ones, and for options that do not fit the provider.
std::unique_ptr<Provider> make_provider(const std::string& name, const std::string& path, std::uint64_t seed,
                                        const ImageOptions& images = {},
                                        const std::optional<BatchRange>& shuffled = {});

/// Returns the known provider names, for help and errors.
std::vector<std::string> provider_names();

}  // namespace convnet
