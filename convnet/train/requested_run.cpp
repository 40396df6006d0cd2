#include "convnet/train/requested_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/notes.h"
#include "convnet/base/output_file.h"
#include "convnet/net/auto_minibatch.h"
#include "convnet/net/auto_placement.h"
#include "convnet/net/convert.h"
#include "convnet/net/data_set.h"
#include "convnet/net/devices.h"
#include "convnet/net/find_net.h"
#include "convnet/net/fit_labels.h"
#include "convnet/net/input_data.h"
#include "convnet/net/net_weights.h"
#include "convnet/net/outputs.h"
#include "convnet/plan/timeline.h"
#include "convnet/train/class_weights.h"
#include "convnet/train/stored_options.h"
#include "convnet/train/test_outputs.h"
#include "convnet/train/watched_cost.h"
#include "providers/image.h"
#include "providers/image_parts.h"
#include "providers/npy.h"

namespace convnet {
namespace {

/// Throws InputError unless both definitions are the same logical net: a resumed run keeps the definition of
/// its checkpoint. `source` says where the given one comes from.
void check_same_net(const IniFile& saved, const IniFile& given, const std::string& source,
                    const std::string& checkpoint) {
  const std::vector<std::string> a = logical_signature(saved);
  const std::vector<std::string> b = logical_signature(given);
  if (a == b) return;
  std::string first = "one has more layers than the other";
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] == b[i]) continue;
    first = "it has  " + a[i] + "\n  but " + source + " has  " + b[i];
    break;
  }
  throw InputError(source + ": is another net than that of checkpoint " + checkpoint + ":\n  " + first +
                   "\n  A resumed run keeps its net; --init-from starts a new one from the weights that fit");
}

/// Reads the checkpoint that the options of this invocation name; nullopt for a new run.
std::optional<Checkpoint> checkpoint_of(const TrainOptions& given) {
  const CheckpointOptions& named = given.checkpoints;
  if (!named.load_file.empty()) return read_run_checkpoint(named.load_file);
  if (!named.save_file.empty()) {
    if (newest_checkpoint(named.save_file)) return read_run_checkpoint(named.save_file);
    if (const std::string instead = instead_of_checkpoints(named.save_file); !instead.empty())
      throw InputError(named.save_file + ": holds no checkpoint of this program to go on from" + instead);
  }
  if (given.tests.only_tests())
    throw InputError(given.tests.test_option() +
                     " tests a trained net: --load-file must name its checkpoint");
  return std::nullopt;
}

/// Reads that checkpoint in every process of a run. The first process finds it, and the others read the same
/// file.
std::optional<Checkpoint> checkpoint_of(const TrainOptions& given, Processes* processes) {
  if (processes == nullptr) return checkpoint_of(given);
  std::optional<Checkpoint> checkpoint;
  if (processes->rank() == 0) checkpoint = checkpoint_of(given);
  const std::string file = processes->exchange(checkpoint ? checkpoint->file : "")[0];
  if (processes->rank() > 0 && !file.empty()) checkpoint = read_run_checkpoint(file);
  return checkpoint;
}

/// Removes the options of the checkpoint that only provider image has, if this invocation names another
/// provider.
void drop_options_of_provider(OptionTexts& texts, const OptionTexts& given, const Checkpoint& checkpoint) {
  const auto then = checkpoint.options.find("data-provider");
  if (then == checkpoint.options.end() || texts.at("data-provider") == then->second) return;
  for (const OptionOfImage& option : options_of_image()) {
    if (!given.contains(option.name)) texts.erase(option.name);
  }
}

/// Gives a resumed run the minibatches that it has had, if its command line says --mini auto.
void keep_minibatch(RequestedRun& run) {
  const auto given = run.given.find("mini");
  if (given == run.given.end() || given->second != "auto") return;
  const auto then = run.checkpoint->options.find("mini");
  const std::string mini =
      then == run.checkpoint->options.end() ? std::to_string(StepOptions().mini) : then->second;
  run.texts["mini"] = mini;
  add_note(run.notes, "--mini auto: " + mini + ", as the run has begun");
}

/// Returns a note about the options that a run whose --save-file exists takes from its checkpoint; "" for
/// none.
std::string inherited_text(const RequestedRun& run) {
  std::string options;
  for (const auto& [key, text] : run.texts)
    if (!run.given.contains(key) && !text.empty()) options += " --" + key + " " + text;
  return options.empty() ? "" : "Not given, and so as in " + run.checkpoint->file + ":" + options;
}

