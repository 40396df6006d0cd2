// The command line of a command: its options as text.
#pragma once

#include <string>
#include <vector>

#include "convnet/cli/commands.h"
#include "convnet/config/options.h"

namespace convnet {

/// The words of a command that takes names of files among its options.
struct CommandWords {
  std::vector<std::string> named;    ///< words that are neither options nor values of options
  std::vector<std::string> options;  ///< options with their values
};

/// Separates the options of a command from names, wherever they stand. A boolean option takes the next word
/// only if that is 0, 1 or the like, since it needs no value. After a bare -- all words are names.
CommandWords split_words(const std::vector<OptionSpec>& taken, const std::vector<std::string>& args);

/// Returns the options in `args`, of those that a command takes. The first letters of a name, at least three,
/// stand for it if they begin no other. Throws InputError naming an unknown option and the nearest known one,
/// letters that begin several names, or an option without its value.
OptionTexts parse_command_line(const std::vector<OptionSpec>& taken, const std::vector<std::string>& args);

/// Returns the options of training that a command accepts and does not use, so that a command line of
/// training can be planned and measured as it is. Most commands accept none.
std::vector<OptionSpec> unused_options(const Command& command);

/// The options of a command line of training that another command takes.
struct TrainingLine {
  OptionTexts used;  ///< those that the command uses
  /// Those that mean to training what they mean to the command, or that the command does not use: all but
  /// those of what the command prints.
  OptionTexts training;
};
/// Does the same as parse_command_line() for the command `name`, which also accepts unused_options(). Checks
/// all options of training as parse_train_options() does, and names the unused ones that are given on stderr.
TrainingLine parse_training_line(const std::string& name, const std::vector<std::string>& args);

}  // namespace convnet
