// The command line: which command, and its options as text.
#pragma once

#include <string>
#include <vector>

#include "convnet/net/options.h"

namespace convnet {

/// The options in `args` that `command` ('t' train, 'p' plan, 'b' bench, 's' show, 'd' make-data) takes.
/// Throws InputError naming an unknown option and the nearest known one, or an option without its value.
OptionTexts parse_command_line(char command, const std::vector<std::string>& args);

/// The help of a command: every option with its values, default and meaning.
std::string option_help(char command);

}  // namespace convnet
