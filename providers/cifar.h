// CIFAR-10, CIFAR-100 and data sets of their form: small colour images in a few files.
#pragma once

#include <memory>
#include <string>

#include "providers/provider.h"

namespace convnet {

/// Reads the folder `path`, which holds one of
///   batches.meta, data_batch_N[, test_batch]   pickles of the original (an image a column) or of CIFAR-10
///   for Python (a row) data_batch_N.bin[, test_batch.bin]         CIFAR-10, binary meta, train, test  or
///   train.bin, test.bin CIFAR-100, pickles or binary: train is cut into batches 1 to 5
/// A batch has the number of its file, a test file the number after the last. CIFAR-100 has a third matrix,
/// the coarse labels. The mean image is that of batches.meta where there is one. Reads only the meta here;
/// later one file at a time, keeping none. Throws InputError, RunError.
std::unique_ptr<StoredProvider> make_cifar_provider(const std::string& path);

}  // namespace convnet
