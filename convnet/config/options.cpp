#include "convnet/config/options.h"

#include <algorithm>
#include <stdexcept>

namespace convnet {

std::vector<std::string> assign_options(const std::vector<OptionSpec>& specs, const OptionTexts& texts,
                                        void* options) {
  std::vector<std::string> wrong;
  for (const OptionSpec& spec : specs) {
    const auto given = texts.find(spec.param.key);
    if (given == texts.end()) continue;
    const std::string text = given->second.empty() && spec.param.type == "boolean" ? "1" : given->second;
    if (std::string why = spec.param.assign(options, text, 1); !why.empty())
      wrong.push_back("--" + spec.param.key + " " + why);
  }
  return wrong;
}

std::vector<OptionSpec> select_options(const std::vector<OptionSpec>& specs,
                                       const std::vector<std::string>& keys) {
  std::vector<OptionSpec> selected;
  std::copy_if(specs.begin(), specs.end(), std::back_inserter(selected), [&](const OptionSpec& spec) {
    return std::find(keys.begin(), keys.end(), spec.param.key) != keys.end();
  });
  if (selected.size() != keys.size()) throw std::logic_error("no such option among " + join(keys));
  return selected;
}

std::vector<OptionSpec> options_without(const std::vector<OptionSpec>& specs,
                                        const std::vector<std::string>& keys) {
  std::vector<OptionSpec> left;
  std::copy_if(specs.begin(), specs.end(), std::back_inserter(left), [&](const OptionSpec& spec) {
    return std::find(keys.begin(), keys.end(), spec.param.key) == keys.end();
  });
  if (left.size() + keys.size() != specs.size()) throw std::logic_error("no such option among " + join(keys));
  return left;
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
