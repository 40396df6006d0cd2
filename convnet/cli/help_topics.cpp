// The words that `convnet help` describes besides commands and layer types.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "convnet/base/printable.h"
#include "convnet/cli/help.h"
#include "convnet/config/schedule.h"
#include "convnet/config/text.h"
#include "convnet/net/find_net.h"
#include "convnet/net/ready_nets.h"
#include "convnet/plan/print.h"
#include "layers/layer.h"

namespace convnet {
namespace {

constexpr std::size_t kMeaningColumn = 28, kTextColumn = 4;

/// Something that other programs have a command for, and options do here.
struct TaskHelp {
  std::vector<std::string> words;  ///< the first one names it
  const char* text;
};

const std::array<TaskHelp, 2>& task_helps() {
  static const std::array<TaskHelp, 2> all = {{
      {{"test", "tests", "testing", "eval", "evaluate", "evaluation", "validate", "validation"},
       "to test a trained net, type: convnet --load-file CHECKPOINT --test-only 1 (--test-range and "
       "--data-path choose other images)"},
      {{"resume", "continue", "restart"},
       "to resume a run, type: convnet --load-file CHECKPOINT, with --epochs N to go on to epoch N; a "
       "command line with --save-file FOLDER resumes from the newest checkpoint there, too"},
  }};
  return all;
}

std::string paragraph(const std::string& text) {
  return std::string(kTextColumn, ' ') + wrapped(text, kTextColumn, kTextColumn) + "\n";
}

/// Names, each with a text that it has in common with others.
class CommonTexts {
 public:
  void add(const std::string& text, const std::string& name) {
    const auto found =
        std::find_if(texts_.begin(), texts_.end(), [&](const auto& t) { return t.first == text; });
    (found == texts_.end() ? texts_.emplace_back(text, std::vector<std::string>{}) : *found)
        .second.push_back(name);
  }
  /// Returns each text once, with its names, in the order in which they were added.
  const std::vector<std::pair<std::string, std::vector<std::string>>>& texts() const { return texts_; }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> texts_;
};

std::string option_help(const std::string& key) {
  CommonTexts meanings;
  for (const Command& command : commands()) {
    if (command.options == nullptr) continue;
    if (const OptionSpec* spec = find_option(command.options(), key))
      meanings.add("--" + key + " " + value_form(spec->param) + "\n" + paragraph(option_meaning(spec->param)),
                   command.name);
  }
  std::string text;
  for (const auto& [meaning, names] : meanings.texts())
    text += meaning + paragraph("option of convnet " + join(names));
  return text;
}

bool is_key(const ParamSpec& spec, const std::string& word) {
  const auto same = [&](const std::string& name) { return lower(name) == lower(word); };
  return same(spec.key) || std::any_of(spec.aliases.begin(), spec.aliases.end(), same);
}

/// Returns the meaning of a key of layers, with its values and default.
std::string key_meaning(const ParamSpec& spec) {
  std::string text = spec.key + "=\n" + paragraph(spec.doc) + paragraph("values: " + describe_values(spec));
  if (!spec.aliases.empty()) text += paragraph("also written " + join(spec.aliases));
  text += paragraph(!spec.fallback ? "required"
                                   : "default: " + (spec.fallback->empty() ? "none" : *spec.fallback));
  if (spec.type.starts_with("schedule"))
    text += paragraph("a schedule is a number, or " + std::string(kScheduleSyntax));
  return text;
}

std::string key_help(const std::string& word) {
  CommonTexts meanings;
  for (const ParamSpec& spec : common_params())
    if (is_key(spec, word)) meanings.add(key_meaning(spec), "every layer");
  for (const LayerType& type : layer_types())
    for (const ParamSpec& spec : type.params)
      if (is_key(spec, word)) meanings.add(key_meaning(spec), type.name);
  std::string text;
  for (const auto& [meaning, types] : meanings.texts()) text += meaning + paragraph("key of " + join(types));
  return text;
}

std::string syntax_help(const std::string& word) {
  for (const SyntaxHelp& syntax : syntax_helps()) {
    if (lower(syntax.word) != lower(word)) continue;
    std::string text = syntax.form + "\n" + paragraph(syntax.doc);
    if (!syntax.fallback.empty()) text += paragraph("default: " + syntax.fallback);
    return text + (syntax.belongs.empty() ? "" : paragraph(syntax.belongs));
  }
  return "";
}

std::string family_help(const std::string& word) {
  std::string text;
  for (const LayerType& type : layer_types())
    if (type.name.starts_with(word + ".")) text += help_entry(type.name, type.doc, kMeaningColumn);
  return text.empty() ? "" : "Layer types (convnet help TYPE describes one):\n" + text;
}

std::string neuron_help(const std::string& word) {
  for (const NeuronDoc& neuron : neuron_docs())
    if (neuron.name == word)
      return "neuron=" + neuron.usage + "\n" + paragraph(neuron.formula) +
             paragraph("of a layer of weights, or of a layer of type neuron (convnet help neuron)");
  return "";
}

/// Returns "warmup=w, unit=epochs".
std::string written(const std::vector<std::string>& arguments) {
  std::vector<std::string> all;
  for (const std::string& name : arguments) all.push_back(name + "=" + schedule_argument(name).value);
  return join(all);
}

/// Describes schedules, and all arguments that one of them has.
std::string schedules_text(const std::vector<ScheduleForm>& forms) {
  std::string text, arguments;
  for (const ScheduleForm& form : forms)
    text += help_entry(form.usage(),
                       form.rate + (form.optional.empty() ? "" : "; may also have " + written(form.optional)),
                       kMeaningColumn);
  for (const ScheduleArgument& argument : schedule_arguments()) {
    const bool used = std::any_of(forms.begin(), forms.end(), [&](const ScheduleForm& form) {
      const std::vector<std::string> all = form.arguments();
      return std::find(all.begin(), all.end(), argument.name) != all.end();
    });
    if (used) arguments += help_entry(argument.name + "=" + argument.value, argument.doc, kMeaningColumn);
  }
  return text + "\nArguments, in any order, with ';' between them:\n" + arguments;
}

std::string schedule_help(const std::string& word) {
  if (word == "schedule" || word == "schedules")
    return wrapped(
               "A learning-rate schedule (of the keys epsW and epsB of a parameter file) is a number, or one "
               "of these, where p grows from 0 to 1 over the run, with each batch of the data set:",
               0, 0) +
           "\n" + schedules_text(schedule_forms()) + "\nExample: epsW=cosine[base=0.1;warmup=5]\n";
  for (const ScheduleForm& form : schedule_forms())
    if (lower(form.name) == lower(word))
      return "A learning-rate schedule, where p grows from 0 to 1 over the run, with each batch of the data "
             "set:\n" +
             schedules_text({form}) + "\nconvnet help schedule describes all of them.\n";
  return "";
}

std::string net_help(const std::string& word) {
  for (const std::string& file : installed_net_files(CfgFile::definition)) {
    const std::string name = short_net_name(file);
    if (lower(name) != lower(word) && lower(file) != lower(word)) continue;
    std::string text = "--layer-def " + name + "\n";
    if (const auto net = ready_net(installed_nets(), file)) {
      text +=
          paragraph(net->header.summary) +
          paragraph(fmt::format("for images of {} and {} classes, where it has {} parameters and {} "
                                "multiply-adds; other data may be used, too",
                                to_string(net->header.image), net->header.classes,
                                scaled(static_cast<double>(net->parameters)), scaled(net->multiply_adds)));
      if (!net->header.measured.empty()) text += paragraph("measured: " + net->header.measured);
    }
    return text + paragraph("net that comes with convnet (convnet nets lists all): " +
                            shell_word(installed_nets() + "/" + file));
  }
  return "";
}

}  // namespace

const std::vector<SyntaxHelp>& syntax_helps() {
  static const std::string any_section = "key of every section of both .cfg files but [DEFAULT]";
  static const std::vector<SyntaxHelp> all = {
      {"repeat", "repeat=N or repeat=A-B",
       "number of copies of the section, or the range of their numbers; %(i)s is the number of a copy, "
       "counted from 0 or from A, and a | b | c in a value gives each copy its own",
       "integer or range", "one copy, without a number", any_section},
      {"if", "if=0|1",
       "whether the section is there: 0, no, false, off and an empty value leave it out; if=%(project)s "
       "asks a parameter of a template",
       "boolean", "1", any_section},
      {"DEFAULT", "[DEFAULT]",
       "section with values for all layers: a layer takes each key that its type has and that its own "
       "section lacks; written in capitals, in either .cfg file"},
      {"template", "[template NAME(PARAMETERS)] ... [end]",
       "sections that stand for layers which repeat; a section with type=NAME stands for all of them. "
       "%(name)s is the name of that section, %(inputs)s what it reads, and %(PARAMETER)s a value that it "
       "gives",
       "", "",
       "keys of its sections: those of their layers, repeat and if (convnet help repeat, convnet help if)"},
  };
  return all;
}

std::string task_help(const std::string& word) {
  for (const TaskHelp& task : task_helps())
    if (std::find(task.words.begin(), task.words.end(), word) != task.words.end()) return task.text;
  return "";
}

std::string topic_help(const std::string& word) {
  if (word.starts_with("--")) return option_help(word.substr(2));
  std::string text = task_help(word);
  if (!text.empty()) text = wrapped(text, 0, 0) + "\n";
  for (const auto& part : {schedule_help(word), family_help(word), option_help(word), key_help(word),
                           syntax_help(word), neuron_help(word), net_help(word)})
    if (!part.empty()) text += (text.empty() ? "" : "\n") + part;
  return text;
}

std::vector<std::string> help_words() {
  std::vector<std::string> words;
  const auto add = [&](const std::string& word) {
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  };
  for (const Command& command : commands()) add(command.name);
  for (const LayerType& type : layer_types()) {
    add(type.name);
    if (const std::size_t dot = type.name.find('.'); dot != std::string::npos) add(type.name.substr(0, dot));
  }
  add("schedule");
  for (const TaskHelp& task : task_helps()) add(task.words[0]);
  for (const SyntaxHelp& syntax : syntax_helps()) add(syntax.word);
  for (const ScheduleForm& form : schedule_forms()) add(form.name);
  for (const NeuronDoc& neuron : neuron_docs()) add(neuron.name);
  for (const ParamSpec& spec : common_params()) add(spec.key);
  for (const LayerType& type : layer_types())
    for (const ParamSpec& spec : type.params) add(spec.key);
  for (const Command& command : commands()) {
    if (command.options == nullptr) continue;
    for (const OptionSpec& spec : command.options()) add(spec.param.key);
  }
  for (const std::string& file : installed_net_files(CfgFile::definition)) add(short_net_name(file));
  return words;
}

}  // namespace convnet
