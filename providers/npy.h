// Data sets of NumPy arrays.
#pragma once

#include <memory>
#include <string>

#include "providers/provider.h"

namespace convnet {

/// Reads the folder `path` with images.npy (N,C,H,W), (N,H,W) or (N,D), labels.npy if the images have
/// classes, and perhaps further arrays, which become matrices in the natural order of their names. All have
/// the same first dimension. An array with one integer for each image holds labels; others hold numbers.
/// Folders train and val (or test) may hold two such sets. Batches have 1,000 images; those of the second set
/// follow those of the first. Throws InputError naming the file.
std::unique_ptr<StoredProvider> make_npy_provider(const std::string& path);

/// Throws InputError if `output`, which `option` names, is a folder with arrays of the data set in `path`:
/// what is written there would be one of them the next time.
void refuse_among_arrays(const std::string& option, const std::string& output, const std::string& path);

}  // namespace convnet
