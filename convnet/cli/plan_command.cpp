// `convnet plan` shows what a net needs, without running it.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "convnet/base/error.h"
#include "convnet/base/generated_text.h"
#include "convnet/base/notes.h"
#include "convnet/base/output_file.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/cli/planned_run.h"
#include "convnet/config/ini_flat.h"
#include "convnet/net/data_set.h"
#include "convnet/net/devices.h"
#include "convnet/net/net_files.h"
#include "convnet/plan/print.h"
#include "convnet/train/options.h"

namespace convnet {
namespace {

struct PlanCommandOptions {
  static constexpr OptionGroup group = OptionGroup::output;
  NetFileOptions files;
  CheckpointOptions checkpoints;
  DataOptions data;
  StepOptions step;
  std::string model, trace, flat;
  int processes = 1;
  DeviceOptions devices;
  ReportOptions report;
};

const OptionTable<PlanCommandOptions>& options_of_plan() {
  static const auto table =
      OptionTable<PlanCommandOptions>()
          .add(&PlanCommandOptions::files, net_file_options())
          .add(&PlanCommandOptions::checkpoints, read_checkpoint_option())
          .add(&PlanCommandOptions::step, step_options_with_auto())
          .add(&PlanCommandOptions::data, planned_data_options())
          .add({
              unsaved_option(
                  "model", &PlanCommandOptions::model,
                  {.fallback = "",
                   .unit = "file",
                   .doc =
                       "predict the time of a step: 'measured' times each operation on this machine, else a "
                       "device model file, like bench/models/nvlink-8gpu.json; where that says "
                       "concurrent_streams, --device auto means cuda"}),
              unsaved_option("trace", &PlanCommandOptions::trace,
                             {.fallback = "",
                              .unit = "file",
                              .doc = "file for the predicted timeline (Chrome trace, for ui.perfetto.dev)"}),
              unsaved_option("flat", &PlanCommandOptions::flat,
                             {.fallback = "",
                              .unit = "file",
                              .doc = "file for the same net without templates and repeated sections"}),
              unsaved_option("processes", &PlanCommandOptions::processes,
                             {.fallback = "1",
                              .min = 1,
                              .max = 4096,
                              .doc = "plan for so many processes, as mpirun -np starts them, which exchange "
                                     "messages; each gets as many of the devices that --gpu lists"}),
          })
          .add(&PlanCommandOptions::devices,
               device_options().only({"gpu", "hosts", "device", "threads", "precision", "parallel"}))
          .add(&PlanCommandOptions::report, report_options().only({"verbose", "json"}));
  return table;
}

/// The rows of the largest minibatches of training and of tests, where an image has several rows if tests see
/// several views of it.
struct Minibatches {
  std::int64_t train, test;
};

/// Returns the minibatches of a run. Warns if the batches of the data set have fewer images than --mini.
/// `knows_batches`: the data set has the ranges of batches of the options.
Minibatches minibatches(const RequestedRun& run, bool knows_batches) {
  const Provider& provider = *run.provider;
  const std::int64_t mini = run.options.step.mini, test_rows = rows_of_test(provider, mini);
  if (!knows_batches) return {mini, test_rows};
  const auto largest = [&](const BatchRange& range, std::int64_t rows, std::int64_t views) {
    return std::min(rows, largest_batch(provider, range) * views);
  };
  const std::int64_t train_rows = largest(run.options.data.train_range, mini, 1);
  print_notes({smaller_batches(mini, train_rows)});
  return {train_rows, largest(run.options.data.test_range, test_rows, provider.views())};
}

/// Returns what each device has and whether the plans fit, as `convnet plan` prints it.
nlohmann::json fit_json(const PlanSet& plans, const MachineMemory& memory) {
  Table<DeviceId, std::int64_t> needs;
  for (const DeviceId device : plans.device_ids()) needs.push_back(plans.memory_needed(device));
  const auto fullest = std::max_element(needs.begin(), needs.end());
  nlohmann::json fit = {
      {"bytes", nullptr},
      {"shared", memory.shared},
      {"needed", memory.shared ? std::accumulate(needs.begin(), needs.end(), std::int64_t{0}) : *fullest},
      {"fullest_device", fullest - needs.begin()},
      {"fits", nullptr}};
  if (memory.bytes > 0) {
    fit["bytes"] = memory.bytes;
    fit["fits"] = memory.holds(needs);
  }
  return fit;
}

/// Returns the line of the JSON of fit_json().
std::string fit_text(const nlohmann::json& fit) {
  const auto mebibytes = [&](const char* key) { return fit[key].get<double>() / (1 << 20); };
  const std::string who = fit["shared"].get<bool>() ? "all devices together need"
                                                    : fmt::format("the fullest device, {}, needs",
                                                                  fit["fullest_device"].get<int>());
  const std::string needs = fmt::format("{} {:.1f} MiB", who, mebibytes("needed"));
  if (fit["bytes"].is_null())
    return "memory: " + needs + "; the model has no 'memory' that says whether this fits\n";
  const std::string has = fmt::format("{:.1f} MiB", mebibytes("bytes"));
  if (fit["fits"].get<bool>()) return "memory: " + needs + " of " + has + "\n";
  return "memory: DOES NOT FIT: " + needs + " of " + has +
         "; use more --microbatches, a smaller --mini, --conserve-mem 1 or more devices\n";
}

std::string prediction_text(const nlohmann::json& prediction) {
  std::string text = simulation_text(prediction);
  if (const auto alone = prediction.find("step_seconds_on_one_device"); alone != prediction.end())
    text += fmt::format("one device alone: {:.3f} ms a step; speed-up {:.2f}\n", alone->get<double>() * 1e3,
                        alone->get<double>() / prediction["step_seconds"].get<double>());
  return text + fit_text(prediction["memory"]);
}

/// Predicts the seconds of a step of the same minibatch, uncut, on one of the `devices` alone.
double seconds_alone(const RequestedRun& run, const PlanCommandOptions& options, std::int64_t minibatch,
                     int devices, Predictor& predictor) {
  DeviceOptions one = options.devices;
  one.threads = threads_of_each(one, devices);
  one.gpu = "0";
  one.devices_of_hosts.clear();
  one.devices_of_processes.clear();
  one.parallel = Parallel::data;
  Diagnostics reported;
  const Provider& provider = *run.provider;
  StepOptions whole = options.step;
  whole.microbatches = 1;
  const Graph graph = checked_graph(run.files, provider, graph_options(options.files, one, whole), reported);
  const auto target = make_target(one, 1);
  PlanSet plans(graph, provider.matrices(), *target, plan_options(options.step, one, provider));
  return predictor.predict(one, plans.plan(Phase::train, minibatch), 1).step;
}

}  // namespace

const std::vector<OptionSpec>& plan_command_options() { return options_of_plan().specs(); }

void plan_command(const std::vector<std::string>& args) {
  RequestedRun run = planned_run(parse_training_line("plan", args));
  PlanCommandOptions options = options_of_plan().parse(run.texts);
  if (options.model.empty() && !options.trace.empty())
    throw InputError("--trace writes a predicted timeline: --model must say of which machine");
  if (options.processes > 1 && options.model == "measured")
    throw InputError(
        "--model measured times operations in this process, but not messages between the processes of "
        "--processes; give --model a device model file");
  // Reports files that cannot be written now, not after the work.
  std::vector<std::string> inputs = layer_files(options.files);
  inputs.push_back(options.model);
  if (run.checkpoint) inputs.push_back(run.checkpoint->file);
  check_outputs({{"--trace", options.trace, "the timeline is to be written to", ChromeTrace::begins},
                 {"--flat", options.flat, "the net is to be written to", "", is_unedited}},
                inputs);
  std::optional<Predictor> predictor;
  if (!options.model.empty()) predictor.emplace(options.model);
  if (options.devices.device == DeviceKind::automatic && predictor && predictor->describes_gpus())
    options.devices.device = DeviceKind::cuda;
  if (std::string reason;
      options.devices.device == DeviceKind::cuda && options.devices.gpu == "all" && cuda_devices(reason) == 0)
    throw DeviceError("--gpu all: " + reason + "; list the devices to plan for, like --gpu 0,1,2,3");
  options.devices = in_processes(with_devices(options.devices), options.processes);
  Diagnostics diagnostics;
  const bool knows_batches = open_planned_run(run, diagnostics);
  const Provider& provider = *run.provider;
  std::string found;
  const auto measured = [&]() -> Predictor& {
    if (!predictor) predictor.emplace("measured");
    return *predictor;
  };
  const Graph graph = graph_of(run, knows_batches, options.devices, measured,
                               predictor ? &*predictor : nullptr, found, diagnostics);
  options.step.mini = run.options.step.mini;
  if (!found.empty() && !options.report.json) fmt::print("{}\n\n", found);
  print_notes({unused_devices(graph, options.devices), too_many_threads(options.devices),
               predictor ? predictor->too_many_devices(options.devices.gpus().size()) : ""});
  if (!options.flat.empty()) write_whole_file(options.flat, generated_text(flat_text(run.files.definition)));
  const Minibatches rows = minibatches(run, knows_batches);
  print_notes({lone_values(graph, rows.train)});
  const auto target = make_target(options.devices, graph.gpu_count());
  PlanSet plans(graph, provider.matrices(), *target, plan_options(options.step, options.devices, provider));
  plans.make_verified({{Phase::train, rows.train}, {Phase::test, rows.test}});
  const Plan& train = plans.plan(Phase::train, rows.train);
  const Plan& test = plans.plan(Phase::test, rows.test);
  check_init_from(run, graph, plans);
  nlohmann::json plan = plan_json(plans, train, test, options.report.verbose);
  if (!found.empty()) plan["placement"] = found;
  if (predictor) {
    const Simulation simulation = predictor->predict(options.devices, train, plans.devices());
    plan["prediction"] = simulation_json(simulation, train, graph, predictor->name());
    plan["prediction"]["memory"] = fit_json(plans, predictor->memory(options.devices));
    if (!options.trace.empty()) {
      ChromeTrace trace;
      trace.add_step(train, graph, simulation.times);
      trace.write(options.trace);
    }
    if (const int devices = plans.devices(); devices > 1) {
      const double alone = seconds_alone(run, options, rows.train, devices, *predictor);
      plan["prediction"]["step_seconds_on_one_device"] = alone;
      print_notes({slower_warning(devices, simulation.step, alone)});
    }
  }
  fmt::print("{}\n", options.report.json ? plan.dump(2) : plan_text(plan));
  if (predictor && !options.report.json) fmt::print("{}", prediction_text(plan["prediction"]));
}

}  // namespace convnet
