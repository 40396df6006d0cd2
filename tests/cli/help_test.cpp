// Help and its examples: each option has a place, and each example is a command line that is taken.
#include "convnet/cli/help.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "convnet/base/error.h"
#include "convnet/cli/command_line.h"
#include "convnet/config/schedule.h"
#include "layers/layer.h"
#include "tests/catch.h"
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
  CHECK(wrong.err ==
        "there is no command, layer type, key, option, neuron, schedule or net 'plann'; did you mean "
        "'plan'?\n");
  CHECK(run_program({"help", "plan", "place"}).err.find("usage: convnet help") != std::string::npos);
}

std::string help_on(const std::string& word) { return run_well({"help", word}).out; }

TEST_CASE("help describes options, keys, neurons, schedules, costs and nets by name") {
  CHECK(help_on("hosts").starts_with("--hosts HOSTS\n    hosts x devices of each"));
  CHECK(help_on("--hosts") == help_on("hosts"));
  CHECK_THAT(help_on("--hosts"), Catch::EndsWith("option of convnet train, plan, place, bench\n"));
  // A text for each meaning, with the commands or types that share it.
  CHECK_THAT(help_on("mini"), Catch::Contains("option of convnet train, plan, bench\n--mini IMAGES\n"));
  CHECK_THAT(help_on("epsw"), Catch::Contains("epsW=\n    learning rate of the weights") &&
                                  Catch::Contains("convnet help schedule") &&
                                  Catch::Contains("key of bnorm\n"));
  CHECK_THAT(help_on("partialSum"),
             Catch::Contains("sumWidth=\n") && Catch::Contains("also written partialSum"));
  CHECK_THAT(help_on("inputs"), Catch::Contains("key of every layer"));
  CHECK(help_on("relu").starts_with("neuron=relu\n    max(0,x)\n"));
  CHECK_THAT(help_on("repeat"),
             Catch::StartsWith("repeat=N or repeat=A-B\n    number of copies") && Catch::Contains("%(i)s"));
  CHECK_THAT(help_on("if"), Catch::StartsWith("if=0|1\n    whether the section is there"));
  CHECK_THAT(help_on("DEFAULT"), Catch::StartsWith("[DEFAULT]\n    section with values for all layers"));
  CHECK(help_on("default") == help_on("DEFAULT"));
  CHECK_THAT(help_on("template"), Catch::StartsWith("[template NAME(PARAMETERS)] ... [end]\n"));
  const std::string linear = help_on("linear");
  CHECK_THAT(linear,
             Catch::Contains("linear[base=b;tgtFactor=f]") && Catch::Contains("neuron=linear[a,b]\n"));
  CHECK(linear.find("cosine") == std::string::npos);
  for (const char* cost : {"cost.logreg", "cost.bce", "cost.sum2"})
    CHECK_THAT(help_on("cost"), Catch::Contains(std::string("\n  ") + cost + " "));
  CHECK_THAT(help_on("resnet18"),
             Catch::Contains("--layer-def resnet18\n") && Catch::Contains("11.7 M parameters"));
  CHECK(help_on("resnet18-imagenet.cfg") == help_on("resnet18"));
}

TEST_CASE("the list of layer types, a type's keys and layers.md lead to repeat and if") {
  CHECK_THAT(run_well({"layers"}).out,
             Catch::EndsWith("\nconvnet layers TYPE shows a type's keys. convnet help "
                             "repeat, if, template or DEFAULT tells how a section "
                             "stands for several layers.\n"));
  for (const LayerType& type : layer_types())
    CHECK_THAT(
        run_well({"layers", type.name}).out,
        Catch::Contains("\nkeys of every section: repeat, if (convnet help repeat, convnet help if)\n"));
  CHECK_THAT(layers_markdown(),
             Catch::Contains("\n## Keys of every section\n") &&
                 Catch::Contains("\n| `repeat` | one copy, without a number | integer or range | "
                                 "number of copies") &&
                 Catch::Contains("a \\| b \\| c in a value") &&
                 Catch::Contains("\n| `if` | 1 | boolean | whether the section is there"));
  for (const char* word : {"repeat", "if", "default", "template", "epsW", "relu", "cost"}) {
    const Outcome run = run_program({"layers", word});
    CHECK(run.code == 2);
    CHECK(run.err ==
          "'" + std::string(word) + "' is no layer type; convnet help " + word + " describes it\n");
  }
}

TEST_CASE("help of schedules has each of them, and each argument") {
  const std::string text = help_on("schedule");
  for (const ScheduleForm& form : schedule_forms()) {
    CHECK_THAT(text, Catch::Contains("\n  " + form.usage()));
    CHECK_THAT(help_on(form.name), Catch::Contains("\n  " + form.usage()));
  }
  for (const ScheduleArgument& argument : schedule_arguments())
    CHECK_THAT(text, Catch::Contains("\n  " + argument.name + "=" + argument.value + " "));
  CHECK_THAT(
      run_well({"layers", "conv"}).out,
      Catch::Contains("A schedule is a number, or written like cosine[base=0.1;warmup=5], with ';' between"));
  CHECK(run_well({"layers", "pool"}).out.find("schedule") == std::string::npos);
}

TEST_CASE("help knows each word that it suggests, within 96 columns") {
  for (const std::string& word : help_words()) {
    INFO(word);
    if (find_command(word) != nullptr || find_layer_type(word) != nullptr) continue;
    const std::string text = topic_help(word);
    CHECK_FALSE(text.empty());
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
      if (line.find(' ', indent) != std::string::npos) CHECK(line.size() <= 98);
    }
  }
}

TEST_CASE("suggestions of help come from all words, and unknown words are not listed") {
  const auto error = [](const std::string& word) {
    const Outcome run = run_program({"help", word});
    CHECK(run.code == 2);
    return run.err;
  };
  CHECK_THAT(error("--clip-nrm"), Catch::EndsWith("'--clip-nrm'; did you mean 'clip-norm'?\n"));
  CHECK_THAT(error("logreg"), Catch::EndsWith("did you mean 'cost.logreg'?\n"));
  CHECK_THAT(error("sum2"), Catch::EndsWith("did you mean 'cost.sum2'?\n"));
  CHECK_THAT(error("cosinee"), Catch::EndsWith("did you mean 'cosine'?\n"));
  CHECK_THAT(error("xyzzyx"),
             Catch::EndsWith("; convnet help lists the commands, convnet layers the layer types, "
                             "convnet nets the nets, and convnet train --help the options of "
                             "training\n"));
}

TEST_CASE("what other programs have commands for is said of test and resume") {
  const std::string test = "to test a trained net, type: convnet --load-file CHECKPOINT --test-only 1",
                    resume = "to resume a run, type: convnet --load-file CHECKPOINT";
  for (const char* word : {"test", "tests", "evaluate"}) CHECK(help_on(word).starts_with(test));
  CHECK(help_on("resume").starts_with(resume));
  CHECK_THAT(help_on("resume"), Catch::Contains("--save-file"));
  CHECK(run_program({"test", "--load-file", "run"}).err.starts_with("unknown command 'test'; " + test));
  CHECK(run_program({"resume", "run"}).err.starts_with("unknown command 'resume'; " + resume));
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
