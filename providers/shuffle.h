// Training images in shuffled order.
#pragma once

#include <cstdint>
#include <memory>

#include "providers/provider.h"

namespace convnet {

/// `ordered` with the images of `range` in a random order in training, new in every epoch and the same in
/// every run with that seed. Keeps the whole range in memory from the first batch on. Batches keep their
/// sizes; tests see the stored order.
std::unique_ptr<Provider> make_shuffled_provider(std::unique_ptr<StoredProvider> ordered, BatchRange range,
                                                 std::uint64_t seed);

}  // namespace convnet
