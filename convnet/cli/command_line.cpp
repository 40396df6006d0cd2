#include "convnet/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "convnet/base/error.h"
#include "convnet/base/utf8.h"
#include "convnet/cli/arguments.h"
#include "convnet/cli/foreign_options.h"
#include "convnet/train/options.h"

namespace convnet {
namespace {

/// Writes out options that are given by the first letters of their names, at least three, as Python's getopt
/// does. Throws InputError for letters that begin several names and are none of them.
std::vector<std::string> with_whole_names(const std::vector<OptionSpec>& taken,
                                          std::vector<std::string> args) {
  constexpr std::size_t kFewestLetters = 3;
  for (std::string& arg : args) {
    if (arg == "--") break;
    const std::string given = arg.substr(0, arg.find('='));
    if (!given.starts_with("--") || given.size() < 2 + kFewestLetters) continue;
    std::vector<std::string> names;
    for (const OptionSpec& spec : taken) {
      if (("--" + spec.param.key).starts_with(given)) names.push_back("--" + spec.param.key);
    }
    if (names.empty() || std::find(names.begin(), names.end(), given) != names.end()) continue;
    if (names.size() > 1)
      throw InputError("option '" + given + "' may be any of " + join(names) +
                       "; more letters must say which");
    arg.replace(0, given.size(), names[0]);
  }
  return args;
}

/// Returns whether the word after the option args[i] is its value: it is not if it looks like an option.
bool value_follows(const std::vector<std::string>& args, std::size_t i) {
  return i + 1 < args.size() && !args[i + 1].starts_with("--");
}

/// Throws InputError for an option that needs a value and has none: CLI11 would take the next option for it.
void check_values(const std::vector<OptionSpec>& taken, const std::vector<std::string>& args) {
  for (const OptionSpec& spec : taken) {
    const std::string name = "--" + spec.param.key;
    for (std::size_t i = 0; i < args.size(); ++i) {
      const bool value = value_follows(args, i);
      const bool empty = args[i] == name + "=" || (args[i] == name && value && args[i + 1].empty());
      const bool missing = args[i] == name && !value && !may_be_bare(spec);
      if (missing || (empty && !spec.may_be_empty)) throw InputError(name + " needs a value");
    }
  }
}

bool is_truth_value(const std::string& word) {
  bool ignored = false;
  return parse_value(word, {}, ignored).empty();
}

/// Returns whether the word after `option` is its value: behind an option that may be bare, it may be a data
/// set. A wrong number is a value, too, and a wrong choice.
bool is_value(const std::vector<OptionSpec>& taken, const std::string& option, const std::string& word) {
  const auto spec = std::find_if(taken.begin(), taken.end(), [&](const OptionSpec& of_command) {
    return "--" + of_command.param.key == option && may_be_bare(of_command);
  });
  if (spec == taken.end() || is_truth_value(word)) return true;
  std::error_code ignored;
  const std::vector<std::string>& choices = spec->param.choices;
  if (std::find(choices.begin(), choices.end(), word) != choices.end()) return true;
  if (!choices.empty() && !std::filesystem::exists(word, ignored)) return true;
  return std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// Returns the name of a command that takes the option `name`; "" if there is none.
std::string command_with(const std::string& name) {
  if (!name.starts_with("--")) return "";
  for (const Command& command : commands()) {
    if (command.options == nullptr) continue;
    if (find_option(command.options(), name.substr(2)) != nullptr) return command.name;
  }
  return "";
}

/// Ends the message about the unknown option `name`; the command takes those in `known`.
std::string hint(const std::string& name, const std::vector<std::string>& known) {
  if (const std::string foreign = foreign_option_hint(name, known); !foreign.empty()) return "; " + foreign;
  const bool takes_net = std::find(known.begin(), known.end(), "--layer-def") != known.end();
  if (name == "--load-file" && !takes_net) return "; the checkpoint is the first word, without an option";
  if (const std::string command = command_with(name); !command.empty())
    return "; it is an option of 'convnet " + command + "'";
  return did_you_mean(name, known, "--help lists what there is");
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

/// Returns whether a word may be the value of the unknown option before it: a number, or no option.
bool may_be_value(const std::string& word) {
  return !is_option(word) || std::isdigit(static_cast<unsigned char>(word[1])) != 0;
}

}  // namespace

CommandWords split_words(const std::vector<OptionSpec>& taken, const std::vector<std::string>& given) {
  const std::vector<std::string> args = with_whole_names(taken, given);
  CommandWords words;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--") {
      words.named.insert(words.named.end(), args.begin() + static_cast<std::ptrdiff_t>(i) + 1, args.end());
      break;
    }
    if (!args[i].starts_with("--")) {
      words.named.push_back(args[i]);
      continue;
    }
    words.options.push_back(args[i]);
    if (args[i].find('=') != std::string::npos || !value_follows(args, i)) continue;
    if (is_value(taken, args[i], args[i + 1])) words.options.push_back(args[++i]);
  }
  return words;
}

OptionTexts parse_command_line(const std::vector<OptionSpec>& taken, const std::vector<std::string>& given) {
  const std::vector<std::string> args = with_whole_names(taken, given);
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::vector<std::pair<std::string, CLI::Option*>> options;  // by key
  std::vector<std::string> known;
  for (const OptionSpec& spec : taken) {
    known.push_back("--" + spec.param.key);
    CLI::Option* option = app.add_option("--" + spec.param.key);
    // CLI11's own way to join values splits them at commas first.
    option->multi_option_policy(spec.repeats ? CLI::MultiOptionPolicy::TakeAll
                                             : CLI::MultiOptionPolicy::TakeLast);
    if (may_be_bare(spec)) option->expected(0, 1);
    options.emplace_back(spec.param.key, option);
  }
  check_values(taken, args);
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());
    // CLI11 looks for the value of "--option=" behind it.
    for (const OptionSpec& spec : taken) {
      const std::string key = "--" + spec.param.key;
      for (std::size_t i = 0; i < reversed.size(); ++i) {
        if (reversed[i] != key + "=") continue;
        reversed[i] = key;
        reversed.insert(reversed.begin() + static_cast<std::ptrdiff_t>(i), "");
        ++i;
      }
    }
    app.parse(reversed);
  } catch (const CLI::ArgumentMismatch& e) {
    const std::string what = e.what();  // "--mini: 1 required TEXT missing"
    throw InputError(what.substr(0, what.find(':')) + " needs a value");
  } catch (const CLI::ParseError& e) {
    throw InputError(e.what());
  }
  std::vector<std::string> wrong;
  std::vector<std::string> extras = app.remaining();
  // Beside another mistake, the first data set stands where it belongs: with_data_set() takes it alone.
  const auto data = std::find_if(extras.begin(), extras.end(),
                                 [&](const std::string& word) { return is_data_set(word, known); });
  if (extras.size() > 1 && data != extras.end()) extras.erase(data);
  for (std::size_t i = 0; i < extras.size(); ++i) {
    const std::string name = extras[i].substr(0, extras[i].find('='));
    wrong.push_back(is_option(name)
                        ? "unknown option '" + name + "'" + hint(name, known)
                        : "unexpected argument '" + extras[i] + "'; " + argument_hint(extras[i], known));
    const bool takes_next = is_option(name) && name == extras[i] && i + 1 < extras.size();
    if (takes_next && may_be_value(extras[i + 1])) ++i;
  }
  if (!wrong.empty()) throw InputError(join(wrong, "\n"));
  OptionTexts texts;
  for (const auto& [key, option] : options) {
    if (option->count() == 0) continue;
    const std::string value = join(option->reduced_results(), ",");
    // Checkpoints and reports hold options as JSON.
    if (!is_utf8(value))
      throw InputError("--" + key +
                       ": the value has a byte that is not UTF-8; rename the file or "
                       "folder, or name it by a link");
    // Shells replace ~ where a word begins only. A folder of this name would be hard to find and to remove.
    if (std::error_code ignored; value.starts_with("~/") && !std::filesystem::exists("~", ignored))
      throw InputError(
          fmt::format("--{0}={1}: there is no folder named ~ here, and shells replace it only at "
                      "the beginning of a word; type --{0} {1} with a space",
                      key, value));
    texts[key] = value;
  }
  return texts;
}

