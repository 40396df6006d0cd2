// Says what is in the place of a data set that cannot be read.
#pragma once

#include <string>

namespace convnet {

/// Returns the end of a message about a folder or a file that holds no data set of the form that is wanted:
/// "; x.zip in it is a zip archive: unpack it with unzip" if it is, or the folder holds, an archive, a
/// database or the like; "" if nothing is recognised.
std::string foreign_files_text(const std::string& path);

}  // namespace convnet