/// Throws InputError for an option of this invocation that a run with `options` does not use. Those that a
/// command line of cuda-convnet2 may contain are noted instead.
void check_used(const OptionTexts& given, const TrainOptions& options, std::string& notes) {
  check_model_used(given, options.devices);
  check_distinct_gpus(given, options.devices);
  check_label_kind_used(given, options.data);
  // None of these are options of cuda-convnet2, whose command lines stay as they are.
  const std::vector<std::pair<std::string, std::string>> of_training = {
      {"profile", "is a timeline of training"},
      {"tensorboard", "draws the curves of training"},
      {"keep-best", "keeps a checkpoint of training"},
      {"save-freq", "is for the checkpoints of training"},
      {"patience", "ends training"},
      {"plateau", "lowers the learning rates of training"},
      {"time-limit", "ends training"}};
  std::vector<std::string> unused;
  for (const auto& [option, use] : of_training) {
    if (!given.contains(option) || options.trains()) continue;
    // --find-rate is added to the line of a run.
    if (!options.find_rate)
      throw InputError("--" + option + " " + use + ", and " + options.instead() +
                       " does not train; leave it out");
    unused.push_back("--" + option);
  }
  std::vector<std::string> instead;
  if (options.check_grads) instead.emplace_back("--check-grads");
  if (options.find_rate) instead.emplace_back("--find-rate");
  if (options.tests.only_tests()) instead.push_back(options.tests.test_option());
  if (instead.size() > 1) throw InputError(instead[0] + " and " + instead[1] + " exclude each other");
  if (options.tests.only_tests()) {
    for (const char* const option :
         {"epochs", "test-freq", "keep", "force-save", "max-test-err", "mixup", "cutmix", "random-erasing",
          "trivial-augment", "color-jitter", "random-resized-crop", "flip"}) {
      if (given.contains(option)) unused.push_back(std::string("--") + option);
    }
    if (given.contains("save-file") && given.contains("load-file")) unused.emplace_back("--save-file");
    if (given.contains("train-range"))
      add_note(notes, fmt::format("--train-range is not used: {} tests the batches of --test-range",
                                  options.instead()));
  }
  if (!unused.empty())
    add_note(notes, fmt::format("{} {} not used: {} does not train", join(unused),
                                unused.size() == 1 ? "is" : "are", options.instead()));
  if (given.contains("save-path") && given.contains("save-file"))
    add_note(notes, "--save-path is not used: --save-file names the run's folder itself");
  if (given.contains("data-path") && options.data.provider.starts_with("dummy-"))
    add_note(notes, "--data-path is not used: data provider " + options.data.provider + " reads no files");
}

/// Throws InputError for a file or folder that the run could not write: an error now, not after the work.
void check_outputs_of(const RequestedRun& run) {
  const TrainOptions& options = run.options;
  std::vector<std::string> inputs = layer_files(options.files);
  inputs.push_back(options.devices.model);
  if (run.checkpoint)
    inputs.push_back(run.checkpoint->file);
  else if (!options.checkpoints.init_from.empty())
    inputs.push_back(find_checkpoint(options.checkpoints.init_from));
  const TestOptions& tests = options.tests;
  check_outputs({{"--profile",
                  options.report.profile,
                  "the timeline is to be written to",
                  ChromeTrace::begins,
                  nullptr,
                  {options.checkpoints.save_file}},
                 {"--confusion",
                  tests.confusion,
                  "the confusion matrix is to be written to",
                  Confusion::begins,
                  nullptr,
                  {tests.test_out, tests.feature_path}}},
                inputs);
  if (!tests.write_features.empty())
    check_folder_writable(tests.feature_path, "features are to be written to");
  if (!tests.test_out.empty()) check_folder_writable(tests.test_out, "probabilities are to be written to");
  if (run.given.contains("tensorboard") && !options.tensorboard.empty())
    check_folder_writable(options.tensorboard, "event files are to be written to");
  const std::vector<std::pair<std::string, std::string>> written = {
      {"--test-out", tests.test_out},
      {"--feature-path", tests.write_features.empty() ? "" : tests.feature_path}};
  for (const auto& [option, path] : written) {
    if (options.data.provider == "npy") refuse_among_arrays(option, path, options.data.path);
    if (names_classes_by_folders(options.data)) refuse_among_classes(option, path, options.data.path);
  }
  if (names_classes_by_folders(options.data)) {
    refuse_among_classes("--save-path", options.checkpoints.save_path, options.data.path);
    refuse_among_classes("--tensorboard", options.tensorboard, options.data.path);
    refuse_among_classes("--cache-images", options.data.cache_images, options.data.path);
  }
}

