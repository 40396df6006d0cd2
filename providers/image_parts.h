// Code shared by the sources of images in folders and in tars.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convnet/base/file.h"
#include "providers/provider.h"

namespace convnet {

/// The training images or the test images of a data set, or all of its images.
struct ImagePart {
  std::string name;  ///< that of the folder, like "train", or "" for all images
  std::string folder;
  BatchRange batches;
};
/// Returns whether a folder holds images of a data set, not only those of one class.
using HoldsImages = std::function<bool(const std::string& folder)>;
/// Returns the parts of a data set: the folder of training images in `path` (train or training), and that of
/// test images (the first of val, valid, validation, test and testing), in small letters or capitals. Returns
/// only `path` itself if it has no folder of training images. Throws InputError if all of its folders are
/// for tests.
std::vector<ImagePart> find_parts(const std::string& path, const HoldsImages& holds_images);
/// Returns the same for data sets in which a folder holds images if it holds folders or tars.
std::vector<ImagePart> find_parts(const std::string& path);
/// Returns the folders with images in `path` that are none of its parts.
CountedFiles folders_beside(const std::string& path, const std::vector<ImagePart>& parts);
/// Returns the images in a folder, not those in folders in it.
CountedFiles loose_images_in(const std::string& folder);
/// Throws InputError if `output`, which `option` names, lies where the folders of the data set in `path` are
/// classes: the next time it would be one of them.
void refuse_among_classes(const std::string& option, const std::string& output, const std::string& path);
/// Numbers the batches of all parts from 1 on; `batches` is the number of batches of each part.
void number_parts(std::vector<ImagePart>& parts, const std::vector<std::size_t>& batches);
/// Returns the batches of the first part for training, and those of the second for tests.
BatchSplit split_of(const std::vector<ImagePart>& parts);
/// Returns "1-40 (train), 41-44 (val)".
std::string parts_text(const std::vector<ImagePart>& parts);

/// Returns the files, or the folders, in a folder, in no particular order, without hidden ones: those whose
/// names begin with a dot, and folders __MACOSX, which unzipping an archive of macOS leaves. Throws RunError,
/// or InputError naming a link that leads nowhere: without what it stands for, the data set would silently be
/// another one. Links to images are left to image_files_below().
std::vector<std::string> names_in(const std::string& folder, bool folders);
/// Returns the names of the tars in a folder, in natural order (2 before 10), without those that begin with a
/// dot. Throws RunError.
std::vector<std::string> tars_in(const std::string& folder);

/// Returns the paths of compressed tars in a folder, which are not read: *.tar.gz, *.tgz and the like.
CountedFiles packed_tars_in(const std::string& folder);

/// Returns the extension after the dot at `dot` in a name, in lower case.
std::string lower_extension(std::string_view name, std::size_t dot);
/// Returns whether an extension is one of kImageExtensions.
bool is_image_extension(std::string_view extension);
/// Returns whether an extension is that of pictures which are not read: gif, heic, tiff, …
bool is_other_picture(std::string_view extension);
/// The extensions of images that are read, for messages.
inline constexpr const char* kImageExtensions = ".jpg, .jpeg, .jpe, .jfif, .png, .bmp, .webp";

/// The images in the folder of a class.
struct ImageFiles {
  std::vector<std::string> names;  ///< paths below the folder, in no particular order
  LeftOutFiles left_out;
};
/// Finds images in `folder` and in folders in it, also behind links, without hidden ones (names_in()). Throws
/// RunError, or InputError naming a folder that links lead back to.
ImageFiles image_files_below(const std::string& folder);

constexpr std::int64_t kMaxImageSide = 4096;  ///< pixels
/// Returns the side of square images with `numbers` values in `channels` channels; nullopt if they are not
/// square, or larger than kMaxImageSide.
std::optional<std::int64_t> square_side(std::int64_t numbers, std::int64_t channels);

constexpr std::int64_t kMaxClasses = 1'000'000;

/// Returns for each of the images of a data set, by their names, whether it is held out for tests: a tenth,
/// by a hash of the name, so that no image's part depends on the others. If there are few images, the hash
/// may choose all or none; then one is left in the smaller part. Throws InputError if there are fewer than
/// two images in `folder`.
std::vector<bool> choose_held_out(const std::string& folder, const std::vector<std::string>& names);

/// Returns the lines of `folder`/classes.txt, without blank ones; none if there is no such file. A file that
/// is not UTF-8 is read as Latin-1.
std::vector<std::string> read_class_names(const std::string& folder);

}  // namespace convnet
