// `convnet help` and --help.
#include "convnet/cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "convnet/base/error.h"
#include "convnet/base/utf8.h"
#include "convnet/cli/command_line.h"
#include "layers/layer.h"

namespace convnet {
namespace {

constexpr std::size_t kHelpWidth = 96;

struct GroupHelp {
  OptionGroup group;
  const char* title;
  /// Options of examples. A command shows the first two whose options it takes.
  std::vector<const char*> examples;
};

const std::array<GroupHelp, 5>& group_helps() {
  static const std::array<GroupHelp, 5> all = {{
      {OptionGroup::data,
       "Net and data",
       {"--data-provider mnist --data-path fashion-mnist --train-range 1-6 --test-range 7 --shuffle 1",
        "--data-provider dummy-1x32x32-10 --train-range 1 --test-range 2 --inner-size 24",
        "--data-provider dummy-1x32x32-10 --inner-size 24", "--data-provider dummy-1x28x28-10 --pixel-std 1",
        "--data-path fashion-mnist --test-range 7", "--data-provider mnist --data-path fashion-mnist",
        "--size 128 --batch-size 1024", "--skip-bad-images 1"}},
      {OptionGroup::training,
       "Training",
       {"--epochs 10 --test-freq 6", "--keep 5 --keep-best logprob", "--mini 64 --seed 2",
        "--mini 256 --conserve-mem 1", "--mini 32", "--mini 512", "--seed 2", "--seed 3"}},
      {OptionGroup::devices,
       "Devices",
       {"--gpu 0,1 --parallel data", "--device cpu --threads 2", "--gpu 0 --precision fp32", "--threads 1",
        "--threads 2"}},
      {OptionGroup::output,
       "Output",
       {"--load-file run --test-only 1 --confusion confusion.csv", "--verbose 1 --profile steps.json",
        "--show-filters conv1", "--show-cost logprob --out cost.png", "--json 1 --top 3", "--csv 1",
        "--out placed.cfg --out-params placed-params.cfg", "--steps 20 --json 1", "--json 1", "--steps 50",
        "--verbose 1", "--layer-def net.cfg --checkpoint net", "--output logits --pixels unit",
        "--output fc10", "--output conv1,probs", "--json"}},
      {OptionGroup::original,
       "Kept from cuda-convnet2",
       {"--test-one 0 --max-test-err 0.3", "--load-file run --write-features fc1 --feature-path features",
        "--conv-to-local conv2", "--unshare-weights conv2", "--layer-path .",
        "--layer-path /usr/share/convnet/configs", "--multiview-test 1", "--multiview-test 1 --top 3"}},
  }};
  return all;
}

/// Whether a command takes all options of an example.
bool takes(const Command& command, const std::string& example) {
  const std::vector<OptionSpec>& specs = command.options();
  for (std::size_t at = example.find("--"); at != std::string::npos; at = example.find("--", at + 2)) {
    const std::string key = example.substr(at + 2, example.find(' ', at) - at - 2);
    if (find_option(specs, key) == nullptr) return false;
  }
  return true;
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t column, std::size_t indent) {
  std::string lines;
  bool first = true;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!first && column + 1 + character_count(word) > kHelpWidth) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += character_count(word);
    first = false;
  }
  return lines;
}

std::string help_entry(const std::string& name, const std::string& meaning, std::size_t indent) {
  std::string text = "  " + name;
  text += text.size() + 2 > indent ? "\n" + std::string(indent, ' ') : std::string(indent - text.size(), ' ');
  return text + wrapped(meaning, indent, indent) + "\n";
}

std::vector<HelpSection> help_sections(const Command& command) {
  std::vector<HelpSection> sections;
  if (command.options == nullptr) return sections;
  for (const GroupHelp& help : group_helps()) {
    HelpSection section{help.title, {}, {}};
    for (const OptionSpec& spec : command.options()) {
      if (spec.group == help.group) section.options.push_back(&spec);
    }
    if (section.options.empty()) continue;
    for (const std::string example : help.examples) {
      if (section.examples.size() < 2 && takes(command, example))
        section.examples.push_back(std::string(command.example) + " " + example);
    }
    sections.push_back(std::move(section));
  }
  return sections;
}

