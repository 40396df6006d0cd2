// The command line of a command: its options as text.
#pragma once

#include <string>
#include <vector>

#include "convnet/config/options.h"

namespace convnet {

/// Returns the options in `args`, of those that a command takes. Throws InputError naming an unknown option
/// and the nearest known one, or an option without its value.
OptionTexts parse_command_line(const std::vector<OptionSpec>& taken, const std::vector<std::string>& args);

}  // namespace convnet
