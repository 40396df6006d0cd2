// Tables of photos with their classes, tags or numbers: CSV files that stand beside photos, as competitions
// and medical sets have them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "providers/provider.h"

namespace convnet {

/// A line of a table.
struct LabelRow {
  std::int64_t line = 0;            ///< number in the file, from 1
  std::string photo;                ///< as match_labels() finds it
  std::vector<std::string> fields;  ///< those after the photo, at least one
};

/// A table of photos.
struct LabelTable {
  std::string file;            ///< name for messages
  std::vector<LabelRow> rows;  ///< at least one, all with as many fields; the first one may be a header
};

/// Parses a CSV file with a photo and at least one more field in each line. Blanks around fields are removed.
/// Throws InputError naming file and line.
LabelTable parse_label_table(const std::string& file, std::string_view text);

/// How rows may name a photo.
struct PhotoName {
  std::string path;        ///< below the folder; for a photo in a tar, as if the tar were a folder
  std::size_t member = 0;  ///< where the name in the tar begins in `path`; 0: the photo is in no tar
};

/// What a table says of a photo.
struct PhotoLabel {
  bool has_row = false;
  /// Indices into PhotoLabels::names: the class, or the tags in ascending order.
  std::vector<std::int32_t> labels;
  std::vector<float> numbers;  ///< LabelKind::numbers: one for each name; else empty
  bool operator==(const PhotoLabel&) const = default;
};

/// The classes, tags or numbers of photos.
struct PhotoLabels {
  LabelKind kind = LabelKind::classes;  ///< not automatic
  bool may_be_numbers = false;          ///< nobody said that they are classes, and all have numbers as names
  /// The names of the classes or of tags that stand in one column, ordered as numbers if all are numbers,
  /// else by name; else those of the columns.
  std::vector<std::string> names;
  std::vector<PhotoLabel> photos;  ///< in the order of the photos
  std::string header;              ///< the line that was left out as a header, with its place; "" if none was
};

/// Finds the row of each photo; `where` is where they are. A row names a photo by its path or, if no other
/// photo has the same, by its name in the tar or its file name; all may lack the extension. The first line is
/// a header, and left out, if other lines follow, it names no photo and has no extension of
/// photos, and its class stands in no other line.
///
/// A single field after the photo is a class; or tags separated by ';' or '|', perhaps none, if `kind` is
/// tags or it is automatic and a line has such a separator; or a number if `kind` is numbers. Several fields,
/// whose names the header must give, are 0 or 1 for each tag, or numbers. automatic: tags if all are 0 or 1.
///
/// Throws InputError, naming file and line, for rows that name no photo, several photos, or a photo that
/// another row names, and for fields that are not of the kind.
PhotoLabels match_labels(const LabelTable& table, const std::vector<PhotoName>& photos,
                         const std::string& where, LabelKind kind = LabelKind::automatic);

}  // namespace convnet
