#include "convnet/checkpoint/json_value.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"

namespace convnet {

using nlohmann::json;

namespace {

constexpr int kMostLevels = 100;  ///< of lists and objects in each other

/// Throws InputError if lists and objects are nested too deeply. Each level takes memory of its own, so a
/// text of brackets alone would take many times its size. (A callback of json::parse() could count levels as
/// well, but the library then searches a whole list for values to drop whenever an item of it is complete.)
void check_depth(const std::string& text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      if (++depth > kMostLevels)
        throw InputError(fmt::format("it is nested in more than {} levels", kMostLevels));
    } else if (!quoted && (c == ']' || c == '}')) {
      --depth;
    }
  }
}

}  // namespace

JsonValue::JsonValue(std::shared_ptr<const json> value, std::string place)
    : value_(std::move(value)), place_(std::move(place)) {}

JsonValue JsonValue::parse(const std::string& text) {
  check_depth(text);
  try {
    return {std::make_shared<const json>(json::parse(text)), ""};
  } catch (const json::parse_error& wrong) {
    throw InputError(fmt::format("it is no JSON from byte {} on", wrong.byte));
  } catch (const json::exception&) {  // a number that no double holds
    throw InputError("it is no JSON that can be used");
  }
}

void JsonValue::fail(const std::string& wrong) const {
  throw InputError((place_.empty() ? "it" : place_) + " " + wrong);
}

JsonValue JsonValue::part(const json& value, std::string place) const {
  return {std::shared_ptr<const json>(value_, &value), std::move(place)};
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  if (!value_->is_object()) fail("is not an object");
  const auto member = value_->find(key);
  if (member == value_->end()) return std::nullopt;
  return part(*member, fmt::format("{}{}{}", place_, place_.empty() ? "" : ".", key));
}

JsonValue JsonValue::at(std::string_view key) const {
  std::optional<JsonValue> member = find(key);
  if (!member) fail(fmt::format("has no '{}'", key));
  return *std::move(member);
}

std::vector<JsonValue> JsonValue::items(std::size_t least, std::size_t most) const {
  if (!value_->is_array()) fail("is not a list");
  if (value_->size() < least || value_->size() > most)
    fail(fmt::format("is a list of {} values instead of {}", value_->size(),
                     value_->size() < least ? least : most));
  std::vector<JsonValue> items;
  items.reserve(value_->size());
  for (const json& item : *value_) items.push_back(part(item, fmt::format("{}[{}]", place_, items.size())));
  return items;
}

std::string JsonValue::text() const {
  if (!value_->is_string()) fail("is not a text");
  return value_->get<std::string>();
}

bool JsonValue::truth() const {
  if (!value_->is_boolean()) fail("is neither true nor false");
  return value_->get<bool>();
}

double JsonValue::number() const {
  if (!value_->is_number()) fail("is not a number");
  return value_->get<double>();
}

std::int64_t JsonValue::integer(std::int64_t max) const {
  // get<int>() would truncate larger ones.
  if (!value_->is_number_unsigned() || value_->get<std::uint64_t>() > static_cast<std::uint64_t>(max))
    fail(fmt::format("is not a whole number from 0 to {}", max));
  return value_->get<std::int64_t>();
}

std::vector<double> JsonValue::numbers() const {
  if (!value_->is_array()) fail("is not a list");
  std::vector<double> numbers;
  numbers.reserve(value_->size());
  for (const json& item : *value_) {
    if (!item.is_number()) fail(fmt::format("has a value that is not a number, {}", numbers.size()));
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

std::vector<std::string> JsonValue::texts() const {
  std::vector<std::string> texts;
  for (const JsonValue& item : items()) texts.push_back(item.text());
  return texts;
}

std::map<std::string, std::string> JsonValue::text_members() const {
  if (!value_->is_object()) fail("is not an object");
  std::map<std::string, std::string> members;
  for (const auto& [key, value] : value_->items()) {
    if (!value.is_string()) fail("has a value that is not a text, that of " + excerpt(key));
    members.emplace(key, value.get<std::string>());
  }
  return members;
}

}  // namespace convnet
