// The data set of a run, as the options name it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convnet/net/options.h"
#include "providers/provider.h"

namespace convnet {

/// Returns how the images of the data set are prepared.
ImageOptions image_options(const DataOptions& options);
/// Returns the names of the providers that can open the folder `path` as a data set; none if it is no folder.
std::vector<std::string> providers_that_read(const std::string& path);
/// Returns the provider that reads a data set. If none does, it is the one for which the names of the files
/// speak, or else "image", because its messages say most. `has_table`: --labels names a table of photos.
/// Throws InputError if several can read the folder.
std::string provider_of(const std::string& path, bool has_table);
/// Gives the options of a new run what follows from others: the provider, from the folder that --data-path
/// names, and for photographs of any size --inner-size, from the size of images that the comments of the
/// definition name (NetHeader). Returns a note about what it has chosen, or "". Throws InputError as
/// provider_of() does.
std::string add_data_options(OptionTexts& texts);
/// Opens the data set. `seed` decides the random choices of its provider. Throws InputError, which names
/// another provider if that can open the folder.
std::unique_ptr<Provider> open_provider(const DataOptions& options, std::uint64_t seed);

/// Returns whether the options name a range of batches.
bool names_ranges(const OptionTexts& texts);

/// Chooses the ranges of batches if `texts` has neither --train-range nor --test-range: all batches of the
/// data set, or, if it has none for tests, all but a tenth for training and that tenth for tests. Returns a
/// sentence about the choice, or "" if ranges are given. Throws InputError if the data set does not tell its
/// batches. `may_be_of_tests`: a net is tested on a data set that was given, which may be another one than it
/// was trained on; the sentence then says how to test all of a set of which a tenth is held out.
std::string choose_ranges(DataOptions& options, const OptionTexts& texts, bool may_be_of_tests);

/// Throws InputError if --label-kind is given without --labels, whose table it describes.
void check_label_kind_used(const OptionTexts& given, const DataOptions& options);

/// Returns the number of images in `range`, as the data set tells before it is read.
std::int64_t image_count(const Provider& provider, const BatchRange& range);
/// Returns the number of images of the largest batch in `range`.
std::int64_t largest_batch(const Provider& provider, const BatchRange& range);
/// Returns a line with the classes of a data set and their numbers of training images, as
/// Provider::class_counts() returns them; "" if these are not known.
std::string classes_text(const Provider& provider, const std::vector<std::int64_t>& counts);
/// Returns warnings that name the classes of which there are no training images; "" if there are none.
std::string empty_classes(const Provider& provider, const std::vector<std::int64_t>& counts);
/// Returns a warning that images of provider "npy" look as if their channels were the last dimension; else
/// "". `images` describes them.
std::string channels_last_warning(const DataOptions& options, const MatrixInfo& images);
/// Returns the number of rows that a test computes at once: all views of whole images, at most `mini` rows or
/// those of one image.
std::int64_t rows_of_test(const Provider& provider, std::int64_t mini);
/// Returns a warning that minibatches have `largest` images, as many as the largest batch, and not the `mini`
/// that --mini asks for; "" if they have as many.
std::string smaller_batches(std::int64_t mini, std::int64_t largest);

}  // namespace convnet
