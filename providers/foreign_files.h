// Says what is in the place of a data set that cannot be read.
#pragma once

#include <functional>
#include <string>

namespace convnet {

/// Returns the end of a message about a folder or a file that holds no data set of the form that is wanted:
/// "; x.zip in it is a zip archive: unpack it with unzip" if it is, or the folder holds, an archive, a
/// database or the like; "" if nothing is recognised. Files for whose names `is_read` returns true are passed
/// over: they are files of the wanted form.
std::string foreign_files_text(const std::string& path,
                               const std::function<bool(const std::string& name)>& is_read = {});

}  // namespace convnet
