// Help, the man page and shell completion, made from the tables of commands and options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convnet/cli/commands.h"

namespace convnet {

/// Options of a command under one heading, with two examples of how to use them.
struct HelpSection {
  std::string title;
  std::vector<const OptionSpec*> options;
  std::vector<std::string> examples;  ///< command lines; $NET stands for kExampleNet
};

/// The value of $NET in examples.
inline constexpr std::string_view kExampleNet =
    "--layer-def lenet.cfg --layer-params lenet-params.cfg --data-provider dummy-1x28x28-10";
/// The meaning of the exit codes, for help and the man page.
inline constexpr std::string_view kExitCodes =
    "0: done. 1: the run failed. 2: the input is wrong. 3: the machine cannot do it.";

/// Returns the options of a command in sections, in the order of OptionGroup. Empty sections are left out.
std::vector<HelpSection> help_sections(const Command& command);
/// Returns the form of an option's value: "FILE", "cpu|cuda", "0|1".
std::string value_form(const ParamSpec& spec);
/// Returns the sentence of an option, with its default.
std::string option_meaning(const ParamSpec& spec);

/// Returns what a command does with options that only training uses; "" if it does not accept them.
std::string left_aside_text(const Command& command);

/// Breaks text, which begins in column `column`, at blanks; further lines begin in column `indent`.
std::string wrapped(std::string_view text, std::size_t column, std::size_t indent);
/// Returns lines with a name, and from column `indent` on its meaning.
std::string help_entry(const std::string& name, const std::string& meaning, std::size_t indent);

/// A word of the syntax of .cfg files that is no key of a layer.
struct SyntaxHelp {
  std::string word;
  std::string form;           ///< how it is written
  std::string doc;            ///< one or two sentences
  std::string value = {};     ///< the kind of its value, for keys of sections; else ""
  std::string fallback = {};  ///< its default, for keys of sections
  std::string belongs = {};   ///< the sections or keys that go with it, or ""
};
const std::vector<SyntaxHelp>& syntax_helps();

/// Returns all that `convnet help WORD` says of a word that is no command or layer type: options (also with
/// their dashes), keys of layers, neurons, schedules, nets, groups of layer types ("cost") and tasks. ""
/// if it is none of these.
std::string topic_help(const std::string& word);
/// Returns the options for what other programs have a command for, as "test" or "resume"; "" for other words.
std::string task_help(const std::string& word);
/// Returns the words that `convnet help` knows, for suggestions.
std::vector<std::string> help_words();

/// Returns an overview of all commands.
std::string usage_text();
/// Returns the help of a command, wrapped to 96 columns.
std::string command_help(const Command& command);
/// Returns the man page convnet(1) in groff.
std::string man_page();
/// Returns the completion script of a shell: "bash", "zsh" or "fish". Throws InputError for others.
std::string completion_script(const std::string& shell);

}  // namespace convnet
