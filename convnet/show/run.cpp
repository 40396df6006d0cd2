#include "convnet/show/run.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/notes.h"
#include "convnet/base/printable.h"
#include "convnet/graph/whole_layers.h"
#include "convnet/net/data_set.h"
#include "convnet/net/devices.h"
#include "convnet/net/input_data.h"
#include "convnet/net/net_files.h"
#include "convnet/net/net_weights.h"
#include "convnet/plan/print.h"

namespace convnet {
namespace {

/// Returns why a net that was trained on data `then` cannot be tested on data `now`; "" if it can.
std::string difference(const std::vector<MatrixInfo>& then, const std::vector<MatrixInfo>& now) {
  if (std::string wrong = renumbered_class(then, now); !wrong.empty()) return wrong;
  for (std::size_t i = 0; i < then.size(); ++i) {
    if (i >= now.size()) return "it has no matrix '" + then[i].name + "'";
    if (then[i].dims != now[i].dims) {
      if (std::string missing = missing_class(then, now); !missing.empty()) return missing;
      return "its '" + now[i].name + "' are " + to_string(now[i].dims) + ", but the net was trained on " +
             to_string(then[i].dims);
    }
    if (then[i].classes < now[i].classes)
      return "it has " + std::to_string(now[i].classes) + " classes, but the net was trained on " +
             std::to_string(then[i].classes);
  }
  for (std::size_t i = 0; i < then.size(); ++i) {
    if (then[i].type != now[i].type)
      return "its '" + now[i].name + "' are of type " + to_string(now[i].type) +
             ", but the net was trained on " + to_string(then[i].type);
  }
  return "";
}

double mean_magnitude(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += std::abs(static_cast<double>(v));
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

}  // namespace

const OptionTable<RunOptions>& run_options() {
  static const auto table = OptionTable<RunOptions>()
                                .add(&RunOptions::files, net_file_options().only({"strict"}))
                                .add(&RunOptions::data, data_options())
                                .add(&RunOptions::step, step_options())
                                .add(&RunOptions::devices, device_options());
  return table;
}

Run open_run(Checkpoint checkpoint, const OptionTexts& given) {
  Run run;
  run.checkpoint = std::move(checkpoint);
  OptionTexts texts = run.checkpoint.options;
  // One view of an image is enough to show it, and few images are shown: a cache of all would not help.
  for (const char* option : {"multiview-test", "cache-images"}) texts.erase(option);
  for (const auto& [key, text] : given) texts[key] = text;
  require_options(texts, {"data-provider"}, "; the checkpoint does not say it");
  run.options = run_options().parse(texts);
  check_distinct_gpus(given, run.options.devices);
  run.options.devices = with_devices(run.options.devices);

  Diagnostics diagnostics;
  const Checkpoint& c = run.checkpoint;
  run.files = stored_files(c, diagnostics);
  run.matrices = c.matrices;
  // The curves' batches are those of the run, whatever becomes of its data set; a test may be of others.
  DataOptions& data = run.options.data;
  if (c.train_range) data.train_range = *c.train_range;
  if (c.test_range && !given.contains("test-range")) data.test_range = *c.test_range;
  try {
    const bool data_given = given.contains("data-path") || given.contains("labels");
    const std::string batches = choose_ranges(data, texts, data_given);
    if (data_given) print_notes({batches});
    if (c.train_range) data.train_range = *c.train_range;
    run.provider = open_provider(run.options.data, run.options.step.seed);
    run.provider->check_range(run.options.data.test_range, "--test-range");
    if (run.matrices.empty()) run.matrices = run.provider->matrices();
    if (const std::string wrong = difference(run.matrices, run.provider->matrices()); !wrong.empty())
      throw InputError("the data set does not fit: " + wrong);
  } catch (const std::runtime_error& e) {  // InputError or RunError: there is more to show than predictions
    run.provider = nullptr;
    run.no_provider =
        e.what() + (given.contains("data-path") ? "" : moved_data_text(c, data.path, "--data-path"));
    if (run.matrices.empty())
      throw InputError(
          c.file +
          ": does not say what the data looked like, and the data set cannot be read: " + run.no_provider);
  }
  const auto graph = [&](Diagnostics& wrong) {
    return build_graph(run.files.definition, run.files.parameters, run.matrices,
                       graph_options(run.options.files, run.options.devices, run.options.step), wrong);
  };
  diagnostics.throw_if_errors();
  Diagnostics on_its_devices;
  run.graph = graph(on_its_devices);
  if (on_its_devices.has_errors() && !given.contains("gpu")) {
    // The run had several processes, and the devices of one are not enough for its gpu= lines.
    run.options.devices.gpu = "0";
    run.options.devices.parallel = Parallel::data;
    run.options.devices.devices_of_hosts.clear();
    run.options.devices = with_devices(run.options.devices);
    run.graph = graph(diagnostics);
    diagnostics.throw_if_errors();
  } else {
    on_its_devices.throw_if_errors();
  }
  return run;
}

LayerWeights weights_of(const Run& run, const std::string& layer, int input) {
  const Node* node = find_layer(run.graph, layer);
  if (node == nullptr || node->layer->input_weights() == 0) {
    std::vector<std::string> names;
    for (const Node* n : whole_layers(run.graph)) {
      if (n->layer->input_weights() > 0) names.push_back(n->layer_name);
    }
    throw InputError((node == nullptr ? "the net has no layer " + excerpt(layer)
                                      : "layer '" + layer + "' of type '" + node->type + "' has no filters") +
                     did_you_mean(layer, names,
                                  names.empty() ? "it has no layer with filters"
                                                : "layers with filters are " + join(names)));
  }
  const std::size_t inputs = node->layer->input_weights();
  if (static_cast<std::size_t>(input) >= inputs)
    throw InputError("--input-idx " + std::to_string(input) + ": layer '" + layer + "' has inputs 0 to " +
                     std::to_string(inputs - 1));
  const WeightOwner& owner = node->owners[static_cast<std::size_t>(input)];
  const WeightSpec& spec = run.graph.weight(owner);
  const std::string name = run.graph.nodes[owner.node].layer_name + "." + spec.name;
  const auto& tensors = run.checkpoint.tensors.tensors;
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw InputError(run.checkpoint.file + ": has no tensor '" + name + "'");
  const Dims dims = whole_matrix(run.graph, owner).dims;
  if (found->second.dims != dims)
    throw InputError(run.checkpoint.file + ": tensor '" + name + "' is " + to_string(found->second.dims) +
                     ", but the net needs " + to_string(dims));
  return {name, &found->second};
}

std::vector<Magnitude> magnitudes(const Run& run) {
  std::vector<Magnitude> all;
  const auto& tensors = run.checkpoint.tensors.tensors;
  for (const Node* node : whole_layers(run.graph)) {
    for (const WeightSpec& spec : node->layer->weights) {
      const auto weights = tensors.find(node->layer_name + "." + spec.name);
      const auto updates = tensors.find(increment_name(node->layer_name, spec.name));
      if (weights == tensors.end() || spec.state) continue;  // shared, or not learned
      // Frozen matrices have no increments.
      all.push_back({weights->first, weights->second.dims, mean_magnitude(weights->second.values),
                     updates == tensors.end() ? 0 : mean_magnitude(updates->second.values)});
    }
  }
  return all;
}

std::string plan_of(const Run& run) {
  const auto target = make_target(run.options.devices, run.graph.gpu_count());
  const StepOptions& step = run.options.step;
  const std::shared_ptr<const Provider> provider =
      run.provider ? run.provider : stand_in_for_data(run.checkpoint, run.options.data, step.seed);
  PlanSet plans(run.graph, provider->matrices(), *target, plan_options(step, run.options.devices, *provider));
  const Plan& train = plans.plan(Phase::train, step.mini);
  const Plan& test = plans.plan(Phase::test, step.mini);
  return plan_text(plan_json(plans, train, test, false));
}

}  // namespace convnet
