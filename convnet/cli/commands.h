// The commands of the program. Each takes the arguments after its name, and throws on errors.
#pragma once

#include <string>
#include <vector>

#include "convnet/config/options.h"

namespace convnet {

class StandardStreams;

/// The options that each command takes.
const std::vector<OptionSpec>& train_command_options();
const std::vector<OptionSpec>& plan_command_options();
const std::vector<OptionSpec>& place_command_options();
const std::vector<OptionSpec>& bench_command_options();
const std::vector<OptionSpec>& show_command_options();
const std::vector<OptionSpec>& predict_command_options();
const std::vector<OptionSpec>& make_data_command_options();

void train_command(const std::vector<std::string>& args, StandardStreams& streams);
void plan_command(const std::vector<std::string>& args);
void place_command(const std::vector<std::string>& args);
void bench_command(const std::vector<std::string>& args);
void show_command(const std::vector<std::string>& args);
void predict_command(const std::vector<std::string>& args);
void make_data_command(const std::vector<std::string>& args);
/// Prints the layer types (`convnet layers`), one of them with its keys (`convnet layers TYPE`), or the text
/// of docs/layers.md (`convnet layers --markdown`).
void layers_command(const std::vector<std::string>& args);

/// Returns the text of docs/layers.md, made from the declarations.
std::string layers_markdown();

/// Returns the version, the commit, and what the program was built with.
std::string version_text();

}  // namespace convnet
