// `convnet completion`: completion scripts of shells.
#include <fmt/format.h>

#include <map>

#include "convnet/base/error.h"
#include "convnet/cli/help.h"
#include "layers/layer.h"

namespace convnet {
namespace {

enum class Completes { words, files, folders, nothing };

/// How the value of an option is completed.
struct OptionValue {
  Completes kind = Completes::nothing;
  std::string words;  ///< separated by blanks
};

OptionValue value_of(const ParamSpec& spec) {
  if (spec.type == "choice") return {Completes::words, join(spec.choices, " ")};
  if (spec.type == "boolean") return {Completes::words, "0 1"};
  if (spec.unit == "file") return {Completes::files, ""};
  if (spec.unit == "folder") return {Completes::folders, ""};
  return {};
}

std::string command_names() {
  std::string names;
  for (const Command& command : commands()) names += (names.empty() ? "" : " ") + std::string(command.name);
  return names;
}

/// Words that may stand behind a command, besides its options and files.
std::string operand_words(const Command& command) {
  std::string types;
  for (const LayerType& type : layer_types()) types += " " + type.name;
  switch (command.operands) {
    case Operands::layer_types: return "--markdown" + types;
    case Operands::topics: return "--man " + command_names() + types + " schedule";
    case Operands::shells: return "bash zsh fish";
    case Operands::none:
    case Operands::files: break;
  }
  return "";
}

/// Returns text for single quotes, in which `special` characters get a backslash.
std::string quoted(const std::string& text, const std::string& special) {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += "'\\'";
    else if (special.find(c) != std::string::npos)
      out += '\\';
    out += c;
  }
  return "'" + out + "'";
}

std::string bash_command(const Command& command) {
  std::string text = fmt::format("    {})\n      words='--help {}", command.name, operand_words(command));
  if (command.options == nullptr) return text + "' ;;\n";
  std::map<std::pair<Completes, std::string>, std::string> options_by_value;
  for (const OptionSpec& spec : command.options()) {
    const OptionValue value = value_of(spec.param);
    std::string& options = options_by_value[{value.kind, value.words}];
    options += (options.empty() ? "--" : "|--") + spec.param.key;
    text += "--" + spec.param.key + " ";
  }
  text += "'\n      case $previous in\n";
  for (const auto& [value, options] : options_by_value) {
    const std::string action = value.first == Completes::files     ? "kind=file"
                               : value.first == Completes::folders ? "kind=directory"
                                                                   : "words='" + value.second + "'";
    // A boolean option may stand alone, so another option can follow it.
    const std::string more = value.second == "0 1" ? "[[ $current == -* ]] || " : "";
    text += fmt::format("        {}) {}{} ;;\n", options, more, action);
  }
  if (command.operands == Operands::files) text += "        *) [[ $current == -* ]] || kind=file ;;\n";
  return text + "      esac ;;\n";
}

std::string bash_script() {
  std::string text =
      "# Completion of convnet for bash, made by `convnet completion bash`.\n"
      "_convnet() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  local command=train kind= words=\n"
      "  # The shell makes three words of --option=value.\n"
      "  if [[ $current == = ]]; then\n"
      "    current=\n"
      "  elif [[ $previous == = ]] && ((COMP_CWORD > 1)); then\n"
      "    previous=${COMP_WORDS[COMP_CWORD-2]}\n"
      "  fi\n"
      "  if ((COMP_CWORD > 1)) && [[ ${COMP_WORDS[1]} != -* ]]; then\n"
      "    command=${COMP_WORDS[1]}\n"
      "  fi\n"
      "  case $command in\n";
  for (const Command& command : commands()) text += bash_command(command);
  return text +
         "  esac\n"
         "  ((COMP_CWORD > 1)) || words+=' --version " +
         command_names() +
         "'\n"
         "  # The first word may be a command, an option, or a folder to train on.\n"
         "  [[ -z $kind ]] || ((COMP_CWORD == 1)) || words=\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
         "  if [[ -n $kind ]]; then\n"
         "    compopt -o filenames 2>/dev/null\n"
         "    mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen -A \"$kind\" -- \"$current\")\n"
         "  fi\n"
         "}\n"
         "complete -F _convnet convnet\n";
}

std::string zsh_command(const Command& command) {
  std::string text = fmt::format("    {})\n      _arguments \\\n", command.name);
  if (command.options != nullptr) {
    for (const OptionSpec& spec : command.options()) {
      const OptionValue value = value_of(spec.param);
      const std::string action = value.kind == Completes::files     ? "_files"
                                 : value.kind == Completes::folders ? "_files -/"
                                 : value.kind == Completes::words   ? "(" + value.words + ")"
                                                                    : "";
      text += fmt::format("        {}:{} \\\n",
                          quoted("--" + spec.param.key + "=", "") + quoted("[", "") +
                              quoted(spec.param.doc, "[]:\\") + quoted("]", ""),
                          quoted(value_form(spec.param), ":") + ":" + quoted(action, ""));
    }
  }
  const std::string words = operand_words(command);
  if (command.operands == Operands::files)
    text += "        '*:file:_files' \\\n";
  else if (!words.empty())
    text += "        '1:topic:(" + words + ")' \\\n";
  return text + "        '--help[list the options]' ;;\n";
}

std::string zsh_script() {
  std::string text =
      "#compdef convnet\n# Completion of convnet for zsh, made by `convnet completion zsh`.\n"
      "local -a names\nnames=(\n";
  for (const Command& command : commands())
    text += "  " + quoted(std::string(command.name) + ":" + command.summary, "") + "\n";
  text +=
      ")\n"
      "local command=train\n"
      "if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then\n"
      "  _describe command names\n"
      "else\n"
      "  if [[ $words[2] != -* ]]; then\n"
      "    command=$words[2]\n"
      "    shift words\n"
      "    ((CURRENT--))\n"
      "  fi\n"
      "  case $command in\n";
  for (const Command& command : commands()) text += zsh_command(command);
  return text + "  esac\nfi\n";
}

std::string fish_command(const Command& command) {
  const bool train = command.name == std::string("train");
  std::string others;
  for (const Command& other : commands()) {
    if (other.name != std::string("train")) others += " " + std::string(other.name);
  }
  const std::string when = train ? "not __fish_seen_subcommand_from" + others
                                 : "__fish_seen_subcommand_from " + std::string(command.name);
  std::string text = fmt::format("complete -c convnet -f -n __fish_use_subcommand -a {} -d {}\n",
                                 command.name, quoted(command.summary, "\\"));
  const std::string start = "complete -c convnet -n " + quoted(when, "");
  if (const std::string words = operand_words(command); !words.empty())
    text += start + " -f -a " + quoted(words, "") + "\n";
  if (command.operands == Operands::files) text += start + " -F\n";
  if (command.options == nullptr) return text;
  for (const OptionSpec& spec : command.options()) {
    const OptionValue value = value_of(spec.param);
    const std::string action = value.kind == Completes::files     ? "-r -F"
                               : value.kind == Completes::folders ? "-x -a '(__fish_complete_directories)'"
                               : value.kind == Completes::words   ? "-x -a " + quoted(value.words, "")
                                                                  : "-x";
    text += fmt::format("{} -l {} {} -d {}\n", start, spec.param.key, action, quoted(spec.param.doc, "\\"));
  }
  return text;
}

std::string fish_script() {
  std::string text =
      "# Completion of convnet for fish, made by `convnet completion fish`.\ncomplete -c convnet -l help -d "
      "'list the options'\n";
  for (const Command& command : commands()) text += fish_command(command);
  return text;
}

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  if (shell == "fish") return fish_script();
  throw InputError("there is no completion for '" + shell + "'; the shells are bash, zsh and fish");
}

void completion_command(const std::vector<std::string>& args) {
  if (args.size() != 1) throw InputError("usage: convnet completion bash|zsh|fish");
  fmt::print("{}", completion_script(args[0]));
}

}  // namespace convnet