std::string value_form(const ParamSpec& spec) {
  if (spec.type == "choice") return join(spec.choices, "|");
  if (spec.type == "boolean") return "0|1";
  if (spec.unit.empty()) return std::isinf(spec.max) ? "TEXT" : "NUMBER";
  std::string form = spec.unit;
  for (char& c : form) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return form;
}

std::string option_meaning(const ParamSpec& spec) {
  return spec.doc + (spec.fallback && !spec.fallback->empty() ? "; default " + *spec.fallback : "");
}

std::string left_aside_text(const Command& command) {
  const std::vector<OptionSpec> unused = unused_options(command);
  if (unused.empty()) return "";
  std::vector<std::string> names;
  for (const OptionSpec& spec : unused) names.push_back("--" + spec.param.key);
  return fmt::format(
      "A command line of training can be given to {} as it is: the options that only training uses are "
      "checked and left aside, which a note on stderr says. They are {}.",
      command.name, join(names));
}

std::string usage_text() {
  std::string text =
      "convnet trains convolutional networks that are described by two .cfg files.\n\nCommands:\n";
  for (const Command& command : commands())
    text += help_entry(wrapped(fmt::format("convnet {} {}", command.name, command.arguments), 2, 12),
                       command.summary, 8);
  text += "\n" +
          wrapped(
              "The word train may be left out. `convnet COMMAND --help` lists the options of a command; "
              "`convnet help WORD` describes a layer type, one of its keys, a neuron, an option, a net or "
              "`schedule`; `convnet --version` says what was built.",
              0, 0) +
          "\n";
  return text + "Exit codes: " + std::string(kExitCodes) + "\n";
}

std::string command_help(const Command& command) {
  std::string text =
      "Usage: " + wrapped(fmt::format("convnet {} {}", command.name, command.arguments), 7, 7) + "\n" +
      wrapped(command.summary, 0, 0) + "\n";
  const std::vector<HelpSection> sections = help_sections(command);
  for (const HelpSection& section : sections) {
    text += "\n" + section.title + ":\n";
    for (const OptionSpec* spec : section.options)
      text +=
          help_entry("--" + spec->param.key + " " + value_form(spec->param), option_meaning(spec->param), 28);
    text += "  Examples:\n";
    for (const std::string& example : section.examples) text += "    " + wrapped(example, 4, 8) + "\n";
  }
  if (const std::string left_aside = left_aside_text(command); !left_aside.empty())
    text += "\n" + wrapped(left_aside, 0, 0) + "\n";
  if (std::string(command.example).find("$NET") != std::string::npos)
    text += "\n" + wrapped("In the examples $NET stands for " + std::string(kExampleNet) + ".", 0, 0) + "\n";
  return text + "\nExit codes: " + std::string(kExitCodes) + "\n";
}

void help_command(const std::vector<std::string>& args) {
  if (args.size() > 1) throw InputError("usage: convnet help [WORD | --man]");
  if (args.empty()) {
    fmt::print("{}", usage_text());
  } else if (args[0] == "--man") {
    fmt::print("{}", man_page());
  } else if (const Command* command = find_command(args[0])) {
    fmt::print("{}", command_help(*command));
  } else if (find_layer_type(args[0]) != nullptr) {
    layers_command(args);
  } else if (const std::string text = topic_help(args[0]); !text.empty()) {
    fmt::print("{}", text);
  } else {
    const std::string word = args[0].substr(std::min(args[0].find_first_not_of('-'), args[0].size()));
    const std::string type = nearest_layer_type(word, 0);  // for "logreg"
    throw InputError(fmt::format(
        "there is no command, layer type, key, option, neuron, schedule or net '{}'{}", args[0],
        did_you_mean(
            type.empty() ? word : type, help_words(),
            "convnet help lists the commands, convnet layers the layer types, convnet nets the nets, and "
            "convnet train --help the options of training",
            typing_edits(word))));
  }
}

}  // namespace convnet
