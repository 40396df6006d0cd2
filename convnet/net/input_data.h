// The data that training reads: the provider's pieces, checked, and the statistics measured over them.
#pragma once

#include <cstddef>
#include <memory>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/graph/graph.h"
#include "convnet/net/options.h"
#include "providers/prefetch.h"
#include "providers/provider.h"

namespace convnet {

/// Returns how many pieces of `images` images are read ahead: enough to train while the next file is read,
/// but few if the images are large.
std::size_t pieces_ahead(const Provider& provider, std::int64_t images);

/// Makes the function with which a Prefetcher reads from `provider`. It and its pieces throw as
/// Provider::begin() and its pieces do, and InputError for an image without a class (label -1) if the net
/// reads classes. It must outlive its pieces.
Prefetcher::Begin make_loader(const std::shared_ptr<const Provider>& provider,
                              const PixelStatistics& statistics, const Graph& graph);

/// Reads the statistics that images of `provider` need from a checkpoint. If none are stored under the
/// provider's name, those of the provider that the run had are used, for the same images in another form.
/// Throws InputError naming file and tensor if one is missing, does not fit or holds numbers that are not
/// finite.
PixelStatistics saved_statistics(const Checkpoint& checkpoint, const DataOptions& options,
                                 const Provider& provider);

/// Returns a provider of random images that stands for the checkpoint's data set in plans.
std::shared_ptr<const Provider> stand_in_for_data(const Checkpoint& checkpoint, const DataOptions& options,
                                                  std::uint64_t seed);

/// Returns what is wrong, and what to do, if all classes of the data set `now` are among those that a net was
/// trained on, but not the other way round; else "".
std::string missing_class(const std::vector<MatrixInfo>& then, const std::vector<MatrixInfo>& now);
/// Returns what is wrong if a class has another number in the data set `now` than in the one that a net was
/// trained on; "" if every class that both name has the same number in both.
std::string renumbered_class(const std::vector<MatrixInfo>& then, const std::vector<MatrixInfo>& now);
/// Returns what is wrong if the images `now` are bytes and those that a net was trained on were floats, or
/// the reverse; "" if they are of one kind.
std::string other_numbers(const std::vector<MatrixInfo>& then, const std::vector<MatrixInfo>& now);
/// Returns what is wrong if a layer of the checkpoint's net has as many outputs as there are classes, and the
/// data set `now` has another number of classes than the one that the net was trained on; else "".
std::string other_outputs(const Checkpoint& checkpoint, const std::vector<MatrixInfo>& now);
/// Returns a warning if the data set `now` has labels of another kind than `then`, or if classes have other
/// names there but kept their numbers; else "".
std::string renamed_class(const std::vector<MatrixInfo>& then, const std::vector<MatrixInfo>& now);

/// Throws InputError if tests shall see several views of an image (--multiview-test), but the run of the
/// checkpoint does not crop.
void check_views_exist(const DataOptions& now, const Checkpoint& checkpoint);

/// Throws InputError if an option gives images another size or preprocessing than the checkpoint's, which its
/// weights were trained with.
void check_same_images(const DataOptions& now, const Checkpoint& checkpoint);

}  // namespace convnet
