// Tar files as random access: where in the file each member lies. Nothing is extracted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convnet/base/file.h"

namespace convnet {

/// A stretch of a file.
struct FileRegion {
  std::uint64_t offset = 0, size = 0;
};

/// A regular file in a tar: its bytes are file.read(at.offset, at.size).
struct TarMember {
  std::string name;  ///< as it is written: any bytes but NUL, never to be used as a path to write to
  FileRegion at;
};

/// The regular files of the tar that fills `region` of `file`, in its order: POSIX ustar, pax (path and size)
/// and GNU long names. Directories and devices are left out; archives one after the other are read as one. A
/// tar inside a tar is read by giving its member's region. Throws InputError with the file and the byte of
/// the header for what is damaged, reaches beyond the region, or has no place here (links, sparse files,
/// parts of several volumes); RunError for I/O errors. Memory is bounded by the region's size.
std::vector<TarMember> index_tar(const InputFile& file, FileRegion region);
std::vector<TarMember> index_tar(const InputFile& file);

}  // namespace convnet
