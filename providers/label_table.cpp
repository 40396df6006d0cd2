#include "providers/label_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <unordered_map>

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

/// Returns the different classes of the rows in their order.
std::vector<std::string> sorted_classes(std::span<const LabelRow> rows) {
  std::vector<std::string> names;
  names.reserve(rows.size());
  for (const LabelRow& row : rows) names.push_back(row.class_name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (std::all_of(names.begin(), names.end(), [](const std::string& n) { return number_of(n).has_value(); }))
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

/// Returns whether the first line names the columns.
bool has_header(std::span<const LabelRow> rows, const PhotoIndex& index) {
  const LabelRow& first = rows.front();
  if (rows.size() == 1 || has_image_extension(first.photo) || index.find(first)) return false;
  return std::none_of(rows.begin() + 1, rows.end(),
                      [&](const LabelRow& row) { return row.class_name == first.class_name; });
}

}  // namespace

LabelTable parse_label_table(const std::string& file, std::string_view text) {
  LabelTable table{file, {}};
  for (const CsvRecord& record : parse_csv(file, text)) {
    const auto fail = [&](const std::string& what) {
      throw InputError(fmt::format("{}:{}: {}", file, record.line, what));
    };
    if (record.fields.size() != 2)
      fail(fmt::format("has {} field(s); a line should be PHOTO,CLASS, separated by a comma",
                       record.fields.size()));
    LabelRow row{record.line, without_blanks(record.fields[0]), without_blanks(record.fields[1])};
    if (row.photo.empty()) fail("has no name of a photo before the comma");
    if (row.class_name.empty()) fail(fmt::format("gives '{}' no class", printable(row.photo)));
    if (std::any_of(row.class_name.begin(), row.class_name.end(), is_control))
      fail(fmt::format("the class '{}' holds control characters", printable(row.class_name)));
    table.rows.push_back(std::move(row));
  }
  if (table.rows.empty()) throw InputError(file + ": is empty; its lines should be PHOTO,CLASS");
  return table;
}

PhotoLabels match_labels(const LabelTable& table, const std::vector<PhotoName>& photos,
                         const std::string& where) {
  const PhotoIndex index(table, photos);
  std::span<const LabelRow> rows = table.rows;
  std::string header;
  if (has_header(rows, index)) {
    header = fmt::format("{}:{}: '{},{}'", table.file, rows[0].line, printable(rows[0].photo),
                         printable(rows[0].class_name));
    rows = rows.subspan(1);
  }
  PhotoLabels found{sorted_classes(rows), std::vector<int>(photos.size(), -1), std::move(header)};
  std::unordered_map<std::string_view, int> labels;
  for (const std::string& name : found.class_names) labels.emplace(name, static_cast<int>(labels.size()));

  std::vector<std::int64_t> lines(photos.size());  // of the photos' rows
  const LabelRow* missing = nullptr;
  std::size_t missing_rows = 0;
  for (const LabelRow& row : rows) {
    const std::optional<std::size_t> photo = index.find(row);
    if (!photo) {
      if (missing == nullptr) missing = &row;
      ++missing_rows;
      continue;
    }
    if (lines[*photo] > 0)
      throw InputError(fmt::format("{}:{}: names '{}', which line {} names, too", table.file, row.line,
                                   printable(photos[*photo].path), lines[*photo]));
    lines[*photo] = row.line;
    found.labels[*photo] = labels.at(row.class_name);
  }
  if (missing != nullptr)
    throw InputError(fmt::format(
        "{}:{}: there is no photo '{}' in {}{}{}", table.file, missing->line, printable(missing->photo),
        where, missing_rows > 1 ? fmt::format(", nor those of {} other lines", missing_rows - 1) : "",
        photos.empty() ? ""
                       : fmt::format("; photos there are named like '{}'", printable(photos.front().path))));
  return found;
}

}  // namespace convnet
