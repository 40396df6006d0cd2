#include "providers/label_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"
#include "providers/csv.h"
#include "providers/image_parts.h"

namespace convnet {
namespace {

std::string without_blanks(std::string_view text) {
  constexpr std::string_view blanks = " \t";
  const std::size_t begin = std::min(text.find_first_not_of(blanks), text.size());
  return std::string(text.substr(begin, text.find_last_not_of(blanks) + 1 - begin));
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool has_image_extension(std::string_view name) {
  return is_image_extension(lower_extension(name, name.rfind('.')));
}

std::string_view without_extension(std::string_view name) {
  return has_image_extension(name) ? name.substr(0, name.rfind('.')) : name;
}

std::optional<double> number_of(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

bool all_numbers(const std::vector<std::string>& names) {
  return std::all_of(names.begin(), names.end(),
                     [](const auto& name) { return number_of(name).has_value(); });
}

using Rows = std::span<const LabelRow>;

/// Returns the different names in their order.
std::vector<std::string> sorted_names(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (all_numbers(names))
    std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
      return *number_of(a) < *number_of(b);
    });
  return names;
}

/// Finds photos by the names that rows give them.
class PhotoIndex {
 public:
  PhotoIndex(const LabelTable& table, const std::vector<PhotoName>& photos) : table_(table), photos_(photos) {
    for (std::size_t i = 0; i < photos.size(); ++i) {
      const std::string_view path = photos[i].path, member = path.substr(photos[i].member);
      const std::array<std::string_view, kForms> names = {path,
                                                          without_extension(path),
                                                          member,
                                                          without_extension(member),
                                                          file_name(path),
                                                          without_extension(file_name(path))};
      for (std::size_t form = 0; form < kForms; ++form) {
        const auto [at, is_new] = by_name_[form].emplace(names[form], Photos{i, i});
        if (!is_new) at->second.last = i;
      }
    }
  }

