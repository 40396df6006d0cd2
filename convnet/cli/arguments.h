// Words of a command line that are no options: what they may mean, and what to type for it.
#pragma once

#include <string>
#include <vector>

#include "convnet/config/options.h"

namespace convnet {

/// Returns the arguments of a command with --data-provider and --data-path, or beside --load-file with
/// --data-path alone, in place of a folder or tar that they name without an option ("convnet train photos"),
/// and says so on stderr. If there is no such word, or
/// --data-path is given, too, they stay as they are. Throws InputError if the folder holds the checkpoints of
/// a run, or if several providers can read it.
std::vector<std::string> with_data_set(const std::vector<OptionSpec>& taken,
                                       const std::vector<std::string>& args);

/// Returns whether a word that is no option may be the data set of a command with the options `known`: a
/// folder without checkpoints, or a tar.
bool is_data_set(const std::string& word, const std::vector<std::string>& known);

/// Returns what to type instead of a word that is no option, for a command with the options `known`.
std::string argument_hint(const std::string& word, const std::vector<std::string>& known);

}  // namespace convnet
