// `convnet place` finds the fastest placement of a net's layers and writes it as two files.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "convnet/base/error.h"
#include "convnet/base/generated_text.h"
#include "convnet/base/notes.h"
#include "convnet/base/output_file.h"
#include "convnet/base/printable.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/net/auto_minibatch.h"
#include "convnet/net/auto_placement.h"
#include "convnet/net/data_set.h"
#include "convnet/net/devices.h"
#include "convnet/net/find_net.h"
#include "convnet/net/net_files.h"
#include "convnet/place/placed_files.h"
#include "convnet/plan/hash.h"

namespace convnet {
namespace {

constexpr double kMebibyte = 1 << 20;

struct PlaceCommandOptions {
  static constexpr OptionGroup group = OptionGroup::output;
  NetFileOptions files;
  DataOptions data;
  StepOptions step;
  DeviceOptions devices;
  ReportOptions report;
  std::string model, out, out_params;
  int top = 5;
  double memory_limit = 0;  ///< MiB
  bool exhaustive = false;
};

const OptionTable<PlaceCommandOptions>& options_of_place() {
  static const auto table =
      OptionTable<PlaceCommandOptions>()
          .add(&PlaceCommandOptions::files, net_file_options())
          .add(&PlaceCommandOptions::step, step_options())
          .add(&PlaceCommandOptions::data,
               planned_data_options().without({"train-range", "test-range", "multiview-test"}))
          .add({
              unsaved_option("model", &PlaceCommandOptions::model,
                             {.fallback = "",
                              .unit = "file",
                              .doc = "the machine: 'measured' times each operation here, else a device model "
                                     "file, like bench/models/nvlink-8gpu.json; where that says "
                                     "concurrent_streams, --device auto means cuda"}),
              unsaved_option("out", &PlaceCommandOptions::out,
                             {.fallback = "",
                              .unit = "file",
                              .doc = "file for the layer definition with the gpu= lines that were found"}),
              unsaved_option(
                  "out-params", &PlaceCommandOptions::out_params,
                  {.fallback = "",
                   .unit = "file",
                   .doc = "file for the learning parameters with the updatePeriod= lines that keep "
                          "one update a minibatch"}),
              unsaved_option("top", &PlaceCommandOptions::top,
                             {.fallback = "5", .min = 1, .max = 1000, .doc = "candidates in the table"}),
              unsaved_option("memory-limit", &PlaceCommandOptions::memory_limit,
                             {.fallback = "0",
                              .min = 0,
                              .max = 1e9,
                              .unit = "MiB",
                              .doc = "memory of a device; 0: what the model says, or what is free on this "
                                     "machine"}),
              unsaved_option(
                  "exhaustive", &PlaceCommandOptions::exhaustive,
                  {.fallback = "0",
                   .doc = "simulate every candidate that the rules allow; where these are too many, "
                          "layers that cannot be divided stay together"}),
          })
          .add(&PlaceCommandOptions::devices,
               device_options().only({"gpu", "hosts", "device", "threads", "precision"}))
          .add(&PlaceCommandOptions::report, report_options().only({"json"}));
  return table;
}

void check_out_files(const PlaceCommandOptions& options) {
  if (options.out.empty() != options.out_params.empty())
    throw InputError("--out and --out-params belong together: a placement has lines in both files");
  std::vector<std::string> inputs = layer_files(options.files);
  inputs.push_back(options.model);
  check_outputs({{"--out", options.out, "the net is to be written to", "", is_unedited},
                 {"--out-params", options.out_params, "the net is to be written to", "", is_unedited}},
                inputs);
}

Graph graph_of(const NetFiles& files, const Provider& provider, const PlaceCommandOptions& options,
               const Placement* placement) {
  Diagnostics diagnostics;
  GraphOptions graph = graph_options(options.files, options.devices, options.step);
  graph.placement = placement;
  Graph made = checked_graph(files, provider, graph, diagnostics);
  check_microbatches(made, options.step);
  return made;
}

/// Builds the plans of a training step and of a test, and proves them. Returns the hash of the first.
std::uint64_t proven_plan(const Graph& graph, const Provider& provider, const PlaceCommandOptions& options) {
  const auto target = make_target(options.devices, graph.gpu_count());
  PlanSet plans(graph, provider.matrices(), *target, plan_options(options.step, options.devices, provider));
  plans.make_verified({{Phase::train, options.step.mini}, {Phase::test, options.step.mini}});
  return plan_hash(plans.plan(Phase::train, options.step.mini));
}

/// Makes the two files of a placement, and checks that they give the same plan.
NetFiles files_of(const NetFiles& files, const Provider& provider, const PlaceCommandOptions& options,
                  const PlacedCandidate& best) {
  const Graph graph = graph_of(files, provider, options, &best.placement);
  const PlacedFiles placed = placed_files(files.definition, files.parameters, graph, best.placement);
  NetFiles written{placed.definition, placed.parameters};
  if (proven_plan(graph_of(written, provider, options, nullptr), provider, options) !=
      proven_plan(graph, provider, options))
    throw std::logic_error("place: the files that were written do not have the plan that was found");
  return written;
}

/// Writes both files or none.
void write_files(const PlaceCommandOptions& options, const std::string& layers, const std::string& learning) {
  OutputFile definition(options.out), parameters(options.out_params);
  definition.write(generated_text(layers));
  parameters.write(generated_text(learning));
  definition.publish();
  parameters.publish();
}

nlohmann::json candidate_json(const PlacedCandidate& c, double alone) {
  nlohmann::json layers = nlohmann::json::object();
  for (const auto& [layer, place] : c.placement) {
    layers[layer] = {{"gpu", numbers_of(place.gpus)}};
    if (!place.divided()) continue;
    layers[layer]["parallel"] = "model";
    layers[layer]["parts"] = place.parts;
  }
  return {{"name", c.name},
          {"description", c.description},
          {"step_seconds", c.seconds},
          {"speed_up", alone / c.seconds},
          {"devices", c.devices},
          {"memory_bytes", c.memory},
          {"bytes_moved", c.moved},
          {"limited_by", c.limited_by},
          {"fits", c.fits},
          {"layers", std::move(layers)}};
}

/// One device's seconds.
double seconds_alone(const PlacementAnswer& answer) {
  for (const PlacedCandidate& c : answer.candidates) {
    if (c.name == "one device") return c.seconds;
  }
  throw std::logic_error("place: one device is always a candidate");
}

std::string table_of(const std::vector<const PlacedCandidate*>& rows, double alone) {
  std::string text =
      fmt::format("{:>10}  {:>8}  {:>7}  {:>10}  {:>9}  what runs where; what takes the time\n", "step ms",
                  "speed-up", "devices", "memory MiB", "moved MiB");
  for (const PlacedCandidate* c : rows) {
    text +=
        fmt::format("{:>10.3f}  {:>7.2f}x  {:>7}  {:>10.1f}  {:>9.1f}  {}{}{}\n{:>54}{}\n", 1e3 * c->seconds,
                    alone / c->seconds, c->devices, static_cast<double>(c->memory) / kMebibyte,
                    static_cast<double>(c->moved) / kMebibyte, c->name.empty() ? "" : c->name + ": ",
                    c->description, c->fits ? "" : " (does not fit the memory)", "", c->limited_by);
  }
  return text;
}

std::string memory_text(const MachineMemory& memory) {
  if (memory.bytes == 0)
    return "the model has no 'memory', so no candidate is left out for want of it; --memory-limit sets it\n";
  return fmt::format("candidates fit into {:.0f} MiB {}\n", static_cast<double>(memory.bytes) / kMebibyte,
                     memory.shared ? "that the devices share" : "of each device");
}

/// The best ones, and those that have a name.
std::vector<const PlacedCandidate*> rows_of(const PlacementAnswer& answer, int top) {
  std::vector<const PlacedCandidate*> rows;
  for (const PlacedCandidate& c : answer.candidates) {
    if (top > 0 || !c.name.empty()) rows.push_back(&c);
    --top;
  }
  return rows;
}

}  // namespace

const std::vector<OptionSpec>& place_command_options() { return options_of_place().specs(); }

void place_command(const std::vector<std::string>& args) {
  OptionTexts texts = parse_training_line("place", args).used;
  const bool by_name = names_ready_net(texts);
  add_parameters(texts);
  require_options(texts, {"layer-def", "layer-params", "data-provider", "model"},
                  texts.contains("model") ? "" : "; --model measured times the operations on this machine");
  PlaceCommandOptions options = options_of_place().parse(texts);
  check_out_files(options);
  check_distinct_gpus(texts, options.devices);
  Predictor predictor(options.model);
  if (options.devices.device == DeviceKind::automatic && predictor.describes_gpus())
    options.devices.device = DeviceKind::cuda;
  options.devices = with_devices(options.devices);
  print_notes({predictor.too_many_devices(options.devices.gpus().size())});
  Diagnostics diagnostics;
  options.data.hold_out = true;  // as in training without ranges of batches
  const auto provider = open_provider(options.data, options.step.seed);
  std::optional<BatchRange> trained;
  if (const std::optional<BatchSplit> split = provider->split(); split) trained = split->train;
  LabelFit labels;
  if (is_ready_net(options.files)) labels = label_fit(*provider, trained);
  if (by_name && trained) {
    print_notes({choose_small_minibatch(options.step, texts, image_count(*provider, *trained),
                                        largest_batch(*provider, *trained))});
  }
  const NetFiles files = read_net_files(options.files, labels, diagnostics);
  diagnostics.throw_if_errors();
  const auto limit = static_cast<std::int64_t>(options.memory_limit * kMebibyte);
  const PlacementAnswer answer = find_placements(files, *provider, options.files, options.devices,
                                                 options.step, predictor, {limit, options.exhaustive});
  const PlacedCandidate& best = answer.candidates[0];
  const NetFiles written = files_of(files, *provider, options, best);
  if (!options.out.empty()) {
    const std::string head =
        fmt::format("# convnet place for {} devices, {} images a minibatch, {}:\n# {}\n",
                    options.devices.gpus().size(), options.step.mini, predictor.name(), best.description);
    write_files(options, head + written.definition.text, written.parameters.text);
  }
  const double alone = seconds_alone(answer);
  const std::vector<const PlacedCandidate*> rows = rows_of(answer, options.top);
  if (options.report.json) {
    nlohmann::json report = {{"model", predictor.name()},
                             {"images", options.step.mini},
                             {"devices", options.devices.gpus().size()},
                             {"simulated", answer.simulated},
                             {"possible", answer.possible},
                             {"exhaustive", answer.exhaustive},
                             {"memory", {{"bytes", answer.memory.bytes}, {"shared", answer.memory.shared}}},
                             {"layers_kept_together", answer.joined},
                             {"candidates", nlohmann::json::array()}};
    for (const PlacedCandidate* c : rows) report["candidates"].push_back(candidate_json(*c, alone));
    return fmt::print("{}\n", report.dump(2));
  }
  fmt::print("{} candidates simulated{} for {}, {} images a minibatch\n{}\n{}", answer.simulated,
             answer.exhaustive ? ", all that there are" : "", predictor.name(), options.step.mini,
             memory_text(answer.memory), table_of(rows, alone));
  if (!options.out.empty())
    fmt::print("\nThe first one is in {} and {}; train it with --layer-def {} --layer-params {}\n",
               options.out, options.out_params, shell_word(options.out), shell_word(options.out_params));
}

}  // namespace convnet
