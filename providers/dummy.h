// Random data of any size, for benchmarks and tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "providers/provider.h"

namespace convnet {

/// `name` is dummy-CxHxW-K (images, K classes), dummy-n (vectors without labels), dummy-labeled-n or
/// dummy-lr-n (vectors, ten classes). Further matrices follow, each after a plus: n or CxHxW numbers, or kK,
/// labels of K classes; they are called matrix2, matrix3, ... by their dataIdx. A batch, any number from 0,
/// has 1,000 images uniform in [0,1) and uniform labels. Every value is a function of seed, batch, image and
/// position alone. Throws InputError.
std::unique_ptr<StoredProvider> make_dummy_provider(const std::string& name, std::uint64_t seed);

/// The same with matrices like those of another data set, whose images may be bytes and have a mean.
std::unique_ptr<StoredProvider> make_dummy_provider(const std::vector<MatrixInfo>& matrices, bool has_mean,
                                                    std::uint64_t seed);

}  // namespace convnet
