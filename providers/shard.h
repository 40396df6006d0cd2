// Images and labels in tars.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convnet/base/file.h"
#include "providers/image_parts.h"
#include "providers/provider.h"
#include "providers/tar.h"

namespace convnet {

/// Images of a tar whose labels stand elsewhere.
struct TarImages {
  std::vector<TarMember> images;
  LeftOutFiles left_out;
};
/// Returns the members of a tar that are named like images, without hidden ones.
TarImages image_members(const InputFile& tar);

/// An image of a tar shard: KEY.jpg (or another of kImageExtensions) with KEY.cls.
struct ShardImage {
  std::string name;
  FileRegion at;            ///< its bytes in the tar
  std::int32_t label = -1;  ///< class, in [0, classes)
};
struct Shard {
  std::vector<ShardImage> images;  ///< in the order of the tar
  LeftOutFiles left_out;
};
/// Finds the pairs of a shard: names that are equal up to their last dot. An image and a label without such a
/// partner are a pair if their names have the same beginning up to an earlier dot, the longest that any
/// partner has: "1.left.jpg" and "1.cls". Other images and labels of a sample that has its pair, like
/// "1.mask.png" beside "1.jpg" and "1.cls", are left out, and so are members of other kinds. Throws
/// InputError naming the shard and the member if there are several partners, or none.
Shard read_shard(const InputFile& file, std::int64_t classes = kMaxClasses);

}  // namespace convnet
