#include "convnet/config/diagnostics.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace convnet {
namespace {

void add(std::vector<std::string>& messages, const SourceLocation& where, std::string_view label,
         const std::string& message) {
  if (messages.size() > Diagnostics::max_messages) return;
  if (messages.size() == Diagnostics::max_messages) {
    messages.emplace_back("more follow, which are not shown");
    return;
  }
  const std::string place = where.str();
  messages.push_back(place + (place.empty() ? "" : ": ") + std::string(label) + message);
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
  add(errors_, where, "", message);
  ++error_count_;
  if (error_places_.size() < max_messages) error_places_.push_back(where);
}

void Diagnostics::warning(const SourceLocation& where, const std::string& message) {
  if (!is_repeated(where, message)) add(warnings_, where, "warning: ", message);
}

void Diagnostics::note(const std::string& line) { add(warnings_, {}, "", line); }

void Diagnostics::throw_if_errors() const {
  if (!has_errors()) return;
  const std::size_t last = errors_.size();
  std::vector<std::tuple<std::size_t, int, std::size_t>> order;  // rank of the file, line, index
  for (std::size_t i = 0; i < last; ++i) {
    if (i >= error_places_.size() || !error_places_[i].file) {
      order.emplace_back(last, 0, i);
      continue;
    }
    const auto of_file = [&](const SourceLocation& p) { return p.file && *p.file == *error_places_[i].file; };
    const auto first = std::find_if(error_places_.begin(), error_places_.end(), of_file);
    order.emplace_back(static_cast<std::size_t>(first - error_places_.begin()), error_places_[i].line, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> sorted;
  for (const auto& [file, line, i] : order) sorted.push_back(errors_[i]);
  throw InputError(join(sorted, "\n"));
}

}  // namespace convnet
