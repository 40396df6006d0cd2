#include "convnet/cli/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "convnet/base/file.h"
#include "convnet/base/file_format.h"
#include "convnet/base/names.h"
#include "convnet/base/printable.h"
#include "convnet/checkpoint/checkpoint.h"
#include "convnet/cli/command_line.h"
#include "convnet/net/data_set.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

bool is_tar(const std::string& path) {
  std::error_code none;
  return path.ends_with(".tar") && fs::is_regular_file(path, none);
}

bool holds_checkpoints(const std::string& path) {
  return is_folder(path) && newest_checkpoint(path).has_value();
}

/// Returns what a file is that is no data set and what to do about it; "" if that is not known.
std::string other_kind_of_file(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  const InputFile file(path);
  return other_format_text(format_bytes(file), "a folder or a tar of photos", "");
}

}  // namespace

std::vector<std::string> with_data_set(const std::vector<OptionSpec>& taken,
                                       const std::vector<std::string>& args) {
  const auto [named, options] = split_words(taken, args);
  if (named.size() != 1 || !(is_folder(named[0]) || is_tar(named[0]))) return args;
  const OptionTexts given = parse_command_line(taken, options);
  if (given.contains("data-path")) return args;
  // A run may have been saved among the photos that it is trained on.
  if (holds_checkpoints(named[0]) && (!given.contains("layer-def") || providers_that_read(named[0]).empty()))
    return args;
  std::vector<std::string> added = {"--data-path", named[0]};
  // A checkpoint has its provider, with the options of that.
  if (!given.contains("data-provider") && !given.contains("load-file"))
    added.insert(added.begin(), {"--data-provider", provider_of(named[0], given.contains("labels"))});
  std::vector<std::string> shown;
  for (const std::string& word : added) shown.push_back(shell_word(word));
  fmt::print(stderr, "{} is read as the data set: {}\n", shell_word(named[0]), join(shown, " "));
  added.insert(added.begin(), options.begin(), options.end());
  return added;
}

bool is_data_set(const std::string& word, const std::vector<std::string>& known) {
  const bool takes = std::find(known.begin(), known.end(), "--data-path") != known.end();
  return takes && (is_folder(word) || is_tar(word)) && !holds_checkpoints(word);
}

std::string argument_hint(const std::string& word, const std::vector<std::string>& known) {
  const std::string path = shell_word(word);
  const auto takes = [&](const char* option) {
    return std::find(known.begin(), known.end(), option) != known.end();
  };
  if (takes("--load-file") && (holds_checkpoints(word) || word.ends_with(".safetensors")))
    return "--load-file " + path + " goes on from its checkpoint" +
           (takes("--init-from") ? ", --init-from " + path + " starts a new run from its weights" : "");
  if (takes("--layer-def") && word.ends_with(".cfg"))
    return "--layer-def names the file of the layers, --layer-params that of their learning parameters";
  if (takes("--data-path") && (is_folder(word) || is_tar(word)))
    return "a data set is given with --data-path " + path +
           ", and it is one folder: the images to test with are in a folder val beside train";
  if (takes("--data-path")) {
    if (const std::string other = other_kind_of_file(word); !other.empty()) return "it " + other;
  }
  std::error_code error;
  if (takes("--data-path") && !word.starts_with('-') && !fs::exists(word, error)) {
    // A folder with a name like this one may be meant.
    std::vector<std::string> folders;
    const fs::path parent = fs::path(word).parent_path();
    constexpr std::size_t kMost = 1000;
    fs::directory_iterator at(parent.empty() ? "." : parent, error);
    for (const fs::directory_iterator end; !error && at != end && folders.size() < kMost; at.increment(error))
      if (is_folder(at->path().string())) folders.push_back((parent / at->path().filename()).string());
    const std::string close = did_you_mean(word, folders);
    return "there is no such file or folder" +
           (close.empty() ? "; photos are given as a folder or a tar, and --help lists the options" : close);
  }
  return "--help lists what there is";
}

}  // namespace convnet