/// Returns whether a file of the net, with the keys that --set gave the checkpoint's run, has another text
/// than the checkpoint has. A file that comes with the program is fitted to labels as the checkpoint's is.
bool has_changed(IniFile file, CfgFile which, const Checkpoint& checkpoint) {
  Diagnostics ignored;
  const bool is_definition = which == CfgFile::definition;
  if (is_installed(file.path)) {
    const IniFile saved = parse_ini("", checkpoint.definition_text, ignored);
    if (is_definition)
      fit_definition(file, label_fit(saved));
    else
      fit_parameters(file, saved);
  }
  const std::string& other_text = is_definition ? checkpoint.parameters_text : checkpoint.definition_text;
  IniFile other = parse_ini("", other_text, ignored);
  apply_settings(net_file_options().parse(checkpoint.options).set, is_definition ? file : other,
                 is_definition ? other : file, ignored);
  if (!is_definition) keep_class_weights(file, checkpoint);
  return file.text != (is_definition ? checkpoint.definition_text : checkpoint.parameters_text);
}

/// Returns a note if --set '' ends settings that the checkpoint's definition has, which stay; "" if not.
std::string note_of_kept_settings(const Checkpoint& checkpoint, const IniFile& definition) {
  std::vector<Setting> kept;
  for (const Setting& s : net_file_options().parse(checkpoint.options).set) {
    const auto has_it = [&](const IniSection& section) {
      const IniValue* value = section.find(s.key);
      return value != nullptr && value->text == s.text &&
             s.layer == (value->from_default ? kDefaultSection : section.name);
    };
    if (std::any_of(definition.sections.begin(), definition.sections.end(), has_it)) kept.push_back(s);
  }
  return kept.empty() ? "" : "--set '' leaves the net as it is, with " + settings_text(kept);
}

/// Returns the parameter file of the run that a checkpoint goes on with. An installed net may be in another
/// place now, but a file of the user's that has gone is not replaced by one.
std::string parameter_file_of(const Checkpoint& checkpoint, const NetFileOptions& options) {
  const std::string& before = checkpoint.parameters_path;
  const std::filesystem::path as_typed = std::filesystem::path(options.layer_path) / options.layer_params;
  const bool was_installed = std::filesystem::path(before).is_absolute() && before != as_typed.string();
  std::error_code error;
  return was_installed && !std::filesystem::is_regular_file(before, error) ? parameter_file(options) : before;
}

/// Reads the parameter file as it is now. If it does not exist and no option on the command line names it,
/// the checkpoint's parameters are used. Adds a line to `notes` that says which are used.
IniFile parameters_now(const Checkpoint& checkpoint, const NetFileOptions& options, bool given,
                       const IniFile& definition, std::string& notes, Diagnostics& diagnostics) {
  const std::string file = given ? parameter_file(options) : parameter_file_of(checkpoint, options);
  std::error_code error;
  if (!given && !std::filesystem::is_regular_file(file, error)) {  // a checkpoint may name a pipe
    if (options.set.empty() && !net_file_options().parse(checkpoint.options).set.empty())
      throw InputError("--set '' gives keys the values of the parameter file again, but " + file +
                       " is not there; name it with --layer-params");
    add_note(notes, file + " is not there: the learning parameters are those of " + checkpoint.file);
    return parse_ini(checkpoint.parameters_path, checkpoint.parameters_text, diagnostics);
  }
  NetFileOptions found = options;
  if (!given) found.layer_path.clear();
  if (!given) found.layer_params = file;
  IniFile now = read_parameters(found, definition, diagnostics);
  const bool changed = has_changed(now, CfgFile::parameters, checkpoint);
  add_note(notes, "The learning parameters are those of " + file +
                      (changed ? ", which has changed since " + checkpoint.file : ""));
  return now;
}

/// Returns a line of `begin` and the checkpoint's name, which says that its text is used, and whether the
/// file differs from it.
std::string note_of_unused(const std::string& file, CfgFile which, const std::string& begin,
                           const Checkpoint& checkpoint) {
  Diagnostics ignored;
  std::error_code error;
  const bool differs = std::filesystem::is_regular_file(file, error) &&
                       has_changed(read_ini(file, ignored), which, checkpoint);
  return begin + checkpoint.file + (differs ? "; " + file + " differs from it and is not used" : "");
}

