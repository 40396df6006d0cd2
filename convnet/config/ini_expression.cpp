#include "convnet/config/ini_expression.h"

#include <algorithm>
#include <cmath>

#include "convnet/config/text.h"

namespace convnet {
namespace {

constexpr std::int64_t kLargestNumber = 9'999'999'999;
/// The maximal depth of brackets and signs.
constexpr int kDeepestNesting = 32;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return (lower(c) >= 'a' && lower(c) <= 'z') || is_digit(c) || c == '_'; }

using ValueOf = std::function<std::string(const std::string& name, std::int64_t& number)>;

/// A recursive-descent parser that computes as it reads. After a mistake, wrong() says which, and all numbers
/// are 0.
class Evaluator {
 public:
  Evaluator(std::string_view text, const ValueOf& value_of) : rest_(text), value_of_(value_of) {}

  std::int64_t read() {
    const std::int64_t result = sum(0);
    if (wrong_.empty() && next() != '\0')
      fail("is no expression: " + std::string(1, next()) + " is not expected");
    return result;
  }
  const std::string& wrong() const { return wrong_; }

 private:
  /// Returns the next character that is not blank, or NUL at the end.
  char next() {
    rest_ = trim(rest_);
    return rest_.empty() ? '\0' : rest_[0];
  }

  std::int64_t fail(const std::string& wrong) {
    if (wrong_.empty()) wrong_ = wrong;
    rest_ = {};
    return 0;
  }

  std::int64_t checked(std::int64_t value) {
    return value > kLargestNumber || value < -kLargestNumber ? fail("makes a number of more than ten digits")
                                                             : value;
  }

  std::int64_t sum(int depth) {
    std::int64_t value = product(depth);
    for (char sign = next(); sign == '+' || sign == '-'; sign = next()) {
      rest_.remove_prefix(1);
      const std::int64_t other = product(depth);
      value = checked(sign == '+' ? value + other : value - other);
    }
    return value;
  }

  std::int64_t product(int depth) {
    std::int64_t value = factor(depth);
    for (char sign = next(); sign == '*' || sign == '/'; sign = next()) {
      rest_.remove_prefix(1);
      const std::int64_t other = factor(depth);
      if (!wrong_.empty()) return 0;
      if (sign == '*') {
        // Both have at most ten digits, so the product may have twenty: more than 64 bits hold.
        if (other != 0 && std::abs(value) > kLargestNumber / std::abs(other))
          return fail("makes a number of more than ten digits");
        value *= other;
      } else if (other == 0) {
        return fail("divides by 0");
      } else if (value % other != 0) {
        return fail("divides " + std::to_string(value) + " by " + std::to_string(other) +
                    ", which is no integer");
      } else {
        value /= other;
      }
    }
    return value;
  }

  std::int64_t factor(int depth) {
    if (depth > kDeepestNesting) return fail("is nested too deep");
    const char first = next();
    if (first == '-') {
      rest_.remove_prefix(1);
      return -factor(depth + 1);
    }
    if (first == '(') {
      rest_.remove_prefix(1);
      const std::int64_t value = sum(depth + 1);
      if (next() != ')') return fail("has a bracket that is not closed");
      rest_.remove_prefix(1);
      return value;
    }
    const std::string word(rest_.begin(), std::find_if_not(rest_.begin(), rest_.end(), is_word));
    if (word.empty()) return fail("lacks a number or a name");
    rest_.remove_prefix(word.size());
    std::int64_t value = 0;
    if (is_digit(word[0])) {
      const auto number = to_number<std::int64_t>(word);
      if (!number) return fail("has '" + word + "', which is neither an integer nor a name");
      value = *number;
    } else if (const std::string wrong = value_of_(lower(word), value); !wrong.empty()) {
      return fail(wrong);
    }
    return checked(value);
  }

  std::string_view rest_;
  const ValueOf& value_of_;
  std::string wrong_;
};

}  // namespace

bool looks_like_expression(std::string_view text) {
  constexpr std::string_view kSigns = "+-*/() \t";
  const bool is_clean = std::all_of(text.begin(), text.end(), [&](char c) {
    return is_word(c) || kSigns.find(c) != std::string_view::npos;
  });
  return is_clean && std::any_of(text.begin(), text.end(), [](char c) { return is_word(c); }) &&
         (text.find_first_of("+-*/") != std::string_view::npos || is_digit(trim(text)[0]));
}

std::string evaluate(std::string_view text, const ValueOf& value_of, std::int64_t& result) {
  Evaluator evaluator(text, value_of);
  result = evaluator.read();
  return evaluator.wrong();
}

}  // namespace convnet
