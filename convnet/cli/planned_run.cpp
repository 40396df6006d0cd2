#include "convnet/cli/planned_run.h"

#include <fmt/format.h>

#include "convnet/base/error.h"
#include "convnet/base/notes.h"
#include "convnet/net/auto_minibatch.h"
#include "convnet/net/auto_placement.h"
#include "convnet/net/data_set.h"
#include "convnet/net/find_net.h"
#include "convnet/net/input_data.h"
#include "convnet/net/net_files.h"
#include "convnet/net/net_weights.h"
#include "convnet/place/placed_files.h"
#include "convnet/train/run_folder.h"

namespace convnet {

RequestedRun planned_run(const TrainingLine& line) {
  RequestedRun run;
  read_options(run, line.training);
  require_options(run.texts, {"layer-def", "layer-params", "data-provider"},
                  "; or --load-file with a checkpoint");
  // The folder of the checkpoint's run is not asked for.
  if (run.options.trains()) check_run_folder(checkpoint_options().parse(run.given));
  if (run.checkpoint && run.given.contains("save-file") && !run.given.contains("load-file"))
    fmt::print(stderr, "The run in {} goes on from {}\n", run.options.checkpoints.save_file,
               run.checkpoint->file);
  run.texts.insert(line.used.begin(), line.used.end());
  return run;
}

namespace {

/// Opens the data set. Returns whether its batches are known.
bool open_planned_data(RequestedRun& run) {
  DataOptions& data = run.options.data;
  const bool names_data =
      run.given.contains("data-provider") || run.given.contains("data-path") || names_ranges(run.given);
  if (run.checkpoint && !names_data) {
    const Checkpoint& c = *run.checkpoint;
    if (c.matrices.empty())
      throw InputError(
          c.file +
          ": is of an older version, which did not note what the data looks like; --data-provider and "
          "--data-path must say it");
    run.provider = stand_in_for_data(c, data, run.options.step.seed);
    return false;
  }
  if (!names_ranges(run.texts) && data.provider.starts_with("dummy-")) {
    run.provider = open_provider(data, run.options.step.seed);
    return false;
  }
  choose_ranges(run);
  // One range is enough for a plan.
  if (!run.texts.contains("test-range") && names_ranges(run.texts)) data.test_range = data.train_range;
  if (!run.texts.contains("train-range") && names_ranges(run.texts)) data.train_range = data.test_range;
  open_data(run);
  return true;
}

/// Returns the memory of `model`, or if it is null what is free on this machine.
MachineMemory memory_for_plans(const DeviceOptions& devices, const Graph& graph, const Predictor* model) {
  if (model != nullptr) return model->memory(devices);
  try {
    return free_memory_of(devices, graph.gpu_count());
  } catch (const DeviceError& e) {
    throw DeviceError(
        fmt::format("--mini auto asks for the memory of the devices: {}\nconvnet plan takes that of "
                    "other machines from a file, with --model",
                    e.what()));
  }
}

}  // namespace

bool open_planned_run(RequestedRun& run, Diagnostics& diagnostics) {
  const bool data_first = needs_data_first(run);
  bool knows_batches = data_first && open_planned_data(run);
  read_files(run, ParametersNotGiven::as_in_checkpoint, diagnostics);
  if (!data_first) knows_batches = open_planned_data(run);
  if (knows_batches && run.options.trains()) {
    const DataOptions& data = run.options.data;
    print_notes({channels_last_warning(data, run.provider->matrices()[0]),
                 empty_classes(*run.provider, run.provider->class_counts(data.train_range))});
  }
  if (knows_batches && !run.checkpoint && run.options.trains() && names_ready_net(run.given)) {
    const LargestBatches largest = largest_batches(*run.provider, run.options.data);
    print_notes({choose_small_minibatch(run.options.step, run.texts, largest.epoch, largest.train)});
  }
  return knows_batches;
}

Graph graph_of(RequestedRun& run, bool knows_batches, const DeviceOptions& devices,
               const std::function<Predictor&()>& predictor, const Predictor* model, std::string& found,
               Diagnostics& diagnostics) {
  StepOptions& step = run.options.step;
  GraphOptions options = graph_options(run.options.files, devices, step);
  Placement placement;
  if (devices.parallel == Parallel::automatic) {
    diagnostics.throw_if_errors();
    if (run.checkpoint && run.checkpoint->placement.starts_with(placement_head(devices, step)))
      placement = read_placement(run.checkpoint->placement, run.files.definition,
                                 static_cast<int>(devices.gpus().size()), run.checkpoint->file);
    else
      placement =
          auto_placement(run.files, *run.provider, run.options.files, devices, step, predictor(), found);
    options.placement = &placement;
  }
  Graph graph = checked_graph(run.files, *run.provider, options, diagnostics);
  if (step.mini == kAutoMini) {
    const MachineMemory memory = memory_for_plans(devices, graph, model);
    if (memory.bytes == 0)
      throw InputError("--mini auto: the model has no 'memory', the bytes of a device, which says what fits");
    std::string note;
    step.mini = choose_minibatch(
        graph, *run.provider, devices, step, memory,
        knows_batches ? largest_batches(*run.provider, run.options.data) : LargestBatches{}, note);
    run.texts["mini"] = std::to_string(step.mini);
    print_notes({note});
  }
  check_microbatches(graph, step);
  print_notes(diagnostics.warnings());
  check_layer_names(run, graph);
  if (run.checkpoint) saved_statistics(*run.checkpoint, run.options.data, *run.provider);
  return graph;
}

void check_init_from(const RequestedRun& run, const Graph& graph, const PlanSet& plans) {
  const std::string& file = run.options.checkpoints.init_from;
  if (!file.empty() && !run.checkpoint) check_initial_weights(graph, plans, file, run.options.data.pixel_std);
}

}  // namespace convnet
