#include "convnet/train/load_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <mutex>

#include "convnet/base/error.h"
#include "convnet/base/output_file.h"
#include "convnet/net/auto_placement.h"
#include "convnet/net/convert.h"
#include "convnet/net/data_set.h"
#include "convnet/net/devices.h"
#include "convnet/net/input_data.h"
#include "convnet/net/net_files.h"
#include "convnet/net/outputs.h"
#include "convnet/place/placed_files.h"
#include "convnet/train/class_weights.h"
#include "convnet/train/rate_jumps.h"
#include "convnet/train/watched_cost.h"
#include "providers/image.h"

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
  if (!named.load_file.empty()) return read_checkpoint(named.load_file);
  if (!named.save_file.empty() && newest_checkpoint(named.save_file)) return read_checkpoint(named.save_file);
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
  if (processes->rank() > 0 && !file.empty()) checkpoint = read_checkpoint(file);
  return checkpoint;
}

void require_train_options(const OptionTexts& texts, const TrainOptions& given) {
  std::vector<std::string> required = {"layer-def", "layer-params", "data-provider"};
  // Without both, choose_ranges() takes what there is.
  const bool any_range = names_ranges(texts);
  if (any_range && !given.tests.only_tests()) required.emplace_back("train-range");
  if (any_range && !given.check_grads) required.emplace_back("test-range");
  const CheckpointOptions& named = given.checkpoints;
  if (!given.check_grads && named.load_file.empty() && named.save_file.empty() && named.save_path.empty())
    required.emplace_back("save-file FOLDER (or --save-path)");
  require_options(texts, required, "; to resume, --load-file CHECKPOINT");
}

/// Returns the option that makes tests come at the end of each epoch: one that needs tests, if --test-freq is
/// not given. "" if there is none.
std::string tests_each_epoch(const TrainOptions& options, const OptionTexts& texts) {
  if (texts.contains("test-freq")) return "";
  if (options.patience > 0) return "--patience";
  if (options.plateau.on()) return "--plateau";
  return options.checkpoints.keep_best.empty() ? "" : "--keep-best";
}

/// Returns a note if batches are both trained on and tested; "" if none is.
std::string overlap_text(const DataOptions& data) {
  const BatchRange both = {std::max(data.train_range.first, data.test_range.first),
                           std::min(data.train_range.last, data.test_range.last)};
  if (both.count() < 1) return "";
  return fmt::format(
      "Note: {} both trained on and tested: test errors will look too good",
      both.count() == 1 ? fmt::format("batch {} is", both.first) : fmt::format("batches {} are", both.str()));
}

/// Returns a note if the run has too few tests for --plateau to lower a rate; "" if it has enough.
std::string idle_plateau_text(const TrainOptions& options) {
  const std::int64_t batches = std::int64_t{options.epochs} * options.data.train_range.count();
  const std::int64_t tests = (batches + options.test_freq - 1) / options.test_freq;
  const std::int64_t needed =
      std::int64_t{options.plateau.tests} + 2;  // the first one is the best, the last ends
  if (!options.plateau.on() || tests >= needed) return "";
  return fmt::format("Note: --plateau {} lowers no rate: that takes {} tests, and the run has {}",
                     plateau_text(options.plateau), needed, tests);
}

/// A line about defaults that a new user may not expect, where they are not given; "" for none.
std::string defaults_text(const TrainOptions& options, const OptionTexts& texts) {
  std::vector<std::string> defaults;
  if (!texts.contains("epochs")) defaults.push_back(fmt::format("--epochs {}", options.epochs));
  if (!texts.contains("test-freq") && tests_each_epoch(options, texts).empty())
    defaults.push_back(fmt::format("--test-freq {} (batches between tests)", options.test_freq));
  if (!texts.contains("test-one") && options.data.test_range.count() > 1)
    defaults.emplace_back("--test-one 1 (each test uses one test batch, in turn)");
  return defaults.empty() ? "" : "Not given, and so as in cuda-convnet2: " + join(defaults);
}

OptionTexts saved_of(const OptionTexts& texts) {
  OptionTexts saved;
  for (const OptionSpec& spec : train_options().specs()) {
    if (spec.saved && texts.contains(spec.param.key)) saved[spec.param.key] = texts.at(spec.param.key);
  }
  return saved;
}

