// Tables of photos and their classes: CSV files that stand beside photos, as competitions and medical sets
// have them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convnet {

/// A line of a table.
struct LabelRow {
  std::int64_t line = 0;   ///< number in the file, from 1
  std::string photo;       ///< as match_labels() finds it
  std::string class_name;  ///< without control characters
};

/// A table of the classes of photos.
struct LabelTable {
  std::string file;            ///< name for messages
  std::vector<LabelRow> rows;  ///< at least one; the first one may be a header
};

/// Parses a CSV file with two fields in each line: the photo and its class. Blanks around them are removed.
/// Throws InputError naming file and line.
LabelTable parse_label_table(const std::string& file, std::string_view text);

/// How rows may name a photo.
struct PhotoName {
  std::string path;        ///< below the folder; for a photo in a tar, as if the tar were a folder
  std::size_t member = 0;  ///< where the name in the tar begins in `path`; 0: the photo is in no tar
};

/// The classes of photos.
struct PhotoLabels {
  std::vector<std::string> class_names;  ///< ordered as numbers if all are numbers, else by name
  std::vector<int> labels;               ///< for each photo an index into class_names, or -1 if it has no row
  std::string header;  ///< the line that was left out as a header, with its place; "" if none was
};

/// Finds the row of each photo; `where` is where they are. A row names a photo by its path or, if no other
/// photo has the same, by its name in the tar or its file name; all may lack the extension. The first line is
/// a header, and left out, if other lines follow, it names no photo and has no extension of
/// photos, and its class stands in no other line. Throws InputError, naming file and line, for rows that name
/// no photo, several photos, or a photo that another row names.
PhotoLabels match_labels(const LabelTable& table, const std::vector<PhotoName>& photos,
                         const std::string& where);

}  // namespace convnet
