// Random data of any size, for benchmarks and tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "providers/provider.h"

namespace convnet {

/// Makes a provider of random data. `name` is dummy-CxHxW-K (images, K classes), dummy-n (vectors without
/// labels), dummy-labeled-n or dummy-lr-n (vectors, ten classes). Further matrices may follow, each after a
/// plus: n or CxHxW for numbers, or kK for labels of K classes; they are called matrix2, matrix3, ... by
/// their dataIdx. Any number from 0 on is a batch of 1,000 images. Pixels are uniform in [0,1), labels
/// uniform over the classes; every value depends only on seed, batch, image and position. Throws InputError.
std::unique_ptr<StoredProvider> make_dummy_provider(const std::string& name, std::uint64_t seed);

/// Makes a provider of random data with the matrices of another data set, whose images may be bytes and have
/// a mean.
std::unique_ptr<StoredProvider> make_dummy_provider(const std::vector<MatrixInfo>& matrices, bool has_mean,
                                                    std::uint64_t seed);

}  // namespace convnet
