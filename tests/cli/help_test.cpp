// Help and its examples: each option has a place, and each example is a command line that is taken.
#include "convnet/cli/help.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "convnet/base/error.h"
#include "convnet/cli/command_line.h"
#include "tests/cli/run_program.h"

namespace convnet {
namespace {

std::string help_of(const std::string& name) { return command_help(*find_command(name)); }

TEST_CASE("help lists each option once, under a heading with two examples") {
  for (const Command& command : commands()) {
    if (command.options == nullptr) continue;
    std::size_t listed = 0;
    for (const HelpSection& section : help_sections(command)) {
      INFO(command.name << ": " << section.title);
      listed += section.options.size();
      CHECK(section.examples.size() == 2);
    }
    CHECK(listed == command.options().size());
  }
}

TEST_CASE("no command has two options of one name") {
  for (const Command& command : commands()) {
    if (command.options == nullptr) continue;
    std::set<std::string> names;
    for (const OptionSpec& spec : command.options()) {
      INFO(command.name << ": --" << spec.param.key);
      CHECK(names.insert(spec.param.key).second);
    }
  }
}

TEST_CASE("examples of help are command lines that the program takes") {
  for (const Command& command : commands()) {
    for (const HelpSection& section : help_sections(command)) {
      for (const std::string& example : section.examples) {
        INFO(example);
        std::istringstream words(example.substr(std::string(command.example).size()));
        const std::vector<std::string> args{std::istream_iterator<std::string>(words), {}};
        const OptionTexts texts = parse_command_line(command.options(), args);
        CHECK_FALSE(texts.empty());
        for (const OptionSpec& spec : command.options()) {
          const auto text = texts.find(spec.param.key);
          if (text == texts.end() || spec.param.type != "choice") continue;
          CHECK(std::count(spec.param.choices.begin(), spec.param.choices.end(), text->second) == 1);
        }
      }
    }
  }
}

std::string replaced(std::string text, const std::string& old, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += by.size())
    text.replace(at, old.size(), by);
  return text;
}

TEST_CASE("examples of help give the options that a command requires") {
  for (const Command& command : commands()) {
    const std::string usage = command.arguments;
    std::istringstream words(usage.substr(0, usage.find('[')));
    for (const HelpSection& section : help_sections(command)) {
      for (const std::string& example : section.examples) {
        const std::string line = replaced(example, "$NET", std::string(kExampleNet));
        for (std::string word; words >> word;) {
          INFO(line << ": " << word);
          if (word.starts_with("--")) CHECK(line.find(word + " ") != std::string::npos);
        }
        words.clear();
        words.seekg(0);
      }
    }
  }
}

TEST_CASE("examples of plan can be planned") {
  for (const HelpSection& section : help_sections(*find_command("plan"))) {
    for (const std::string& example : section.examples) {
      const std::string line = replaced(example, "$NET", std::string(kExampleNet));
      std::istringstream words(line.substr(std::string("convnet ").size()));
      const Outcome run = run_program({std::istream_iterator<std::string>(words), {}});
      INFO(example << "\n" << run.err);
      CHECK(run.code == 0);
    }
  }
}

TEST_CASE("help keeps to 96 columns and shows the form of values") {
  for (const Command& command : commands()) {
    std::istringstream lines(command_help(command));
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      CHECK(line.size() <= 98);  // bytes; a character of UTF-8 may have three
    }
  }
  const std::string plan = help_of("plan");
  for (const char* part : {"Usage: convnet plan ", "\nNet and data:\n", "\nDevices:\n", "  --layer-def FILE",
                           "  --device auto|cpu|cuda", "  --mini IMAGES", "  --json 0|1", "  Examples:\n"})
    CHECK(plan.find(part) != std::string::npos);
  CHECK(plan.find("\n  --epochs") == std::string::npos);
}

TEST_CASE("help describes commands and layer types by name") {
  CHECK(run_well({"help"}).out == usage_text());
  CHECK(run_well({"help", "plan"}).out == help_of("plan"));
  CHECK(run_well({"plan", "--help"}).out == help_of("plan"));
  CHECK(run_well({"--help"}).out == usage_text() + "\n" + help_of("train"));
  CHECK(run_well({"help", "pool"}).out == run_well({"layers", "pool"}).out);
  const Outcome wrong = run_program({"help", "plann"});
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find("there is no command or layer type 'plann'; did you mean 'plan'?") !=
        std::string::npos);
  CHECK(run_program({"help", "plan", "place"}).err.find("usage: convnet help") != std::string::npos);
}

TEST_CASE("completion names the shells that it is for") {
  for (const char* shell : {"bash", "zsh", "fish"})
    CHECK(run_well({"completion", shell}).out.find("convnet completion " + std::string(shell)) !=
          std::string::npos);
  const Outcome wrong = run_program({"completion", "tcsh"});
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find("there is no completion for 'tcsh'; the shells are bash, zsh and fish") !=
        std::string::npos);
  CHECK(run_program({"completion"}).err.find("usage: convnet completion bash|zsh|fish") != std::string::npos);
}

}  // namespace
}  // namespace convnet
