// What training reads: the provider's pieces, checked, and what was measured over them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/graph/graph.h"
#include "convnet/net/options.h"
#include "providers/provider.h"

namespace convnet {

/// Pieces of `images` that are read ahead: as many as bridge the reading of the next file, but of large
/// images few.
std::size_t pieces_ahead(const Provider& provider, std::int64_t images);

/// Reads of `provider`, for a Prefetcher. Throws like it, and InputError for an image without a class (-1)
/// where the net reads classes.
std::function<std::shared_ptr<const DataBatch>(const LoadRequest&)> make_loader(
    const std::shared_ptr<const Provider>& provider, const PixelStatistics& statistics, const Graph& graph);

/// Puts into a checkpoint's tensors what was measured when the run began. `image`: the dimensions of the
/// data's images.
void save_statistics(const PixelStatistics& statistics, const DataOptions& options, const Dims& image,
                     TensorFile& into);
/// Takes out of a checkpoint what images of `provider` need. Throws InputError naming file and tensor if one
/// is missing, does not fit or holds numbers that are not finite.
PixelStatistics saved_statistics(const Checkpoint& checkpoint, const DataOptions& options,
                                 const Provider& provider);

/// Throws InputError if the options ask for other images than the run has had so far: its weights fit no
/// others.
void check_same_images(const DataOptions& now, const Checkpoint& checkpoint);

}  // namespace convnet