std::vector<OptionSpec> unused_options(const Command& command) {
  std::vector<OptionSpec> unused;
  if (!command.takes_training_line) return unused;
  const std::vector<OptionSpec>& used = command.options();
  for (const OptionSpec& spec : train_options().specs()) {
    // A checkpoint names a net: a command that cannot read one must not plan another net instead.
    const bool names_net = spec.param.key == "load-file";
    if (find_option(used, spec.param.key) == nullptr && !names_net) unused.push_back(spec);
  }
  return unused;
}

TrainingLine parse_training_line(const std::string& name, const std::vector<std::string>& args) {
  const Command& command = *find_command(name);
  const std::vector<OptionSpec> unused = unused_options(command);
  std::vector<OptionSpec> taken = command.options();
  taken.insert(taken.end(), unused.begin(), unused.end());
  TrainingLine line;
  line.used = line.training = parse_command_line(taken, with_data_set(taken, args));
  for (const OptionSpec& spec : command.options()) {
    if (spec.group == OptionGroup::output) line.training.erase(spec.param.key);
  }
  parse_train_options(line.training);
  std::vector<std::string> left_aside;
  for (const OptionSpec& spec : unused) {
    if (line.used.erase(spec.param.key) > 0) left_aside.push_back("--" + spec.param.key);
  }
  if (!left_aside.empty()) fmt::print(stderr, "convnet {} does not use {}\n", name, join(left_aside));
  return line;
}

}  // namespace convnet
