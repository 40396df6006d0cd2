// Options of other programs.
#pragma once

#include <string>
#include <vector>

namespace convnet {

/// Returns what to type instead of the option `name` of another program or of an older version, as the end of
/// a message ("did you mean '--mini'?"), for a command with the options `known`; "" if it is not known, or if
/// the command has nothing like it.
std::string foreign_option_hint(const std::string& name, const std::vector<std::string>& known);

}  // namespace convnet