/// Throws InputError if the images or classes of a data set are others than those that the checkpoint's run
/// had; warns if classes have other names.
void check_fits(const Provider& provider, const Checkpoint& checkpoint) {
  for (const auto& check : {other_numbers, renumbered_class}) {
    if (const std::string wrong = check(checkpoint.matrices, provider.matrices()); !wrong.empty())
      throw InputError(checkpoint.file + ": the data set does not fit: " + wrong);
  }
  if (const std::string wrong = other_outputs(checkpoint, provider.matrices()); !wrong.empty())
    throw InputError(checkpoint.file + ": the data set does not fit: " + wrong);
  print_notes({renamed_class(checkpoint.matrices, provider.matrices())});
}

/// Opens the data set by `open`. If its folder, of which a checkpoint has told, is not there, the error says
/// so.
void explain_moved_data(const RequestedRun& run, const std::function<void()>& open) {
  try {
    open();
  } catch (const InputError& e) {
    if (!run.checkpoint) throw;
    std::string moved;
    for (const auto& [option, path] :
         {std::pair<std::string, std::string>{"data-path", run.options.data.path},
          {"labels", run.options.data.labels}})
      if (!run.given.contains(option)) moved += moved_data_text(*run.checkpoint, path, "--" + option);
    throw InputError(e.what() + moved);
  }
}

/// Chooses --pixel-std 1 for a new run of a net that comes with convnet, whose initial weights expect it:
/// without it, pixels are about fifty times as large as those that the first layer was trained with. Returns
/// a note; "" if nothing was chosen.
std::string choose_pixel_std(RequestedRun& run) {
  const std::string& file = run.options.checkpoints.init_from;
  DataOptions& data = run.options.data;
  if (file.empty() || data.provider != "image" || run.texts.contains("pixel-std") ||
      !is_ready_net(run.options.files))
    return "";
  const PixelScale scale = pixel_scale(file);
  if (scale != PixelScale::divided && scale != PixelScale::usual) return "";
  run.texts["pixel-std"] = "1";
  data.pixel_std = true;
  return fmt::format("Not given, and chosen for the weights of {}: --pixel-std 1", file);
}

}  // namespace

void read_options(RequestedRun& run, const OptionTexts& given, Processes* processes) {
  run.given = given;
  const TrainOptions first = parse_train_options(given);
  run.checkpoint = checkpoint_of(first, processes);
  if (run.checkpoint) run.texts = taken_options(*run.checkpoint);
  for (const auto& [key, text] : given) {
    if (key == "train-range" && first.tests.only_tests()) continue;  // has no use
    run.texts[key] = key == kSetOption ? joined_settings(run.texts[key], text) : text;
  }
  if (run.checkpoint) {
    drop_options_of_provider(run.texts, given, *run.checkpoint);
    keep_minibatch(run);
  } else {
    add_parameters(run.texts);
    add_note(run.notes, add_data_options(run.texts));
  }
  run.options = parse_train_options(run.texts);
  if (!run.checkpoint) add_note(run.notes, choose_pixel_std(run));
  check_used(given, run.options, run.notes);
  check_auto_minibatch(run.options.step, run.options.devices);
  if (run.checkpoint && first.checkpoints.load_file.empty()) add_note(run.notes, inherited_text(run));
  if (run.checkpoint) check_same_images(run.options.data, *run.checkpoint);
  // A run that named no ranges may have held images out, and a command that names some still does.
  if (run.checkpoint && !names_ranges(run.checkpoint->options)) run.options.data.hold_out = true;
  if (run.checkpoint && !first.checkpoints.init_from.empty()) {
    if (!first.checkpoints.load_file.empty())
      throw InputError("--init-from starts a new run, and --load-file goes on with one; use one of them");
    add_note(run.notes,
             "--init-from is not used: this run has begun, and goes on from " + run.checkpoint->file);
  }
  if (processes == nullptr || processes->rank() == 0) check_outputs_of(run);
}

bool names_classes_by_folders(const DataOptions& data) {
  return data.provider == "image" && data.labels.empty();
}

bool needs_data_first(const RequestedRun& run) { return !run.checkpoint && is_ready_net(run.options.files); }

