// Reads JSON that somebody else may have written: whatever is wrong is named with its place in the text.
//
//   const JsonValue state = JsonValue::parse(text);
//   const int epoch = state.at("position").at("epoch").integer(1000);  // "position.epoch is not a whole
//   number"
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convnet {

/// A value of a JSON text, and its place there. All functions throw InputError with a sentence that begins
/// with the place, like "history[3].epoch is missing". Values may outlive the one that they come from.
class JsonValue {
 public:
  /// Throws InputError if the text is no JSON.
  static JsonValue parse(const std::string& text);

  /// Returns a member of an object.
  JsonValue at(std::string_view key) const;
  /// Returns a member of an object, or nullopt if it has none of this name.
  std::optional<JsonValue> find(std::string_view key) const;
  /// Returns the items of a list, which has from `least` to `most` of them.
  std::vector<JsonValue> items(std::size_t least = 0, std::size_t most = SIZE_MAX) const;

  std::string text() const;
  bool truth() const;
  double number() const;
  /// Returns a whole number from 0 to `max`.
  std::int64_t integer(std::int64_t max) const;
  std::vector<double> numbers() const;
  std::vector<std::string> texts() const;
  /// Returns the members of an object whose values are texts.
  std::map<std::string, std::string> text_members() const;

  /// Throws InputError with the place and `wrong`, which is the end of a sentence: "is not a number".
  [[noreturn]] void fail(const std::string& wrong) const;

 private:
  JsonValue(std::shared_ptr<const nlohmann::json> value, std::string place);
  JsonValue part(const nlohmann::json& value, std::string place) const;

  std::shared_ptr<const nlohmann::json> value_;  ///< keeps the whole text's value
  std::string place_;                            ///< "" for the whole text
};

}  // namespace convnet
