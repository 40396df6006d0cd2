#include "convnet/train/load_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <set>

#include "convnet/base/error.h"
#include "convnet/base/notes.h"
#include "convnet/base/printable.h"
#include "convnet/net/auto_minibatch.h"
#include "convnet/net/auto_placement.h"
#include "convnet/net/convert.h"
#include "convnet/net/costs.h"
#include "convnet/net/data_set.h"
#include "convnet/net/devices.h"
#include "convnet/net/find_net.h"
#include "convnet/net/input_data.h"
#include "convnet/net/net_files.h"
#include "convnet/net/outputs.h"
#include "convnet/place/placed_files.h"
#include "convnet/train/class_weights.h"
#include "convnet/train/rate_jumps.h"
#include "convnet/train/same_run.h"
#include "convnet/train/watched_cost.h"
#include "providers/image_parts.h"

namespace convnet {
namespace {

/// `has_folder`: the run has a folder that no option names.
void require_train_options(const OptionTexts& texts, const TrainOptions& given, bool has_folder) {
  std::vector<std::string> required = {"layer-def", "layer-params", "data-provider"};
  // Without both, choose_ranges() takes what there is.
  const bool any_range = given.tests.only_tests() ? texts.contains("test-range") : names_ranges(texts);
  if (any_range && !given.tests.only_tests()) required.emplace_back("train-range");
  const bool tests = !given.check_grads && !given.find_rate;
  if (any_range && tests) required.emplace_back("test-range");
  const CheckpointOptions& named = given.checkpoints;
  if (tests && !has_folder && named.load_file.empty() && named.save_file.empty() && named.save_path.empty())
    required.emplace_back("save-file FOLDER (or --save-path)");
  require_options(texts, required, named.load_file.empty() ? "; to resume, --load-file CHECKPOINT" : "");
}

/// Returns the option that compares tests; "" if there is none.
std::string compares_tests(const TrainOptions& options) {
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

/// Returns a note about the defaults of cuda-convnet2, which a new user may not expect, where they are not
/// given; "" for none.
std::string defaults_text(const TrainOptions& options, const OptionTexts& texts) {
  std::vector<std::string> defaults;
  if (!texts.contains("epochs")) defaults.push_back(fmt::format("--epochs {}", options.epochs));
  if (!texts.contains("test-freq") && compares_tests(options).empty())
    defaults.push_back(fmt::format("--test-freq {} (batches between tests)", options.test_freq));
  if (!texts.contains("test-one") && options.data.test_range.count() > 1)
    defaults.emplace_back("--test-one 1 (each test uses one test batch, in turn)");
  return defaults.empty() ? "" : "Not given, and so as in cuda-convnet2: " + join(defaults);
}

/// Returns the factor of the rates of a net that comes with the program: they are for new weights and
/// minibatches of the usual size. It is 1 if the command line says anything of rates.
double suitable_rate_factor(const LoadedRun& run) {
  constexpr double kOfCopiedWeights = 0.1;  // they should change less than new ones
  const auto sets_rate = [](const Setting& setting) {
    return lower(setting.key) == "epsw" || lower(setting.key) == "epsb";
  };
  if (!run.by_name || run.texts.contains("rate-factor") || run.options.find_rate ||
      std::ranges::any_of(run.options.files.set, sets_rate))
    return 1;
  const double images =
      run.given.contains("mini") ? 1 : static_cast<double>(run.options.step.mini) / StepOptions().mini;
  return images * (run.options.checkpoints.init_from.empty() ? 1 : kOfCopiedWeights);
}

/// Gives a new run the options that its command line lacks where the defaults of cuda-convnet2 do not suit
/// it: those are made for batches of thousands of images. Checkpoints hold them like options that are given.
/// Returns a note about them; "" if there are none.
std::string choose_defaults(LoadedRun& run) {
  constexpr int kEpochs = 90;  // as many as PyTorch's example for ImageNet
  TrainOptions& options = run.options;
  // A command line that names only a net and its data leaves the rest to the program.
  if (run.by_name && !run.texts.contains("keep-best")) {
    std::string& watched = options.checkpoints.keep_best;
    watched = find_watched_cost("", run.graph).layer;
    // Where most images lack most tags, a net that has learned nothing gets few outputs wrong, so the error
    // says little; the cost is watched instead.
    if (run.graph.find(watched)->layer->facts.cost->labels == CostLabels::numbers) watched += ".cost";
  }
  const std::string comparing = compares_tests(options);
  const bool files = run.provider->reads_files(), each_epoch = files || !comparing.empty();
  std::vector<std::string> chosen;
  const auto choose = [&](const char* key, int value) {
    return run.texts.try_emplace(key, std::to_string(value)).second;
  };
  if (run.by_name && run.texts.try_emplace("keep-best", options.checkpoints.keep_best).second)
    chosen.push_back("--keep-best " + options.checkpoints.keep_best);
  // A cost of squares has gradients of any norm, and rates are made for costs of probabilities.
  constexpr int kClipNorm = 1;
  if (run.by_name && label_kind(run.provider->matrices()) == LabelKind::numbers &&
      choose("clip-norm", kClipNorm)) {
    options.step.clip_norm = kClipNorm;
    chosen.push_back(fmt::format("--clip-norm {}", kClipNorm));
  }
  if ((files || run.by_name) && choose("epochs", kEpochs)) {
    options.epochs = kEpochs;
    chosen.push_back(fmt::format("--epochs {}", kEpochs));
  }
  if (each_epoch && choose("test-freq", 0)) {
    options.test_freq = 0;
    chosen.emplace_back("--test-freq 0 (a test at the end of each epoch)");
  }
  if (each_epoch && choose("test-one", 0)) {
    options.data.test_one = false;
    if (options.data.test_range.count() > 1)
      chosen.emplace_back("--test-one 0 (each test uses all test batches)");
  }
  if (const double factor = suitable_rate_factor(run); factor != 1) {
    options.rate_factor = factor;
    run.texts["rate-factor"] = fmt::format("{}", factor);
    chosen.push_back(fmt::format("--rate-factor {} ({})", factor,
                                 options.checkpoints.init_from.empty()
                                     ? "the rates are for larger minibatches"
                                     : "weights that are copied change less"));
  }
  if (chosen.empty()) return "";
  return fmt::format("Not given, and chosen for {}: {}",
                     files         ? "folders and tars of images"
                     : run.by_name ? "a net that is given by its name"
                                   : comparing,
                     join(chosen));
}

/// Returns a note if an option compares tests of different images; "" if none does.
std::string unlike_tests_text(const TrainOptions& options) {
  const std::string comparing = compares_tests(options);
  if (comparing.empty() || !options.data.test_one || options.data.test_range.count() < 2) return "";
  return fmt::format(
      "Note: with --test-one 1 each test uses other images, and {} compares such tests; with --test-one 0 "
      "each uses all of them",
      comparing);
}

/// Chooses when the run tests, and notes what its user may not expect of that.
void choose_tests(LoadedRun& run) {
  TrainOptions& options = run.options;
  if (!run.checkpoint) add_note(run.notes, choose_defaults(run));
  add_note(run.notes, defaults_text(options, run.texts));
  // Checkpoints of older versions do not hold what was chosen.
  const bool each_epoch = !run.texts.contains("test-freq") && !compares_tests(options).empty();
  if (each_epoch)
    add_note(run.notes,
             fmt::format("--test-freq is not given, and {} compares tests: there is one at the end "
                         "of each epoch",
                         compares_tests(options)));
  if (each_epoch || options.test_freq == 0) options.test_freq = options.data.train_range.count();
  add_note(run.notes, unlike_tests_text(options));
  add_note(run.notes, idle_plateau_text(options));
  add_note(run.notes, overlap_text(options.data));
}

OptionTexts saved_of(const OptionTexts& texts) {
  OptionTexts saved;
  for (const OptionSpec& spec : train_options().specs()) {
    if (spec.saved && texts.contains(spec.param.key)) saved[spec.param.key] = texts.at(spec.param.key);
  }
  return saved;
}

/// Returns the folder that option `key` has in the checkpoint if the command does not give the option; else
/// "". Such a folder is not used, because a checkpoint does not decide which files are written.
std::string unused_folder(const LoadedRun& run, const std::string& key) {
  if (!run.checkpoint || run.given.contains(key)) return "";
  const auto found = run.checkpoint->options.find(key);
  return found == run.checkpoint->options.end() ? "" : found->second;
}

/// Returns a note about the options of the command that a run had otherwise until its checkpoint was saved;
/// "" if there are none. Others tell of the net's files, and that a run goes on for more epochs is no news.
std::string note_of_changed_options(const LoadedRun& run) {
  if (!run.checkpoint) return "";
  const std::set<std::string> told_elsewhere = {"layer-def", "layer-params", "set", "epochs", "keep-best"};
  std::vector<std::string> changed;
  for (const OptionSpec& spec : train_options().specs()) {
    const std::string& key = spec.param.key;
    const auto now = run.given.find(key), before = run.checkpoint->options.find(key);
    if (!spec.saved || spec.output || now == run.given.end() || told_elsewhere.contains(key)) continue;
    std::string was =
        before != run.checkpoint->options.end() ? before->second : spec.param.fallback.value_or("");
    const std::optional<BatchRange>& range =
        key == "train-range" ? run.checkpoint->train_range : run.checkpoint->test_range;
    if (was.empty() && range && key.ends_with("-range")) was = range->str();
    // These words stand for what a run finds, which is what the checkpoint holds.
    const bool finds =
        (key == "gpu" && DeviceOptions::is_word(now->second)) || (key == "mini" && now->second == "auto");
    if (was == now->second || finds) continue;
    changed.push_back(fmt::format("--{} {} -> {}", key, was.empty() ? "(not given)" : shell_word(was),
                                  shell_word(now->second)));
  }
  return changed.empty() ? "" : fmt::format("Changed since {}: {}", run.checkpoint->file, join(changed));
}

/// Returns a note if the run's folder of curves stays as it is because only its checkpoint names it; else "".
std::string note_of_unused_board(const LoadedRun& run) {
  const std::string board = unused_folder(run, "tensorboard");
  if (board.empty()) return "";
  return fmt::format(
      "The curves in {0} are not gone on with: a checkpoint does not say what is written where; "
      "--tensorboard {0} does",
      board);
}

/// Returns a note if decoded pictures are not used because only the checkpoint names their folder; else "".
std::string note_of_unused_cache(const LoadedRun& run) {
  const std::string cache = unused_folder(run, "cache-images");
  if (cache.empty()) return "";
  return fmt::format(
      "The decoded pictures in {0} are not used: a checkpoint does not say what is written where; "
      "--cache-images {0} does{1}",
      cache,
      run.options.trains() && run.options.data.random_resized_crop > 0
          ? ", and without it random resized crops are made of whole photos, not of those pictures"
          : "");
}

/// Returns whether best.safetensors, which --keep-best keeps, is that of the checkpoint's best test, or will
/// be made of the checkpoint because that test followed it.
bool keeps_best_of(const Checkpoint& checkpoint, const std::string& folder) {
  const auto kept = checkpoint.options.find("keep-best");
  std::error_code none;
  if (kept == checkpoint.options.end() || kept->second.empty() ||
      !std::filesystem::equivalent(folder, folder_of(checkpoint.file), none))
    return false;
  return checkpoint.state.follows_best_test() ||
         std::filesystem::exists(std::filesystem::path(folder) / kBestFile, none);
}

/// Forgets the best test of the checkpoint if it is one of another value or of other images, or if its own
/// checkpoint, which --keep-best would have kept, is not in the run's folder.
void forget_other_best_test(LoadedRun& run, Processes* processes) {
  BestTest& best = run.checkpoint->state.best;
  const std::string& keep_best = run.options.checkpoints.keep_best;
  const WatchedCost watched = find_watched_cost(keep_best, run.graph);
  const std::optional<BatchRange>& tested = run.checkpoint->test_range;
  std::string why;
  if (best.epoch == 0)
    why = "";
  else if (!best.watched.empty() && best.watched != watched.key())
    why = "the run watched another value before";
  else if (tested && *tested != run.options.data.test_range)
    why = "the run was tested on batches " + tested->str() + " before";
  else if (run.folder && !keep_best.empty() &&  // the first process has the folder
           !keeps_best_of(*run.checkpoint, run.folder->path()))
    why = "the checkpoint of an earlier one is not kept in this folder";
  if (processes != nullptr) why = processes->exchange(why)[0];
  if (why.empty()) return;
  best = {};
  add_note(run.notes, "The best " + watched.text(run.graph) + " is looked for anew: " + why);
}

/// Returns a note if --max-test-err is above every error, as a number of percent would be; "" if it is not.
std::string percent_text(double most, const Graph& graph) {
  const bool of_fraction = is_error(find_watched_cost("", graph).value_name(graph));
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
    run_collectively(processes, [&] { predictor = std::make_unique<Predictor>(devices.model); });
    print_notes({predictor->too_many_devices(devices.gpus().size())});
    std::string found;
    placement = auto_placement(run.files, *run.provider, run.options.files, devices, run.options.step,
                               *predictor, found, processes);
    if (!found.empty() && !run.options.tests.json) fmt::print("{}\n", found);
  }
  run.placement = head + placement_text(placement);
  return placement;
}

/// Opens the data set, counts the images to train on and checks the labels of tests.
void load_data(LoadedRun& run) {
  open_data(run);
  if (run.options.tests.only_tests()) return;
  const DataOptions& data = run.options.data;
  run.provider->check_labels(data.test_range);
  run.train_images = image_count(*run.provider, data.train_range);
  if (!run.checkpoint) return;
  const std::int64_t before = run.checkpoint->train_images;
  const bool same_batches = run.checkpoint->train_range == data.train_range || !names_ranges(run.texts);
  if (before > 0 && before != run.train_images && same_batches)
    fmt::print(
        stderr,
        "warning: the training range has {} images, but had {} when {} was saved: the run goes on with "
        "other data\n",
        run.train_images, before, run.checkpoint->file);
}

/// Chooses the minibatch if --mini is auto. Checkpoints hold it like one that is given.
void choose_mini(LoadedRun& run, Processes* processes) {
  if (run.options.step.mini != kAutoMini) return;
  const DeviceOptions& devices = run.options.devices;
  MachineMemory memory;
  run_collectively(processes, [&] { memory = free_memory_of(devices, run.graph.gpu_count(), processes); });
  std::string note;
  run.options.step.mini = choose_minibatch(run.graph, *run.provider, devices, run.options.step, memory,
                                           largest_batches(*run.provider, run.options.data), note, processes);
  run.texts["mini"] = std::to_string(run.options.step.mini);
  add_note(run.notes, note);
}

/// Builds the net's graph, on the devices that are found first with --parallel auto, and prints warnings.
/// Measures weights of classes that the data set decides.
void make_graph(LoadedRun& run, Processes* processes, Diagnostics& diagnostics) {
  GraphOptions graph_of = graph_options(run.options.files, run.options.devices, run.options.step);
  Placement placement;
  if (run.options.devices.parallel == Parallel::automatic) {
    diagnostics.throw_if_errors();
    placement = place_layers(run, processes);
    graph_of.placement = &placement;
  }
  run.graph = checked_graph(run.files, *run.provider, graph_of, diagnostics);
  choose_mini(run, processes);
  check_microbatches(run.graph, run.options.step);
  print_notes(diagnostics.warnings());
  if (run.options.tests.only_tests()) return;  // they count every image alike
  const std::string note = measure_class_weights(run, run.graph);
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
  convert_tensors(run.checkpoint->tensors, run.checkpoint->state.windows, before, run.graph);
}

}  // namespace

LoadedRun load_run(const OptionTexts& given, StopSignal& stop, Processes* processes) {
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
    // Options decide what else the processes tell each other while they load.
    check_same(*processes, facts_of(given));
  }
  if (processes != nullptr && first.check_grads)
    throw InputError("--check-grads works in one process; the gradients of several are the same");
  run.by_name = first.trains() && names_ready_net(given);
  if (first.trains() && is_first) {
    const std::lock_guard guard(claiming);
    run.folder = claim_run_folder(first.checkpoints);
    if (run.by_name && !run.folder) {
      run.folder = std::make_unique<RunFolder>(usual_run_folder(given), RunFolder::Name::numbered);
      add_note(run.notes, "Not given, and chosen: --save-file " + shell_word(run.folder->path()));
    }
    claimed = run.folder.get();
  }
  read_options(run, given, processes);
  if (run.folder && (!run.checkpoint || given.contains("save-file")) &&
      names_classes_by_folders(run.options.data))
    refuse_among_classes("--save-file", run.folder->path(), run.options.data.path);
  if (processes != nullptr) {  // what is not given here may be in the checkpoint
    processes->set_stall_seconds(run.options.devices.stall_timeout);
    processes->set_uses_nccl(run.options.devices.nccl);
  }
  if (run.options.trains()) add_note(run.notes, note_of_changed_options(run));
  if (run.options.trains()) add_note(run.notes, note_of_unused_board(run));
  add_note(run.notes, note_of_unused_cache(run));
  require_train_options(run.texts, first, run.by_name);
  try {
    run.options.devices = with_devices(run.options.devices, processes);
  } catch (const InputError& e) {
    if (!run.checkpoint || given.contains("hosts") || !run.texts.contains("hosts")) throw;
    throw InputError(
        std::string(e.what()) +
        "\n--hosts is that of the run, which goes on; type --hosts with the devices of each host "
        "now, which changes the order of the sums");
  }
  // These make a plan for tests, but do not test.
  if ((run.options.check_grads || run.options.find_rate) && !run.texts.contains("test-range"))
    run.options.data.test_range = run.options.data.train_range;
  const std::string batches = choose_ranges(run);
  if (run.folder && !run.options.tensorboard.empty()) {
    const std::lock_guard guard(claiming);
    run.board = std::make_unique<BoardFolder>(run.options.tensorboard, *run.folder, run.checkpoint);
    claimed_board = run.board.get();
  }

