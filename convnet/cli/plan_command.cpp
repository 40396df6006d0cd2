// `convnet plan`: what a net needs, without running it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "convnet/base/error.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/net/net.h"
#include "convnet/plan/measure.h"
#include "convnet/plan/print.h"
#include "convnet/plan/simulate.h"

namespace convnet {
namespace {

/// Predicts steps as --model says: from a file of a machine's numbers, or by timing the operations here.
class Predictor {
 public:
  explicit Predictor(const std::string& model) : name_(model) {
    if (model != "measured") model_ = read_device_model(model);
  }

  /// A measured prediction is of the devices of `plans`. CPU devices share the machine, so all work at once;
  /// of GPUs the first is measured, and all taken to be alike.
  Simulation predict(const PlanSet& plans, const Plan& plan) const {
    if (model_) return simulate(plan, model_seconds(plan, *model_), model_->concurrent_streams);
    const bool alone = !plans.backend().shares_memory();
    return simulate(plan, measure_seconds(plan, plans.backend(), alone ? 1 : plans.devices()), alone);
  }
  std::string name() const { return model_ ? model_->name : "this machine, measured"; }

 private:
  std::string name_;
  std::optional<DeviceModel> model_;
};

std::string prediction_text(const nlohmann::json& prediction) {
  std::string text = simulation_text(prediction);
  if (const auto alone = prediction.find("step_seconds_on_one_device"); alone != prediction.end())
    text += fmt::format("one device alone: {:.3f} ms a step; speed-up {:.2f}\n", alone->get<double>() * 1e3,
                        alone->get<double>() / prediction["step_seconds"].get<double>());
  return text;
}

/// The same minibatch on one of the devices alone.
double seconds_alone(const NetFiles& files, const Provider& provider, Options options, int devices,
                     const Predictor& predictor) {
  options.threads = std::max(1, thread_count(options) / devices);
  options.gpu = "0";
  options.parallel = "data";
  Diagnostics reported;
  const Graph graph = checked_graph(files, provider, options, reported);
  const auto backend = make_backend(options, 1);
  PlanSet plans(graph, provider.matrices(), *backend, plan_options(options, provider));
  return predictor.predict(plans, plans.plan(Phase::train, options.mini)).step;
}

}  // namespace

void plan_command(const std::vector<std::string>& args) {
  const OptionTexts texts = parse_command_line('p', args);
  require_options(texts, {"layer-def", "layer-params", "data-provider"}, "");
  const Options options = with_devices(parse_options(texts));
  if (options.model.empty() && !options.trace.empty())
    throw InputError("--trace writes a predicted timeline: --model must say of which machine");
  // A file that cannot be written is an error now, not after the work.
  if (!options.trace.empty()) ChromeTrace().write(options.trace);
  std::optional<Predictor> predictor;
  if (!options.model.empty()) predictor.emplace(options.model);
  Diagnostics diagnostics;
  const NetFiles files = read_net_files(options, diagnostics);
  const auto provider = open_provider(options);
  const Graph graph = checked_graph(files, *provider, options, diagnostics);
  for (const std::string& warning : diagnostics.warnings()) fmt::print(stderr, "{}\n", warning);
  for (const std::string& warning : {unused_devices(graph, options), too_many_threads(options)})
    if (!warning.empty()) fmt::print(stderr, "{}\n", warning);
  const auto backend = make_backend(options, graph.gpu_count());
  PlanSet plans(graph, provider->matrices(), *backend, plan_options(options, *provider));
  const Plan& train = plans.plan(Phase::train, options.mini);
  const Plan& test = plans.plan(Phase::test, options.mini);
  verify(train, graph);
  verify(test, graph);
  nlohmann::json plan = plan_json(plans, train, test, options.verbose);
  if (predictor) {
    const Simulation simulation = predictor->predict(plans, train);
    plan["prediction"] = simulation_json(simulation, train, graph, predictor->name());
    if (!options.trace.empty()) {
      ChromeTrace trace;
      trace.add_step(train, graph, simulation.times);
      trace.write(options.trace);
    }
    if (const int devices = plans.devices(); devices > 1) {
      const double alone = seconds_alone(files, *provider, options, devices, *predictor);
      plan["prediction"]["step_seconds_on_one_device"] = alone;
      if (const std::string warning = slower_warning(devices, simulation.step, alone); !warning.empty())
        fmt::print(stderr, "{}\n", warning);
    }
  }
  fmt::print("{}\n", options.json ? plan.dump(2) : plan_text(plan));
  if (predictor && !options.json) fmt::print("{}", prediction_text(plan["prediction"]));
}

}  // namespace convnet
