#include "convnet/config/diagnostics.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace convnet {
namespace {

/// Appends a message, and its place to `places`, unless it is there already or there are too many.
void add(std::vector<std::string>& messages, std::vector<SourceLocation>& places, const SourceLocation& where,
         std::string_view label, const std::string& message) {
  if (messages.size() > Diagnostics::max_messages) return;
  if (messages.size() == Diagnostics::max_messages) {
    messages.emplace_back("more follow, which are not shown");
    places.emplace_back();
    return;
  }
  const std::string place = where.str();
  std::string line = place + (place.empty() ? "" : ": ") + std::string(label) + message;
  // A definition may be read twice, from a checkpoint and from its file.
  if (std::find(messages.begin(), messages.end(), line) != messages.end()) return;
  messages.push_back(std::move(line));
  places.push_back(where);
}

/// Sorts the lines by file and line, the files in the order in which `places` first names them. Lines without
/// a file come last.
std::vector<std::string> sorted_by_place(const std::vector<std::string>& lines,
                                         const std::vector<SourceLocation>& places) {
  std::map<std::string, std::size_t> ranks;
  for (const SourceLocation& place : places)
    if (place.file) ranks.emplace(*place.file, ranks.size());
  std::vector<std::tuple<std::size_t, int, std::size_t>> order;  // rank of the file, line, index
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const SourceLocation& place = places[i];
    order.emplace_back(place.file ? ranks.at(*place.file) : ranks.size(), place.file ? place.line : 0, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> sorted;
  for (const auto& [file, line, i] : order) sorted.push_back(lines[i]);
  return sorted;
}

}  // namespace

std::string SourceLocation::str() const {
  if (option) return *option;
  if (!file) return "";
  const std::string place = line > 0 ? *file + ":" + std::to_string(line) : *file;
  return uses ? place + " (used in " + *uses + ")" : place;
}

/// Returns whether the message says of a place with copies what another has said already. They differ in what
/// is in quotes: names and values.
bool Diagnostics::is_repeated(const SourceLocation& where, const std::string& message) {
  if (!where.has_copies || where.option) return false;
  std::string essence = std::to_string(where.line) + ":";
  bool is_quoted = false;
  for (const char c : message) {
    if (c == '\'') is_quoted = !is_quoted;
    if (!is_quoted) essence += c;
  }
  return !of_copies_.insert(std::move(essence)).second;
}

void Diagnostics::error(const SourceLocation& where, const std::string& message) {
  if (is_repeated(where, "error: " + message)) {
    ++error_count_;
    return;
  }
  add(errors_, error_places_, where, "", message);
  ++error_count_;
}

void Diagnostics::warning(const SourceLocation& where, const std::string& message) {
  if (!is_repeated(where, message)) add(warnings_, warning_places_, where, "warning: ", message);
}

void Diagnostics::note(const std::string& line) { add(warnings_, warning_places_, {}, "", line); }

void Diagnostics::throw_if_errors() const {
  if (!has_errors()) return;
  std::vector<std::string> lines = errors_;
  std::vector<SourceLocation> places = error_places_;
  for (std::size_t i = 0; i < warnings_.size(); ++i) {
    if (warning_places_[i].str().empty()) continue;
    lines.push_back(warnings_[i]);
    places.push_back(warning_places_[i]);
  }
  throw InputError(join(sorted_by_place(lines, places), "\n"));
}

}  // namespace convnet