  /// Returns the index of the photo that the row names; nullopt if there is none. Throws InputError if there
  /// are several.
  std::optional<std::size_t> find(const LabelRow& row) const {
    std::string_view name = row.photo;
    if (name.starts_with("./")) name.remove_prefix(2);
    for (const auto& form : by_name_) {
      const auto found = form.find(name);
      if (found == form.end()) continue;
      const auto [first, last] = found->second;
      if (first != last && photos_[first].path == photos_[last].path)
        throw InputError(fmt::format("{}:{}: there are two photos '{}'; they should have different names",
                                     table_.file, row.line, printable(photos_[first].path)));
      if (first != last)
        throw InputError(
            fmt::format("{}:{}: '{}' may be '{}' or '{}'; give the path below the folder with the "
                        "extension",
                        table_.file, row.line, printable(row.photo), printable(photos_[first].path),
                        printable(photos_[last].path)));
      return first;
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kForms = 6;  ///< number of forms of a name; the most exact one comes first
  struct Photos {
    std::size_t first = 0, last = 0;  ///< different if several photos have the name
  };
  const LabelTable& table_;
  const std::vector<PhotoName>& photos_;
  std::array<std::unordered_map<std::string_view, Photos>, kForms> by_name_;
};

constexpr std::string_view kSeparators = ";|";

/// Returns the tags in a field, in the order of the field.
std::vector<std::string> tags_in(std::string_view field) {
  std::vector<std::string> tags;
  while (true) {
    const std::size_t end = std::min(field.find_first_of(kSeparators), field.size());
    if (std::string tag = without_blanks(field.substr(0, end)); !tag.empty()) tags.push_back(std::move(tag));
    if (end == field.size()) return tags;
    field.remove_prefix(end + 1);
  }
}

/// Turns the rows of a table into the labels of photos.
class LabelReader {
 public:
  LabelReader(const LabelTable& table, const std::vector<PhotoName>& photos, std::string where,
              LabelKind kind)
      : table_(table), photos_(photos), where_(std::move(where)), rows_(table.rows), index_(table, photos) {
    found_.photos.resize(photos.size());
    if (has_header()) {
      columns_ = rows_[0].fields;
      constexpr std::size_t kShown = 5;
      found_.header = fmt::format("{}:{}: '{}", table.file, rows_[0].line, printable(rows_[0].photo));
      for (std::size_t i = 0; i < std::min(columns_.size(), kShown); ++i)
        found_.header += "," + printable(columns_[i]);
      found_.header += columns_.size() > kShown ? ",…'" : "'";
      rows_ = rows_.subspan(1);
    }
    is_guess_ = kind == LabelKind::automatic;
    found_.kind = is_guess_ ? kind_of_fields() : kind;
  }

  PhotoLabels read() {
    if (is_wide()) check_columns();
    name_labels();
    std::vector<std::int64_t> lines(photos_.size());  // of the photos' rows
    const LabelRow* missing = nullptr;
    std::size_t missing_rows = 0;
    for (const LabelRow& row : rows_) {
      PhotoLabel label = label_of(row);
      const std::optional<std::size_t> photo = index_.find(row);
      if (!photo) {
        if (missing == nullptr) missing = &row;
        ++missing_rows;
        continue;
      }
      if (lines[*photo] > 0)
        fail(row, fmt::format("names '{}', which line {} names, too", printable(photos_[*photo].path),
                              lines[*photo]));
      lines[*photo] = row.line;
      found_.photos[*photo] = std::move(label);
    }
    if (missing != nullptr)
      fail(*missing,
           fmt::format("there is no photo '{}' in {}{}{}", printable(missing->photo), where_,
                       missing_rows > 1 ? fmt::format(", nor those of {} other lines", missing_rows - 1) : "",
                       photos_.empty() ? ""
                                       : fmt::format("; photos there are named like '{}'",
                                                     printable(photos_.front().path))));
    return std::move(found_);
  }

 private:
  [[noreturn]] void fail(const LabelRow& row, const std::string& what) const {
    throw InputError(fmt::format("{}:{}: {}", table_.file, row.line, what));
  }
  bool is_wide() const { return table_.rows.front().fields.size() > 1; }

  /// Returns whether the first line names the columns.
  bool has_header() const {
    const LabelRow& first = rows_.front();
    if (rows_.size() == 1 || has_image_extension(first.photo) || index_.find(first)) return false;
    return is_wide() || std::none_of(rows_.begin() + 1, rows_.end(),
                                     [&](const LabelRow& row) { return row.fields == first.fields; });
  }

  LabelKind kind_of_fields() const {
    const auto every_field = [&](const auto& is_so) {
      return std::all_of(rows_.begin(), rows_.end(), [&](const LabelRow& row) {
        return std::all_of(row.fields.begin(), row.fields.end(), is_so);
      });
    };
    const auto is_bit = [](const std::string& field) { return bit_of(field).has_value(); };
    const auto is_class = [](const std::string& field) {
      return field.find_first_of(kSeparators) == std::string::npos;
    };
    if (is_wide()) return every_field(is_bit) ? LabelKind::tags : LabelKind::numbers;
    return every_field(is_class) ? LabelKind::classes : LabelKind::tags;
  }

  /// Returns whether a photo has the tag of a column; nullopt if the field is neither 0 nor 1.
  static std::optional<bool> bit_of(const std::string& field) {
    const std::optional<double> number = number_of(field);
    if (!number || (*number != 0 && *number != 1)) return std::nullopt;
    return *number == 1;
  }

  /// Checks that a table with several columns has their names, and holds no classes.
  void check_columns() const {
    const LabelRow& first = table_.rows.front();
    if (columns_.empty())
      fail(first, fmt::format("the photo is followed by {} fields, so the first line should name them: "
                              "PHOTO,TAG,TAG",
                              first.fields.size()));
    if (found_.kind == LabelKind::classes)
      fail(first, "a class is one column after the photo; --label-kind tags or numbers takes several");
    std::set<std::string_view> names;
    for (const std::string& name : columns_) {
      if (name.empty()) fail(first, fmt::format("column {} has no name", names.size() + 2));
      check_name(first, name);
      if (!names.insert(name).second) fail(first, fmt::format("has two columns '{}'", printable(name)));
    }
  }

  void check_name(const LabelRow& row, const std::string& name) const {
    if (std::any_of(name.begin(), name.end(), is_control))
      fail(row, fmt::format("the {} '{}' holds control characters",
                            found_.kind == LabelKind::classes ? "class" : "name", printable(name)));
  }

  void name_labels() {
    if (is_wide()) {
      found_.names = columns_;
    } else if (found_.kind == LabelKind::numbers) {
      found_.names = {columns_.empty() || columns_[0].empty() ? "number" : columns_[0]};
    } else {
      std::vector<std::string> names;
      for (const LabelRow& row : rows_)
        for (std::string& name : names_in_field(row)) names.push_back(std::move(name));
      if (names.empty()) fail(table_.rows.front(), "no photo has a tag");
      found_.names = sorted_names(std::move(names));
      found_.may_be_numbers = is_guess_ && found_.kind == LabelKind::classes && all_numbers(found_.names);
    }
    for (const std::string& name : found_.names) {
      check_name(table_.rows.front(), name);
      indices_.emplace(name, static_cast<std::int32_t>(indices_.size()));
    }
  }

  /// Returns the class or the tags in the only field of a row.
  std::vector<std::string> names_in_field(const LabelRow& row) const {
    std::vector<std::string> names =
        found_.kind == LabelKind::tags ? tags_in(row.fields[0]) : std::vector{row.fields[0]};
    if (found_.kind == LabelKind::classes && names[0].empty())
      fail(row, fmt::format("gives '{}' no class", printable(row.photo)));
    for (const std::string& name : names) check_name(row, name);
    return names;
  }

  PhotoLabel label_of(const LabelRow& row) const {
    PhotoLabel label{true, {}, {}};
    if (found_.kind == LabelKind::numbers) {
      for (std::size_t i = 0; i < row.fields.size(); ++i) label.numbers.push_back(number_in(row, i));
    } else if (is_wide()) {
      for (std::size_t i = 0; i < row.fields.size(); ++i) {
        const std::optional<bool> bit = bit_of(row.fields[i]);
        if (!bit) fail(row, wrong_field(row, i) + "is neither 0 nor 1");
        if (*bit) label.labels.push_back(static_cast<std::int32_t>(i));
      }
    } else {
      for (const std::string& name : names_in_field(row)) label.labels.push_back(indices_.at(name));
      std::sort(label.labels.begin(), label.labels.end());
      label.labels.erase(std::unique(label.labels.begin(), label.labels.end()), label.labels.end());
    }
    return label;
  }

  std::string wrong_field(const LabelRow& row, std::size_t i) const {
    return fmt::format("'{}' in column '{}' ", printable(row.fields[i]), printable(found_.names[i]));
  }

  float number_in(const LabelRow& row, std::size_t i) const {
    const std::optional<double> number = number_of(row.fields[i]);
    if (!number || std::abs(*number) > std::numeric_limits<float>::max())
      fail(row,
           wrong_field(row, i) +
               fmt::format(
                   "is not a number that float32 holds{}",
                   is_wide() ? "; a table with several columns has 0 or 1 for each tag, or numbers" : ""));
    return static_cast<float>(*number);
  }

  const LabelTable& table_;
  const std::vector<PhotoName>& photos_;
  const std::string where_;
  Rows rows_;  ///< without the header
  const PhotoIndex index_;
  std::vector<std::string> columns_;  ///< of the header; empty: there is none
  bool is_guess_ = false;             ///< whether the kind follows from the fields
  PhotoLabels found_;
  std::unordered_map<std::string_view, std::int32_t> indices_;  ///< of the names
};

/// Returns the end of a message about a line without commas: which other separator it has; "" if none.
std::string other_separator(const CsvRecord& record) {
  if (record.fields[0].find(';') != std::string::npos) return ", not semicolons";
  return record.fields[0].find('\t') == std::string::npos ? "" : ", not tabs";
}

}  // namespace

LabelTable parse_label_table(const std::string& file, std::string_view text) {
  LabelTable table{file, {}};
  for (const CsvRecord& record : parse_csv(file, text)) {
    const auto fail = [&](const std::string& what) {
      throw InputError(fmt::format("{}:{}: {}", file, record.line, what));
    };
    if (record.fields.size() < 2)
      fail("has 1 field; a line should be PHOTO,CLASS, or PHOTO and tags or numbers, separated by commas" +
           other_separator(record));
    LabelRow row{record.line, without_blanks(record.fields[0]), {}};
    if (row.photo.empty()) fail("has no name of a photo before the comma");
    for (std::size_t i = 1; i < record.fields.size(); ++i)
      row.fields.push_back(without_blanks(record.fields[i]));
    if (!table.rows.empty() && row.fields.size() != table.rows[0].fields.size())
      fail(fmt::format("has {} fields, where the lines before have {}", record.fields.size(),
                       table.rows[0].fields.size() + 1));
    table.rows.push_back(std::move(row));
  }
  if (table.rows.empty()) throw InputError(file + ": is empty; its lines should be PHOTO,CLASS");
  return table;
}

PhotoLabels match_labels(const LabelTable& table, const std::vector<PhotoName>& photos,
                         const std::string& where, LabelKind kind) {
  return LabelReader(table, photos, where, kind).read();
}

}  // namespace convnet
