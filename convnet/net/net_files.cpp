#include "convnet/net/net_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>

#include "convnet/base/error.h"
#include "convnet/base/text_file.h"
#include "convnet/config/ini_lines.h"
#include "convnet/net/convert.h"
#include "convnet/net/find_net.h"
#include "convnet/net/foreign_net.h"

namespace convnet {
namespace {

/// Reads a file of a net, which an option names. A file of another program is one mistake, not hundreds.
IniFile read_net_file(const NetFileOptions& options, const std::string& name, CfgFile which,
                      Diagnostics& diagnostics) {
  const std::string path = find_net_file(options.layer_path, name, which);
  const char* const option = which == CfgFile::definition ? "--layer-def" : "--layer-params";
  const SourceLocation place{std::make_shared<const std::string>(path), 0};
  std::string text;
  try {
    text = read_bytes(path, kMaxIniBytes);
  } catch (const InputError& wrong) {
    const std::string reason = std::string(wrong.what()).substr(path.size() + 2);  // without "PATH: "
    std::error_code ignored;
    const bool may_be_ours = name.find('/') == std::string::npos && !std::filesystem::exists(path, ignored);
    std::vector<std::string> known = installed_net_files(which);
    if (which == CfgFile::definition && !name.ends_with(".cfg"))
      for (std::string& file : known) file = short_net_name(file);
    std::string hint = may_be_ours ? did_you_mean(name, known) : std::string();
    if (!options.layer_path.empty() && std::filesystem::exists(name, ignored))
      hint = fmt::format(
          "; there is {}, but --layer-path {}, of this command or of the checkpoint, is put before it: add "
          "--layer-path .",
          name, options.layer_path);
    else if (may_be_ours && known.empty())
      hint = "; " + no_folder_of_nets();
    diagnostics.error(place, reason + hint);
    return {path, "", {}};
  }
  if (const std::string foreign = foreign_net(text, which); !foreign.empty()) {
    diagnostics.error(place, foreign);
    return {path, "", {}};
  }
  if (path != (std::filesystem::path(options.layer_path) / name).string())
    diagnostics.note(fmt::format("Note: {} {} is {}", option, name, path));
  return parse_ini(path, std::move(text), diagnostics);
}

bool has_types(const IniFile& file) {
  return std::any_of(file.sections.begin(), file.sections.end(),
                     [](const IniSection& section) { return section.find("type") != nullptr; });
}

/// Throws InputError if the two files are given in place of each other.
void check_not_swapped(const NetFileOptions& options, const NetFiles& files) {
  if (has_types(files.definition) || !has_types(files.parameters)) return;
  throw InputError(fmt::format(
      "{} and {} look swapped: the second says what the layers are, with a 'type' for each; type --layer-def "
      "{} --layer-params {}",
      files.definition.path, files.parameters.path, options.layer_params, options.layer_def));
}

}  // namespace

bool is_ready_net(const NetFileOptions& options) {
  const std::string as_typed = (std::filesystem::path(options.layer_path) / options.layer_def).string();
  return !options.layer_def.empty() && definition_file(options) != as_typed &&
         is_installed(definition_file(options));
}

IniFile read_parameters(const NetFileOptions& options, const IniFile& definition, Diagnostics& diagnostics) {
  IniFile parameters = read_net_file(options, options.layer_params, CfgFile::parameters, diagnostics);
  if (is_installed(parameters.path)) fit_parameters(parameters, definition);
  return parameters;
}

IniFile read_definition(const NetFileOptions& options, const LabelFit& labels, Diagnostics& diagnostics) {
  IniFile definition = read_net_file(options, options.layer_def, CfgFile::definition, diagnostics);
  if (is_ready_net(options)) {
    if (const std::string end = fit_definition(definition, labels); !end.empty())
      diagnostics.note(
          fmt::format("Note: the data set has {}, so the net ends in {}, in place of softmax and "
                      "cost.logreg",
                      to_string(labels.kind), end));
    if (!labels.warning.empty()) diagnostics.note(labels.warning);
  }
  convert_definition(definition, options, diagnostics);
  return definition;
}

std::string definition_file(const NetFileOptions& options) {
  return find_net_file(options.layer_path, options.layer_def, CfgFile::definition);
}

std::string parameter_file(const NetFileOptions& options) {
  return find_net_file(options.layer_path, options.layer_params, CfgFile::parameters);
}

std::vector<std::string> layer_files(const NetFileOptions& options) {
  std::vector<std::string> files;
  if (!options.layer_def.empty()) files.push_back(definition_file(options));
  if (!options.layer_params.empty()) files.push_back(parameter_file(options));
  return files;
}

NetFiles read_net_files(const NetFileOptions& options, const LabelFit& labels, Diagnostics& diagnostics) {
  NetFiles files = {read_definition(options, labels, diagnostics), {}};
  files.parameters = read_parameters(options, files.definition, diagnostics);
  // Without one of the files, every further error would only follow from that.
  if (files.definition.text.empty() || files.parameters.text.empty()) diagnostics.throw_if_errors();
  check_not_swapped(options, files);
  apply_settings(options.set, files.definition, files.parameters, diagnostics);
  return files;
}

NetFiles stored_files(const Checkpoint& c, Diagnostics& diagnostics) {
  return {parse_ini(c.file + ": " + c.definition_path, c.definition_text, diagnostics),
          parse_ini(c.file + ": " + c.parameters_path, c.parameters_text, diagnostics)};
}

PlanOptions plan_options(const StepOptions& options, const DeviceOptions& devices, const Provider& provider) {
  return {.seed = options.seed,
          .mean = provider.step_subtracts_mean(),
          .conserve_memory = options.conserve_mem,
          .views = provider.views(),
          .images = options.mini,
          .topology = devices.topology(),
          .clips = options.clip_norm > 0,
          .averages = options.ema > 0};
}

GraphOptions graph_options(const NetFileOptions& files, const DeviceOptions& devices,
                           const StepOptions& step) {
  GraphOptions options{files.strict, true, static_cast<int>(devices.gpus().size()),
                       devices.parallel == Parallel::data};
  options.processes = std::max(1, static_cast<int>(devices.devices_of_processes.size()));
  options.microbatches = step.microbatches;
  return options;
}

void check_microbatches(const Graph& graph, const StepOptions& options) {
  const int replicas = graph.cut().replicas;
  const int images = (options.mini + replicas - 1) / replicas;
  if (options.microbatches > images)
    throw InputError(
        fmt::format("--microbatches {}: a replica has {} image{} of a minibatch of {} (--mini); "
                    "use at most {}",
                    options.microbatches, images, images == 1 ? "" : "s", options.mini, images));
}

std::string unused_devices(const Graph& graph, const DeviceOptions& options) {
  const std::size_t listed = options.gpus().size();
  std::set<DeviceId> used;
  for (const Node& node : graph.nodes) {
    used.insert(node.gpus.begin(), node.gpus.end());
    used.insert(node.division.gpus.begin(), node.division.gpus.end());
  }
  // A search that leaves devices out has said so.
  if (listed <= used.size() || options.parallel == Parallel::automatic) return "";
  return fmt::format("warning: the run has {} devices, but the layers use {}; --parallel data uses all",
                     listed, used.size());
}

std::string lone_values(const Graph& graph, std::int64_t minibatch) {
  const std::int64_t microbatch = graph.images_of(minibatch, 0);
  MinibatchCut uncut = graph.cut();
  uncut.per_replica = 1;
  const bool is_cut = uncut.images_of(minibatch, 0) > microbatch;
  for (const Node& node : graph.nodes) {
    const SeesImages sees = node.layer->facts.sees;
    if (sees == SeesImages::own || node.layer->output.h * node.layer->output.w > 1) continue;
    if (microbatch * (sees == SeesImages::of_pass ? std::ssize(node.gpus) : 1) > 1) continue;
    return fmt::format(
        "warning: layer '{}' of type '{}' normalises over one image, so its output is the same for all "
        "images, and its running statistics never change; use {}a larger --mini",
        node.name, node.type, is_cut ? "fewer --microbatches or " : "");
  }
  return "";
}

namespace {

/// Returns whether a pass of several makes an update of the node's weights.
bool is_updated_in_passes(const Graph& graph, const Node& node) {
  if (node.update_period >= graph.passes) return false;
  for (std::size_t i = 0; i < node.layer->weights.size(); ++i)
    if (graph.learns(node, i)) return true;
  return false;
}

/// Returns the number of images over which the node normalises, or the whole minibatch if it does not.
std::int64_t normalised_images(const Graph& graph, const Node& node, std::int64_t minibatch) {
  const SeesImages sees = node.layer->facts.sees;
  if (sees == SeesImages::own) return minibatch;
  const std::int64_t replicas = sees == SeesImages::of_pass ? node.replicas() : 1;
  return std::min(minibatch, replicas * graph.images_of(minibatch, 0));
}

/// Returns "'fc1'", or "'fc1' and 2 other layers".
std::string layers_text(const std::string& first, std::size_t count) {
  if (count == 1) return "'" + first + "'";
  return fmt::format("'{}' and {} other layer{}", first, count - 1, count == 2 ? "" : "s");
}

}  // namespace

std::string changes_of_learning(const Graph& graph, std::int64_t minibatch) {
  std::set<std::string> updated, normalised;
  std::string first_updated, first_normalised;
  int period = graph.passes;
  std::int64_t images = minibatch;
  for (const Node& node : graph.nodes) {
    if (is_updated_in_passes(graph, node)) {
      if (updated.empty()) first_updated = node.section;
      updated.insert(node.section);
      period = std::min(period, node.update_period);
    }
    if (const std::int64_t seen = normalised_images(graph, node, minibatch); seen < minibatch) {
      if (normalised.empty()) first_normalised = node.section;
      normalised.insert(node.section);
      images = std::min(images, seen);
    }
  }
  std::vector<std::string> notes;
  if (!updated.empty())
    notes.push_back(fmt::format(
        "Note: {} {} updated up to {} times in a minibatch, which takes {} passes, and so learn{} otherwise "
        "than on one device; updatePeriod={} makes one update of a minibatch",
        layers_text(first_updated, updated.size()), updated.size() == 1 ? "is" : "are", graph.passes / period,
        graph.passes, updated.size() == 1 ? "s" : "", graph.passes));
  if (!normalised.empty())
    notes.push_back(fmt::format("Note: {} normalise{} over {} of the {} images of a minibatch",
                                layers_text(first_normalised, normalised.size()),
                                normalised.size() == 1 ? "s" : "", images, minibatch));
  return join(notes, "\n");
}

Graph checked_graph(const NetFiles& files, const Provider& provider, const GraphOptions& options,
                    Diagnostics& diagnostics) {
  Graph graph = build_graph(files.definition, files.parameters, provider.matrices(), options, diagnostics);
  diagnostics.throw_if_errors();
  return graph;
}

}  // namespace convnet
