// Options of the command line, declared like the parameters of layers: one table for each struct of options
// drives parsing, error messages, help, and which options a checkpoint stores.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convnet/base/error.h"
#include "convnet/config/params.h"

namespace convnet {

/// Texts of options by name, without dashes. An option that is absent keeps its default.
using OptionTexts = std::map<std::string, std::string>;

/// The headings under which help lists options, in their order.
enum class OptionGroup { data, training, devices, output, original };

/// One option of the command line: "--mini".
struct OptionSpec {
  ParamSpec param;                        ///< its key is without the dashes
  bool saved = true;                      ///< stored in checkpoints: part of the run, not of one invocation
  bool may_be_empty = false;              ///< an empty value is allowed; it overrides the checkpoint's value
  bool repeats = false;                   ///< may be given several times, which is a list with commas
  std::optional<OptionGroup> group = {};  ///< nullopt: the group of the table's struct
  /// Names a file or folder that is written. A checkpoint, which may be a stranger's, does not decide that:
  /// its value counts for nothing, even if the option is saved.
  bool output = false;
};

/// Declares an option whose value is the field `field` of Options.
template <class Options, class T>
OptionSpec option(std::string key, T Options::*field, ParamInfo info) {
  return {param(std::move(key), field, std::move(info))};
}

/// Returns whether an option without a value means 1.
bool may_be_bare(const OptionSpec& spec);

/// Declares an option of one invocation, which checkpoints do not store.
template <class Options, class T>
OptionSpec unsaved_option(std::string key, T Options::*field, ParamInfo info) {
  return {param(std::move(key), field, std::move(info)), false};
}

/// Declares an option whose value is one of `choices`.
template <class Options, class T>
OptionSpec choice_option(std::string key, T Options::*field, std::vector<std::pair<std::string, T>> choices,
                         ParamInfo info) {
  return {param_choice(std::move(key), field, std::move(choices), std::move(info))};
}

/// Declares an option that `parse` reads; like parse_value(), it returns what is wrong, or "".
template <class Options, class T, class Parse>
OptionSpec parsed_option(std::string key, T Options::*field, Parse parse, ParamInfo info) {
  ParamSpec spec = base_spec(std::move(key), "text", std::move(info));
  spec.assign = [field, parse, rules = spec](void* options, const std::string& text,
                                             std::size_t) -> std::string {
    return parse(text, rules, static_cast<Options*>(options)->*field);
  };
  return {std::move(spec)};
}

/// Declares that help lists an option under the heading for users of cuda-convnet2, "the original".
inline OptionSpec of_original(OptionSpec spec) {
  spec.group = OptionGroup::original;
  return spec;
}

/// Declares that an option names a file or folder that is written.
inline OptionSpec of_output(OptionSpec spec) {
  spec.output = true;
  return spec;
}

/// Parses the texts of the options in `specs` into the struct at `options`. Returns what is wrong, one line
/// for each option ("--mini expects …").
std::vector<std::string> assign_options(const std::vector<OptionSpec>& specs, const OptionTexts& texts,
                                        void* options);
/// Returns the options with these keys, in the order of `specs`. Throws std::logic_error for a key that is
/// not among them.
std::vector<OptionSpec> select_options(const std::vector<OptionSpec>& specs,
                                       const std::vector<std::string>& keys);
/// Returns the option with this key; null if it is not among them.
const OptionSpec* find_option(const std::vector<OptionSpec>& specs, const std::string& key);
/// Returns the options without those with these keys, in the order of `specs`. Throws std::logic_error for a
/// key that is not among them.
std::vector<OptionSpec> options_without(const std::vector<OptionSpec>& specs,
                                        const std::vector<std::string>& keys);

/// The declared options of a struct: its own fields, and those of its members that are groups of options. A
/// struct with options of its own says where help lists them: `static constexpr OptionGroup group`.
template <class Options>
class OptionTable {
 public:
  OptionTable() = default;
  explicit OptionTable(std::vector<OptionSpec> specs) { add(std::move(specs)); }

  /// Adds options that are fields of Options itself.
  OptionTable& add(std::vector<OptionSpec> specs) {
    for (OptionSpec& spec : specs) {
      if (!spec.group) spec.group = Options::group;
      specs_.push_back(std::move(spec));
    }
    return *this;
  }
  /// Adds the options of the group `member`.
  template <class Group>
  OptionTable& add(Group Options::*member, const OptionTable<Group>& group) {
    for (OptionSpec spec : group.specs()) {
      spec.param.assign = [member, assign = spec.param.assign](void* options, const std::string& text,
                                                               std::size_t inputs) {
        return assign(&(static_cast<Options*>(options)->*member), text, inputs);
      };
      specs_.push_back(std::move(spec));
    }
    return *this;
  }
  /// Returns a table with only these options, for commands that take a part of a group.
  OptionTable only(const std::vector<std::string>& keys) const {
    OptionTable table;
    table.specs_ = select_options(specs_, keys);
    return table;
  }
  /// Returns a table without these options.
  OptionTable without(const std::vector<std::string>& keys) const {
    OptionTable table;
    table.specs_ = options_without(specs_, keys);
    return table;
  }

  const std::vector<OptionSpec>& specs() const { return specs_; }
  /// Parses the texts of the table's options and ignores others. Throws InputError with everything that is
  /// wrong, one line for each option.
  Options parse(const OptionTexts& texts) const {
    Options options;
    const std::vector<std::string> wrong = assign_options(specs_, texts, &options);
    if (!wrong.empty()) throw InputError(join(wrong, "\n"));
    return options;
  }

 private:
  std::vector<OptionSpec> specs_;
};

/// Throws InputError listing those of `keys` that `texts` lacks; `hint` is the end of the message.
void require_options(const OptionTexts& texts, const std::vector<std::string>& keys, const std::string& hint);

}  // namespace convnet
