// Random access to tar files: finds the place of each member without extracting anything.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convnet/base/file.h"

namespace convnet {

/// A region of a file, in bytes.
struct FileRegion {
  std::uint64_t offset = 0, size = 0;
};

/// A regular file in a tar: its bytes are file.read(at.offset, at.size).
struct TarMember {
  std::string name;  ///< as written in the tar: any bytes but NUL; must not be used as a path to write to
  FileRegion at;
};

/// Lists the regular files of the tar in `region` of `file`, in order. It reads POSIX ustar, pax (path and
/// size) and GNU long names, leaves out directories and devices, and reads concatenated archives as one. For
/// a tar inside a tar, pass the region of its member. Throws InputError, with the file and the byte offset of
/// the header, for damaged headers, members beyond the region, and unsupported members (links, sparse files,
/// parts of several volumes); RunError for I/O errors. Memory is bounded by the region's size.
std::vector<TarMember> index_tar(const InputFile& file, FileRegion region);
std::vector<TarMember> index_tar(const InputFile& file);

}  // namespace convnet
