// Functions that the sources of images in folders and in tars share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convnet/base/file.h"
#include "providers/provider.h"
#include "providers/tar.h"

namespace convnet {

/// A data set's training or test half, or all of it.
struct ImagePart {
  std::string name;  ///< "train", "val", "test", or "" of all
  std::string folder;
  BatchRange batches;
};
/// `path`/train and then `path`/val, or else `path`/test; without the first, `path` itself. A folder train
/// that holds neither folders nor tars is the images of a class.
std::vector<ImagePart> find_parts(const std::string& path);
/// Numbers the batches from 1; `batches` counts those of each part.
void number_parts(std::vector<ImagePart>& parts, const std::vector<std::size_t>& batches);
/// The batches of the first part for training, those of the second for tests.
BatchSplit split_of(const std::vector<ImagePart>& parts);
/// "1-40 (train), 41-44 (val)".
std::string parts_text(const std::vector<ImagePart>& parts);

/// Files, or folders, in a folder, in no order, without those whose names begin with a dot. Throws RunError.
std::vector<std::string> names_in(const std::string& folder, bool folders);

/// The extension after the dot at `dot` in a name, in lower case.
std::string lower_extension(std::string_view name, std::size_t dot);
/// jpg, jpeg, png, bmp.
bool is_image_extension(std::string_view extension);

/// The images in a class's folder.
struct ImageFiles {
  std::vector<std::string> names;  ///< paths below the folder, in no order
  LeftOutFiles left_out;
};
/// Finds images in `folder` and in folders in it, without those whose names begin with a dot. Throws
/// RunError.
ImageFiles image_files_below(const std::string& folder);

constexpr std::int64_t max_image_side = 4096;
/// The side of square images of `numbers` numbers in `channels` channels; nothing if they are not square, or
/// larger than max_image_side.
std::optional<std::int64_t> square_side(std::int64_t numbers, std::int64_t channels);

constexpr std::int64_t max_classes = 1'000'000;

/// An image of a tar shard: KEY.jpg (or .jpeg .png .bmp) with KEY.cls.
struct ShardImage {
  std::string name;
  FileRegion at;
  std::int32_t label = -1;  ///< in [0, classes)
};
/// In the order of the tar. Throws InputError naming the shard and the member.
std::vector<ShardImage> read_shard(const InputFile& file, std::int64_t classes = max_classes);

/// The lines of `folder`/classes.txt, without blank ones; none without the file.
std::vector<std::string> read_class_names(const std::string& folder);

}  // namespace convnet