std::optional<IniFile> read_files(RequestedRun& run, ParametersNotGiven otherwise, Diagnostics& diagnostics) {
  const NetFileOptions& options = run.options.files;
  if (!run.checkpoint) {
    run.files = read_net_files(
        options, run.provider ? label_fit(*run.provider, run.options.data.train_range) : LabelFit(),
        diagnostics);
    return std::nullopt;
  }
  // Training takes the learning parameters on disk now; the definition is the checkpoint's, which was checked
  // when it was written, whatever became of the file.
  Diagnostics checked_before;
  IniFile saved = parse_ini(run.checkpoint->definition_path, run.checkpoint->definition_text, checked_before);
  IniFile unconverted = saved;
  convert_definition(saved, options, diagnostics);
  const bool converted = saved.text != unconverted.text;
  const bool definition_given = run.given.contains("layer-def");
  add_note(run.notes, definition_given ? "The net is that of " + definition_file(options)
                                       : note_of_unused(run.checkpoint->definition_path, CfgFile::definition,
                                                        "The net is that of ", *run.checkpoint));
  run.files.definition = definition_given ? read_definition(options, label_fit(saved), diagnostics) : saved;
  const bool parameters_given = run.given.contains("layer-params") || run.given.contains("layer-path");
  const bool ends_settings = run.given.contains(kSetOption) && options.set.empty();
  if (ends_settings && !definition_given) add_note(run.notes, note_of_kept_settings(*run.checkpoint, saved));
  // --set '' gives keys the values of the file again.
  const bool reads_file = parameters_given || ends_settings;
  if (otherwise == ParametersNotGiven::as_in_checkpoint && !reads_file) {
    add_note(run.notes, note_of_unused(run.checkpoint->parameters_path, CfgFile::parameters,
                                       "The learning parameters are those of ", *run.checkpoint));
    run.files.parameters =
        parse_ini(run.checkpoint->parameters_path, run.checkpoint->parameters_text, diagnostics);
  } else {
    run.files.parameters = parameters_now(*run.checkpoint, options, parameters_given, run.files.definition,
                                          run.notes, diagnostics);
  }
  // Without one of the files, every further error would only follow from that.
  if (run.files.definition.text.empty() || run.files.parameters.text.empty()) diagnostics.throw_if_errors();
  apply_settings(options.set, run.files.definition, run.files.parameters, diagnostics);
  keep_class_weights(run.files.parameters, *run.checkpoint);
  if (definition_given || !options.set.empty()) {
    diagnostics.throw_if_errors();
    const std::string set = options.set.empty() ? "" : "--set " + settings_text(options.set);
    const std::string with_set = run.files.definition.path + (set.empty() ? "" : " with " + set);
    check_same_net(saved, run.files.definition, definition_given ? with_set : set, run.checkpoint->file);
  }
  if (!converted) return std::nullopt;
  return unconverted;
}

std::string choose_ranges(RequestedRun& run) {
  std::string note;
  const bool may_be_of_tests =
      run.options.tests.only_tests() && (run.given.contains("data-path") || run.given.contains("labels"));
  explain_moved_data(run, [&] { note = choose_ranges(run.options.data, run.texts, may_be_of_tests); });
  return note;
}

void open_data(RequestedRun& run) {
  const DataOptions& data = run.options.data;
  explain_moved_data(run, [&] {
    run.provider = open_provider(data, run.options.step.seed);
    if (!run.options.tests.only_tests()) run.provider->check_range(data.train_range, "--train-range");
    run.provider->check_range(data.test_range, "--test-range");
    if (run.checkpoint) check_fits(*run.provider, *run.checkpoint);
  });
  // Its checkpoints would name these ranges, and batches of all images are others.
  const std::optional<BatchSplit> split = run.provider->split();
  if (run.checkpoint && run.options.trains() && names_ranges(run.given) && split && split->held_out)
    throw InputError(
        "--train-range and --test-range: this run holds a tenth of its images out of training; leave both "
        "options out to go on with that, or start a new run with --init-from " +
        shell_word(run.checkpoint->file));
}

void check_layer_names(const RequestedRun& run, const Graph& graph) {
  find_watched_cost(run.options.checkpoints.keep_best, graph);
  const TestOptions& tests = run.options.tests;
  if (!tests.only_tests()) return;
  if (!tests.write_features.empty()) nodes_with_features(graph, tests.write_features);
  tested_classifiers(graph, run.provider->matrices(), tests);
}

void add_note(std::string& notes, const std::string& line) {
  if (!line.empty()) notes += (notes.empty() ? "" : "\n") + line;
}

}  // namespace convnet
