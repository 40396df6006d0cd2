// The commands of the program. Each takes the arguments after its name, and throws on errors.
#pragma once

#include <string>
#include <vector>

#include "convnet/config/options.h"

namespace convnet {

class StandardStreams;

/// The words that may follow the name of a command, besides options.
enum class Operands { none, files, layer_types, topics, shells };

/// Says what happens if a command is started in several processes, as mpirun starts them.
enum class InProcesses {
  refused,  ///< it ends with an error, because each process would do the same work and write the same files
  first,    ///< only the first process runs it, because it only prints a text
  all       ///< the processes work together
};

/// A command: how it is run, and how help, the man page and completion describe it.
struct Command {
  const char* name;
  const char* arguments;  ///< what follows its name, for help
  const char* summary;    ///< one sentence
  Operands operands;
  const std::vector<OptionSpec>& (*options)();  ///< null if it has none
  const char* example;                          ///< first words of the examples in its help
  InProcesses processes;
  void (*run)(const std::vector<std::string>& args, StandardStreams& streams);
  /// It takes a command line of `convnet train`, and leaves options aside that it does not use.
  bool takes_training_line = false;
};
const std::vector<Command>& commands();
/// Returns the command of this name, or null.
const Command* find_command(const std::string& name);

/// The options that each command takes.
const std::vector<OptionSpec>& train_command_options();
const std::vector<OptionSpec>& plan_command_options();
const std::vector<OptionSpec>& place_command_options();
const std::vector<OptionSpec>& bench_command_options();
const std::vector<OptionSpec>& show_command_options();
const std::vector<OptionSpec>& predict_command_options();
const std::vector<OptionSpec>& export_command_options();
const std::vector<OptionSpec>& import_command_options();
const std::vector<OptionSpec>& make_data_command_options();
const std::vector<OptionSpec>& nets_command_options();

void train_command(const std::vector<std::string>& args, StandardStreams& streams);
void plan_command(const std::vector<std::string>& args);
void place_command(const std::vector<std::string>& args);
void bench_command(const std::vector<std::string>& args);
void show_command(const std::vector<std::string>& args);
void predict_command(const std::vector<std::string>& args);
void export_command(const std::vector<std::string>& args);
void import_command(const std::vector<std::string>& args);
void make_data_command(const std::vector<std::string>& args);
void nets_command(const std::vector<std::string>& args);
/// Prints the layer types (`convnet layers`), one of them with its keys (`convnet layers TYPE`), or the text
/// of docs/layers.md (`convnet layers --markdown`).
void layers_command(const std::vector<std::string>& args);

/// Prints the help of a word (a command, a layer type or a topic of topic_help()), an overview, or the man
/// page (`convnet help --man`).
void help_command(const std::vector<std::string>& args);
/// Prints the completion script of a shell.
void completion_command(const std::vector<std::string>& args);

/// Returns the text of docs/layers.md, made from the declarations.
std::string layers_markdown();

/// Returns the version, the commit, and what the program was built with.
std::string version_text();

}  // namespace convnet
