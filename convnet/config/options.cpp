#include "convnet/config/options.h"

#include <algorithm>
#include <stdexcept>

namespace convnet {

bool may_be_bare(const OptionSpec& spec) {
  const std::vector<std::string>& choices = spec.param.choices;
  return spec.param.type == "boolean" || std::find(choices.begin(), choices.end(), "1") != choices.end();
}

std::vector<std::string> assign_options(const std::vector<OptionSpec>& specs, const OptionTexts& texts,
                                        void* options) {
  std::vector<std::string> wrong;
  for (const OptionSpec& spec : specs) {
    const auto given = texts.find(spec.param.key);
    if (given == texts.end()) continue;
    const std::string text = given->second.empty() && may_be_bare(spec) ? "1" : given->second;
    if (std::string why = spec.param.assign(options, text, 1); !why.empty())
      wrong.push_back("--" + spec.param.key + " " + why);
  }
  return wrong;
}

namespace {

/// Returns those of the options whose keys are among `keys`, or those whose keys are not. Throws
/// std::logic_error if a key has no option.
std::vector<OptionSpec> options_by_key(const std::vector<OptionSpec>& specs,
                                       const std::vector<std::string>& keys, bool among) {
  std::vector<OptionSpec> found;
  std::copy_if(specs.begin(), specs.end(), std::back_inserter(found), [&](const OptionSpec& spec) {
    return (std::find(keys.begin(), keys.end(), spec.param.key) != keys.end()) == among;
  });
  if (found.size() != (among ? keys.size() : specs.size() - keys.size()))
    throw std::logic_error("no such option among " + join(keys));
  return found;
}

}  // namespace

const OptionSpec* find_option(const std::vector<OptionSpec>& specs, const std::string& key) {
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const OptionSpec& spec) { return spec.param.key == key; });
  return found == specs.end() ? nullptr : &*found;
}

std::vector<OptionSpec> select_options(const std::vector<OptionSpec>& specs,
                                       const std::vector<std::string>& keys) {
  return options_by_key(specs, keys, true);
}

std::vector<OptionSpec> options_without(const std::vector<OptionSpec>& specs,
                                        const std::vector<std::string>& keys) {
  return options_by_key(specs, keys, false);
}

void require_options(const OptionTexts& texts, const std::vector<std::string>& keys,
                     const std::string& hint) {
  std::vector<std::string> missing;
  for (const std::string& key : keys) {
    if (!texts.contains(key)) missing.push_back("--" + key);
  }
  if (!missing.empty()) throw InputError("missing: " + join(missing) + hint);
}

}  // namespace convnet
