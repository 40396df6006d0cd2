#include "providers/image_source.h"

#include <filesystem>
#include <system_error>

#include "convnet/base/error.h"
#include "providers/image_parts.h"

namespace convnet {

namespace fs = std::filesystem;

bool has_image_batches(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::path(path) / "batches.meta", ignored);
}

std::int64_t side_of_image_batches(const std::string& path) {
  return open_image_pickles(path)->info().image_size;
}

std::unique_ptr<ImageSource> open_image_source(const std::string& path, bool hold_out,
                                               const std::string& table, LabelKind kind) {
  if (path.empty()) throw InputError("data provider 'image' needs --data-path, the folder of the data set");
  std::error_code ignored;
  if (!table.empty() && has_image_batches(path))
    throw InputError(path + ": holds batches with labels (batches.meta); --labels is for photos without any");
  if (!table.empty()) return open_photos(path, table, kind, hold_out);
  if (fs::is_regular_file(path, ignored)) return open_image_tars(path);
  if (!fs::is_directory(path, ignored)) throw InputError(path + ": no such folder");
  if (has_image_batches(path)) return open_image_pickles(path);
  if (!tars_in(find_parts(path)[0].folder).empty()) return open_image_tars(path);
  return open_image_folders(path, hold_out);
}

}  // namespace convnet
