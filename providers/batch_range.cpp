#include "providers/batch_range.h"

#include <fmt/format.h>

#include <charconv>

#include "convnet/base/error.h"

namespace convnet {

std::string BatchRange::str() const {
  return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

std::string batches_text(const std::vector<int>& batches) {
  std::string text;
  for (auto at = batches.begin(); at != batches.end();) {
    BatchRange run{*at, *at};
    for (++at; at != batches.end() && *at == run.last + 1; ++at) run.last = *at;
    text += (text.empty() ? "" : ", ") + run.str();
  }
  return text;
}

BatchRange BatchRange::parse(const std::string& text) {
  constexpr int max_batch = 999'999'999;
  const char* const end = text.data() + text.size();
  BatchRange range;
  // Digits only: from_chars() would also take a sign.
  const bool digits = text.find_first_not_of("0123456789-") == std::string::npos && !text.starts_with('-');
  const auto first = std::from_chars(text.data(), end, range.first);
  auto last = first;
  if (first.ptr != end && *first.ptr == '-' && first.ptr + 1 != end && first.ptr[1] != '-')
    last = std::from_chars(first.ptr + 1, end, range.last);
  else
    range.last = range.first;
  if (!digits || first.ec == std::errc::invalid_argument || last.ec == std::errc::invalid_argument ||
      last.ptr != end)
    throw InputError(fmt::format(
        "'{}' is not a range of batches; give a number (6) or the first and the last one (1-5)", text));
  if (first.ec != std::errc() || last.ec != std::errc() || range.first > max_batch || range.last > max_batch)
    throw InputError(fmt::format("'{}': batch numbers are 0 to {}", text, max_batch));
  if (range.first > range.last)
    throw InputError(fmt::format("'{}' is empty: the first batch comes before the last one, as in {}-{}",
                                 text, range.last, range.first));
  return range;
}

}  // namespace convnet
