// CIFAR-10, CIFAR-100 and data sets of their form: small colour images in a few files.
#pragma once

#include <memory>
#include <string>

#include "providers/provider.h"

namespace convnet {

/// Reads the folder `path`, which holds one of these forms:
/// - batches.meta and data_batch_N: cuda-convnet2's pickles (an image a column)
/// - batches.meta, data_batch_N and test_batch: CIFAR-10 for Python (an image a row)
/// - data_batch_N.bin and test_batch.bin: CIFAR-10, binary
/// - meta, train and test, or train.bin and test.bin: CIFAR-100; train is cut into batches 1 to 5
///
/// A batch has the number of its file; a test file has the number after the last. CIFAR-100 has a third
/// matrix, the coarse labels. The mean image is that of batches.meta, if it has one. Pixels are bytes, or f32
/// if the first batch is an array of another type. This call reads only the meta file and, of pickles, the
/// first batch; later calls read one file at a time. Throws InputError or RunError.
std::unique_ptr<StoredProvider> make_cifar_provider(const std::string& path);

}  // namespace convnet