  Diagnostics diagnostics;
  const bool data_first = needs_data_first(run);
  if (data_first) load_data(run);
  const std::optional<IniFile> unconverted = read_files(
      run,
      // The net is tested as it was trained, and the file may already be that of a later run.
      run.options.tests.only_tests() ? ParametersNotGiven::as_in_checkpoint : ParametersNotGiven::as_in_file,
      diagnostics);
  if (!run.options.files.set.empty())
    add_note(run.notes, "Keys that --set gives: " + settings_text(run.options.files.set));
  add_note(run.notes, batches);
  if (!data_first) load_data(run);
  if (run.options.trains()) run.class_counts = run.provider->class_counts(run.options.data.train_range);
  add_note(run.notes, classes_text(*run.provider, run.class_counts));
  if (run.by_name && !run.checkpoint)
    add_note(run.notes, choose_small_minibatch(run.options.step, run.texts, run.train_images,
                                               largest_batch(*run.provider, run.options.data.train_range)));
  make_graph(run, processes, diagnostics);
  if (run.options.trains()) choose_tests(run);
  run.saved_options = saved_of(run.texts);
  check_layer_names(run, run.graph);
  if (run.options.trains())
    add_note(run.notes, percent_text(run.options.checkpoints.max_test_err, run.graph));
  if (run.checkpoint && run.options.trains()) {
    print_notes({rate_jump_warning(run)});
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
