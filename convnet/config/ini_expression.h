// Integer arithmetic in references of INI files: %(4*width)s.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace convnet {

/// Returns whether a text that is not a key looks like an expression: letters, digits and '_', and at least
/// one operator or a number.
bool looks_like_expression(std::string_view text);

/// Evaluates + - * / of integers and names, with brackets. `value_of` stores the number of a name, and
/// returns what is wrong, or "". Divisions must have no remainder; results have at most ten digits. Returns
/// what is wrong with the expression, or "".
std::string evaluate(
    std::string_view text,
    const std::function<std::string(const std::string& name, std::int64_t& number)>& value_of,
    std::int64_t& result);

}  // namespace convnet
