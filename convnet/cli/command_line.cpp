#include "convnet/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>

#include "convnet/base/error.h"

namespace convnet {
namespace {

/// Throws InputError for an option that needs a value and has none: CLI11 would take the next option for it.
void check_values(const std::vector<OptionSpec>& taken, const std::vector<std::string>& args) {
  for (const OptionSpec& spec : taken) {
    const std::string name = "--" + spec.param.key;
    for (std::size_t i = 0; i < args.size(); ++i) {
      const bool value_follows = i + 1 < args.size() && !args[i + 1].starts_with("--");
      const bool empty = args[i] == name + "=" || (args[i] == name && value_follows && args[i + 1].empty());
      const bool missing = args[i] == name && !value_follows && spec.param.type != "boolean";
      if (missing || (empty && !spec.may_be_empty)) throw InputError(name + " needs a value");
    }
  }
}

}  // namespace

OptionTexts parse_command_line(const std::vector<OptionSpec>& taken, const std::vector<std::string>& args) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::deque<std::pair<std::string, std::string>> values;  // stable addresses: CLI11 writes into them
  std::vector<std::pair<CLI::Option*, const std::pair<std::string, std::string>*>> options;
  std::vector<std::string> known;
  for (const OptionSpec& spec : taken) {
    known.push_back("--" + spec.param.key);
    values.emplace_back(spec.param.key, "");
    CLI::Option* option = app.add_option("--" + spec.param.key, values.back().second);
    option->take_last();
    if (spec.param.type == "boolean") option->expected(0, 1);  // a bare flag means 1
    options.emplace_back(option, &values.back());
  }
  check_values(taken, args);
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());
    // CLI11 looks for the value of "--option=" behind it.
    for (const OptionSpec& spec : taken) {
      const auto bare = std::find(reversed.begin(), reversed.end(), "--" + spec.param.key + "=");
      if (bare == reversed.end()) continue;
      bare->pop_back();
      reversed.insert(bare, "");
    }
    app.parse(reversed);
  } catch (const CLI::ArgumentMismatch& e) {
    const std::string what = e.what();  // "--mini: 1 required TEXT missing"
    throw InputError(what.substr(0, what.find(':')) + " needs a value");
  } catch (const CLI::ParseError& e) {
    throw InputError(e.what());
  }
  std::vector<std::string> wrong;
  for (const std::string& extra : app.remaining()) {
    const std::string name = extra.substr(0, extra.find('='));
    const std::string close = nearest(name, known);
    wrong.push_back((name.starts_with("-") ? "unknown option '" : "unexpected argument '") + name + "'" +
                    (close.empty() ? "; --help lists what there is" : "; did you mean '" + close + "'?"));
  }
  if (!wrong.empty()) throw InputError(join(wrong, "\n"));
  OptionTexts texts;
  for (const auto& [option, value] : options) {
    if (option->count() > 0) texts[value->first] = value->second;
  }
  return texts;
}

}  // namespace convnet
