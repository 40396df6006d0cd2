// The program's commands. Each takes its arguments after the command's name and throws on errors.
#pragma once

#include <string>
#include <vector>

namespace convnet {

class StandardStreams;

void train_command(const std::vector<std::string>& args, const StandardStreams& streams);
void plan_command(const std::vector<std::string>& args);
void bench_command(const std::vector<std::string>& args);
void show_command(const std::vector<std::string>& args);
void make_data_command(const std::vector<std::string>& args);
/// `convnet layers`: the layer types; `convnet layers TYPE`: one, with its keys; `convnet layers --markdown`:
/// docs/layers.md.
void layers_command(const std::vector<std::string>& args);

/// The text of docs/layers.md, from the declarations.
std::string layers_markdown();

/// Version, commit and what the program was built with.
std::string version_text();

}  // namespace convnet
