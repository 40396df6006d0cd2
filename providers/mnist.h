// MNIST and data sets of its form (Fashion-MNIST, KMNIST): four IDX files.
#pragma once

#include <memory>
#include <string>

#include "providers/provider.h"

namespace convnet {

/// Reads the folder `path`, whose files have the names of MNIST's, plain or .gz. Training images form batches
/// 1, 2, … of 10,000 images, of which the last may have fewer; test images form the batches that follow. This
/// call reads only headers. Images and labels are read at the first use, and stay in memory as bytes. Throws
/// InputError or RunError.
std::unique_ptr<StoredProvider> make_mnist_provider(const std::string& path);

}  // namespace convnet
