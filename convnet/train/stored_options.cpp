#include "convnet/train/stored_options.h"

#include <fmt/format.h>

#include <vector>

#include "convnet/base/error.h"
#include "convnet/base/names.h"
#include "convnet/base/printable.h"
#include "convnet/train/options.h"

namespace convnet {
namespace {

/// Returns what is wrong with the names of the options, and with a NUL in a value, which no command line has.
std::vector<std::string> wrong_options(const OptionTexts& options) {
  std::vector<std::string> wrong;
  for (const auto& [key, text] : options) {
    const OptionSpec* spec = find_option(train_options().specs(), key);
    if (spec == nullptr || !spec->saved)
      wrong.push_back(fmt::format("{} is none that a run stores", excerpt(key)));
    else if (text.find('\0') != std::string::npos)
      wrong.push_back(fmt::format("--{} has a NUL", key));
    else if (key == "mini" && text == "auto")
      wrong.emplace_back("--mini is the number that a run has chosen, not auto");
  }
  return wrong;
}

}  // namespace

void check_options(const Checkpoint& checkpoint) {
  std::vector<std::string> wrong = wrong_options(checkpoint.options);
  try {
    if (wrong.empty()) parse_train_options(checkpoint.options);
  } catch (const InputError& e) {
    wrong.emplace_back(e.what());
  }
  if (!wrong.empty())
    throw InputError(checkpoint.file + ": its options are wrong:\n  " + join(wrong, "\n  "));
}

Checkpoint read_run_checkpoint(const std::string& file_or_folder) {
  Checkpoint checkpoint = read_checkpoint(file_or_folder);
  check_options(checkpoint);
  return checkpoint;
}

OptionTexts taken_options(const Checkpoint& checkpoint) {
  OptionTexts taken = checkpoint.options;
  for (const OptionSpec& spec : train_options().specs()) {
    if (spec.output) taken.erase(spec.param.key);
  }
  return taken;
}

}  // namespace convnet