/// Adds a line to a run's notes.
void add_note(std::string& notes, const std::string& line) {
  if (!line.empty()) notes += (notes.empty() ? "" : "\n") + line;
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

/// Throws InputError for an option of this invocation that a run with `options` does not use. Those that a
/// command line of cuda-convnet2 may contain are noted instead.
void check_used(const OptionTexts& given, const TrainOptions& options, std::string& notes) {
  check_model_used(given, options.devices);
  check_distinct_gpus(given, options.devices);
  // None of these are options of cuda-convnet2, whose command lines stay as they are.
  const std::vector<std::pair<std::string, std::string>> of_training = {
      {"profile", "is a timeline of training"},
      {"tensorboard", "draws the curves of training"},
      {"keep-best", "keeps a checkpoint of training"},
      {"save-freq", "is for the checkpoints of training"},
      {"patience", "ends training"},
      {"plateau", "lowers the learning rates of training"},
      {"time-limit", "ends training"}};
  for (const auto& [option, use] : of_training) {
    if (given.contains(option) && !options.trains())
      throw InputError("--" + option + " " + use + ", and " +
                       (options.check_grads ? "--check-grads" : options.tests.test_option()) +
                       " does not train; leave it out");
  }
  if (options.check_grads && options.tests.only_tests())
    throw InputError("--check-grads and " + options.tests.test_option() + " exclude each other");
  if (options.tests.only_tests()) {
    std::vector<std::string> unused;
    for (const char* const option :
         {"epochs", "test-freq", "keep", "force-save", "max-test-err", "mixup", "cutmix"}) {
      if (given.contains(option)) unused.push_back(std::string("--") + option);
    }
    if (given.contains("save-file") && given.contains("load-file")) unused.emplace_back("--save-file");
    if (!unused.empty())
      add_note(notes, fmt::format("{} {} not used: {} does not train", join(unused),
                                  unused.size() == 1 ? "is" : "are", options.tests.test_option()));
  }
  if (given.contains("save-path") && given.contains("save-file"))
    add_note(notes, "--save-path is not used: --save-file names the run's folder itself");
  if (given.contains("data-path") && options.data.provider.starts_with("dummy-"))
    add_note(notes, "--data-path is not used: data provider " + options.data.provider + " reads no files");
}

/// Returns whether a file of the net, with the keys that --set gave the checkpoint's run, has another text
/// than the checkpoint has.
bool has_changed(IniFile file, CfgFile which, const Checkpoint& checkpoint) {
  Diagnostics ignored;
  const bool is_definition = which == CfgFile::definition;
  const std::string& other_text = is_definition ? checkpoint.parameters_text : checkpoint.definition_text;
  IniFile other = parse_ini("", other_text, ignored);
  apply_settings(net_file_options().parse(checkpoint.options).set, is_definition ? file : other,
                 is_definition ? other : file, ignored);
  if (!is_definition) keep_class_weights(file, checkpoint);
  return file.text != (is_definition ? checkpoint.definition_text : checkpoint.parameters_text);
}

/// Reads the parameter file as it is now. If it does not exist and no option on the command line names it,
/// the checkpoint's parameters are used. Adds a line to `notes` that says which are used.
IniFile parameters_now(const Checkpoint& checkpoint, const NetFileOptions& options, bool given,
                       std::string& notes, Diagnostics& diagnostics) {
  const std::string file = parameter_file(options);
  std::error_code error;
  if (!given && !std::filesystem::exists(file, error)) {
    if (options.set.empty() && !net_file_options().parse(checkpoint.options).set.empty())
      throw InputError("--set '' gives keys the values of the parameter file again, but " + file +
                       " is not there; name it with --layer-params");
    add_note(notes, file + " is not there: the learning parameters are those of " + checkpoint.file);
    return parse_ini(checkpoint.parameters_path, checkpoint.parameters_text, diagnostics);
  }
  IniFile now = read_parameters(options, diagnostics);
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

/// Reads the net's files into `run.files`, and notes for a resumed run whether they or the checkpoint are
/// used. `given` are the options of this invocation. Returns the checkpoint's definition as it was before
/// --conv-to-local or --unshare-weights changed it, or nullopt if nothing did.
std::optional<IniFile> load_files(LoadedRun& run, const OptionTexts& given, Diagnostics& diagnostics) {
  const NetFileOptions& options = run.options.files;
  if (!run.checkpoint) {
    run.files = read_net_files(options, diagnostics);
    return std::nullopt;
  }
  // Training takes the learning parameters on disk now; the definition is the checkpoint's, which was checked
  // when it was written, whatever became of the file.
  Diagnostics checked_before;
  IniFile saved = parse_ini(run.checkpoint->definition_path, run.checkpoint->definition_text, checked_before);
  IniFile unconverted = saved;
  convert_definition(saved, options, diagnostics);
  const bool converted = saved.text != unconverted.text;
  const bool definition_given = given.contains("layer-def");
  add_note(run.notes, definition_given ? "The net is that of " + definition_file(options)
                                       : note_of_unused(definition_file(options), CfgFile::definition,
                                                        "The net is that of ", *run.checkpoint));
  run.files.definition = definition_given ? read_definition(options, diagnostics) : saved;
  const bool parameters_given = given.contains("layer-params") || given.contains("layer-path");
  if (run.options.tests.only_tests() && !parameters_given) {
    // The net is tested as it was trained, and the file may already be that of a later run.
    add_note(run.notes, note_of_unused(parameter_file(options), CfgFile::parameters,
                                       "The learning parameters are those of ", *run.checkpoint));
    run.files.parameters =
        parse_ini(run.checkpoint->parameters_path, run.checkpoint->parameters_text, diagnostics);
  } else {
    run.files.parameters = parameters_now(*run.checkpoint, options, parameters_given, run.notes, diagnostics);
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

/// Opens the data set and checks that the run can use it.
void open_data(LoadedRun& run) {
  const DataOptions& data = run.options.data;
  const bool learns = !run.options.tests.only_tests();
  run.provider = open_provider(data, run.options.step.seed);
  if (learns) run.provider->check_range(data.train_range, "--train-range");
  run.provider->check_range(data.test_range, "--test-range");
  if (learns) run.provider->check_labels(data.test_range);
  if (learns) {
    for (int batch = data.train_range.first; batch <= data.train_range.last; ++batch)
      run.train_images += run.provider->images_in(batch);
  }
  if (!run.checkpoint) return;
  const std::int64_t before = run.checkpoint->train_images;
  if (learns && before > 0 && before != run.train_images && run.checkpoint->train_range == data.train_range)
    fmt::print(
        stderr,
        "warning: the training range has {} images, but had {} when {} was saved: the run goes on with "
        "other data\n",
        run.train_images, before, run.checkpoint->file);
  const std::vector<MatrixInfo>& then = run.checkpoint->matrices;
  for (const auto& check : {other_numbers, renumbered_class}) {
    if (const std::string wrong = check(then, run.provider->matrices()); !wrong.empty())
      throw InputError(run.checkpoint->file + ": the data set does not fit: " + wrong);
  }
  if (const std::string warning = renamed_class(then, run.provider->matrices()); !warning.empty())
    fmt::print(stderr, "{}\n", warning);
}

/// Forgets the best test of the checkpoint if it is one of another value, or if its own checkpoint, which
/// --keep-best would have kept, is not in the run's folder.
void forget_other_best_test(LoadedRun& run, Processes* processes) {
  BestTest& best = run.checkpoint->state.best;
  const std::string& keep_best = run.options.checkpoints.keep_best;
  const WatchedCost watched = find_watched_cost(keep_best, run.graph);
  std::string why;
  if (best.epoch > 0 && !best.watched.empty() && best.watched != watched.key()) {
    why = "the run watched another value before";
  } else if (best.epoch > 0 && run.folder && !keep_best.empty()) {  // the first process has the folder
    std::error_code none;
    const auto folder = std::filesystem::path(run.checkpoint->file).parent_path();
    if (!run.checkpoint->options.contains("keep-best") ||
        !std::filesystem::equivalent(run.folder->path(), folder, none))
      why = "the checkpoint of an earlier one is not kept in this folder";
  }
  if (processes != nullptr) why = processes->exchange(why)[0];
  if (why.empty()) return;
  best = {};
  add_note(run.notes, "The best " + watched.text(run.graph) + " is looked for anew: " + why);
}

/// Returns a note if --max-test-err is above every error, as a number of percent would be; "" if it is not.
std::string percent_text(double most, const Graph& graph) {
  const bool of_fraction = find_watched_cost("", graph).value_name(graph).ends_with("error");
  if (most <= 1 || !of_fraction) return "";
  return fmt::format("Note: --max-test-err {:g} is above every error, which is a fraction: {:g} % is {:g}",
                     most, most, most / 100);
}

/// Finds where layers run with --parallel auto: where they ran before on such devices, or by a search.
Placement place_layers(LoadedRun& run, Processes* processes) {
  const DeviceOptions& devices = run.options.devices;
  Placement placement;
  const std::string head = placement_head(devices, run.options.step);
  if (run.checkpoint && run.checkpoint->placement.starts_with(head)) {
    placement = read_placement(run.checkpoint->placement, run.files.definition,
                               static_cast<int>(devices.gpus().size()), run.checkpoint->file);
  } else {
    std::unique_ptr<Predictor> predictor;
    together(processes, [&] { predictor = std::make_unique<Predictor>(devices.model); });
    std::string found;
    placement = auto_placement(run.files, *run.provider, run.options.files, devices, run.options.step,
                               *predictor, found, processes);
    if (!found.empty() && !run.options.tests.json) fmt::print("{}\n", found);
  }
  run.placement = head + placement_text(placement);
  return placement;
}

/// Opens the data set. Says where its folder's name comes from if it is not there.
void load_data(LoadedRun& run, const OptionTexts& given) {
  try {
    open_data(run);
  } catch (const InputError& e) {
    std::error_code none;
    const std::string& path = run.options.data.path;
    if (!run.checkpoint || given.contains("data-path") || path.empty() || std::filesystem::exists(path, none))
      throw;
    throw InputError(
        fmt::format("{}\n{} is in the options of {}; if the data set has moved, or you are in another "
                    "folder, name it with --data-path",
                    e.what(), path, run.checkpoint->file));
  }
}

/// Builds the net's graph, on the devices that are found first with --parallel auto, and prints warnings.
/// Measures weights of classes that the data set decides.
void make_graph(LoadedRun& run, Processes* processes, Diagnostics& diagnostics) {
  GraphOptions graph_of = graph_options(run.options.files, run.options.devices);
  Placement placement;
  if (run.options.devices.parallel == Parallel::automatic) {
    diagnostics.throw_if_errors();
    placement = place_layers(run, processes);
    graph_of.placement = &placement;
  }
  run.graph = checked_graph(run.files, *run.provider, graph_of, diagnostics);
  for (const std::string& warning : diagnostics.warnings()) fmt::print(stderr, "{}\n", warning);
  if (run.options.tests.only_tests()) return;  // they count every image alike
  const std::string note = measure_class_weights(run);
  if (note.empty()) return;
  add_note(run.notes, note);
  Diagnostics printed_above;
  run.graph = checked_graph(run.files, *run.provider, graph_of, printed_above);
}

/// Converts the tensors of the checkpoint, whose definition was `unconverted` before an option changed it.
void convert_checkpoint(LoadedRun& run, const IniFile& unconverted) {
  Diagnostics reported;
  const Graph before = build_graph(unconverted, run.files.parameters, run.provider->matrices(), {}, reported);
  reported.throw_if_errors();
  convert_tensors(run.checkpoint->tensors, before, run.graph);
}

}  // namespace

LoadedRun load_run(const OptionTexts& given, const StopSignal& stop, Processes* processes) {
  LoadedRun run;
  // A signal ends the program with `claiming` locked, so no folder is claimed while others are left.
  std::mutex claiming;
  const RunFolder* claimed = nullptr;
  const BoardFolder* claimed_board = nullptr;
  const StopSignal::EndsProgram while_loading(stop, [&] {
    claiming.lock();
    if (claimed_board != nullptr) claimed_board->leave();
    if (claimed != nullptr) claimed->leave();
  });
  const TrainOptions first = parse_train_options(given);
  // Claims the folder before anything is read, so that no other run trains from the same checkpoint.
  const bool is_first = processes == nullptr || processes->rank() == 0;
  if (processes != nullptr) {
    processes->set_stall_seconds(first.devices.stall_timeout);
    processes->set_uses_nccl(first.devices.nccl);
  }
  if (processes != nullptr && first.check_grads)
    throw InputError("--check-grads works in one process; the gradients of several are the same");
  if (first.trains() && is_first) {
    const std::lock_guard guard(claiming);
    run.folder = claim_run_folder(first.checkpoints);
    claimed = run.folder.get();
  }
  run.checkpoint = checkpoint_of(first, processes);
  OptionTexts texts;
  if (run.checkpoint) texts = run.checkpoint->options;
  for (const auto& [key, text] : given)
    texts[key] = key == kSetOption ? joined_settings(texts[key], text) : text;
  if (run.checkpoint) drop_options_of_provider(texts, given, *run.checkpoint);
  if (run.folder && run.checkpoint) drop_inherited_board(texts, given, *run.folder, *run.checkpoint);
  require_train_options(texts, first);
  run.options = parse_train_options(texts);
  check_used(given, run.options, run.notes);
  run.options.devices = with_devices(run.options.devices, processes);
  if (run.checkpoint) check_same_images(run.options.data, *run.checkpoint);
  run.saved_options = saved_of(texts);
  // A gradient check makes a plan for tests, but does not test.
  if (run.options.check_grads && !texts.contains("test-range"))
    run.options.data.test_range = run.options.data.train_range;
  // A run that named no ranges may have held images out, and a test of it that names some still does.
  if (run.checkpoint && run.options.tests.only_tests() && !names_ranges(run.checkpoint->options))
    run.options.data.hold_out = true;
  const std::string batches = choose_ranges(run.options.data, texts);
  if (run.folder && !run.options.tensorboard.empty()) {
    check_folder_writable(run.options.tensorboard, "event files are to be written to");
    const std::lock_guard guard(claiming);
    run.board = std::make_unique<BoardFolder>(run.options.tensorboard, *run.folder, run.checkpoint);
    claimed_board = run.board.get();
  }
  if (run.checkpoint && !first.checkpoints.init_from.empty()) {
    if (!first.checkpoints.load_file.empty())
      throw InputError("--init-from starts a new run, and --load-file goes on with one; use one of them");
    add_note(run.notes,
             "--init-from is not used: this run has begun, and goes on from " + run.checkpoint->file);
  }

  Diagnostics diagnostics;
  const std::optional<IniFile> unconverted = load_files(run, given, diagnostics);
  if (!run.options.files.set.empty())
    add_note(run.notes, "Keys that --set gives: " + settings_text(run.options.files.set));
  add_note(run.notes, batches);
  if (run.options.trains()) {
    if (const std::string counts = tests_each_epoch(run.options, texts); !counts.empty()) {
      run.options.test_freq = run.options.data.train_range.count();
      add_note(run.notes,
               fmt::format("--test-freq is not given, and {} needs tests: there is one at the end of "
                           "each epoch (--test-freq {})",
                           counts, run.options.test_freq));
    }
    add_note(run.notes, idle_plateau_text(run.options));
    add_note(run.notes, defaults_text(run.options, texts));
    add_note(run.notes, overlap_text(run.options.data));
  }
  load_data(run, given);
  make_graph(run, processes, diagnostics);
  if (run.options.trains())
    add_note(run.notes, percent_text(run.options.checkpoints.max_test_err, run.graph));
  if (run.checkpoint && run.options.trains()) {
    if (const std::string warning = rate_jump_warning(run); !warning.empty())
      fmt::print(stderr, "{}\n", warning);
  }
  if (const std::string& layer = run.options.tests.write_features; !layer.empty())
    keep_output(run.graph, layer);
  if (unconverted) convert_checkpoint(run, *unconverted);
  if (run.checkpoint && run.options.trains()) forget_other_best_test(run, processes);
  if (run.checkpoint && !run.options.plateau.on())
    end_plateau(run.checkpoint->state.plateau, run.checkpoint->state.position);
  run.statistics = run.checkpoint ? saved_statistics(*run.checkpoint, run.options.data, *run.provider)
                                  : run.provider->statistics(run.options.data.train_range);
  return run;
}

}  // namespace convnet
