// MNIST and data sets of its form (Fashion-MNIST, KMNIST): four IDX files.
#pragma once

#include <memory>
#include <string>

#include "providers/provider.h"

namespace convnet {

/// Reads the folder `path` with the original's file names, plain or .gz. Training images are batches 1, 2, …
/// of 10,000, the last may be shorter; test images the numbers that follow. Headers are read here, images and
/// labels when first asked for; they stay in memory as bytes. Throws InputError, RunError.
std::unique_ptr<StoredProvider> make_mnist_provider(const std::string& path);

}  // namespace convnet
