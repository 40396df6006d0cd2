#include "convnet/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"
#include "convnet/base/progress_line.h"
#include "convnet/graph/schedule.h"
#include "convnet/graph/whole_layers.h"
#include "convnet/net/costs.h"
#include "convnet/net/net_weights.h"
#include "convnet/plan/simulate.h"

namespace convnet {

void TimeUse::add(const Plan& plan, const TaskTimes& times, double wall) {
  const Table<DeviceId, DeviceShare> shares = device_shares(plan, times);
  for (const DeviceShare& share : shares) {
    compute += share.compute / static_cast<double>(shares.size());
    communication += share.communication / static_cast<double>(shares.size());
  }
  steps += wall;
  several = shares.size() > 1;
}

std::string TimeUse::text(double wall) const {
  const double percent = 100 / std::max(wall, 1e-9);
  return fmt::format(
      "time: {:.1f}% compute, {:.1f}% communication, {:.1f}% {}, {:.1f}% waiting for data, {:.1f}% other",
      percent * compute, percent * communication, percent * std::max(0.0, steps - compute - communication),
      several ? "devices waiting for each other" : "between tasks", percent * data,
      percent * std::max(0.0, wall - steps - data));
}

namespace {

/// Returns "2 on host a, 2 on host b".
std::string hosts_text(const Processes& processes) {
  std::vector<std::string> hosts;
  for (int r = 0; r < processes.count();) {
    int end = r;
    while (end < processes.count() && processes.host(end) == processes.host(r)) ++end;
    hosts.push_back(fmt::format("{} on host {}", end - r, processes.host(r)));
    r = end;
  }
  return join(hosts, ", ");
}

/// Returns " on cores 0-7 and 8-15"; "" if no device is bound.
std::string bound_text(const std::vector<CorePlace>& places) {
  std::vector<std::string> cores;
  for (const CorePlace& place : places)
    if (!place.cores.empty()) cores.push_back(cores_text(place));
  return cores.empty() ? "" : " on cores " + join(cores, " and ");
}

}  // namespace

std::string devices_text(const Net& net, const DeviceOptions& options, int minibatch) {
  const Graph& graph = net.graph();
  const int devices = net.plans().devices();
  std::vector<std::string> physical;
  for (const DeviceId d : net.plans().device_ids())
    physical.push_back(std::to_string(options.gpus()[d.index()]));
  const Processes* processes = net.executor().processes();
  const int own = used_here(options.topology(), devices, processes == nullptr ? 0 : processes->rank());
  std::string text = fmt::format("Devices: {}:{}, {} thread(s)", net.plans().target().name(),
                                 join(physical, ","), threads_of_each(options, own));
  if (devices > 1) text += " each";
  if (net.plans().target().name() == "cpu" && processes == nullptr)
    text += bound_text(core_places(options, own));
  if (processes != nullptr)
    text += fmt::format(", in {} processes ({}{})", processes->count(), hosts_text(*processes),
                        net.executor().has_communicator() ? "; NCCL" : "");
  text += fmt::format("; minibatches of {} image{}", minibatch, minibatch == 1 ? "" : "s");
  const MinibatchCut cut = graph.cut();
  if (cut.replicas > 1)
    text += fmt::format(", {} a replica on {} replicas, in {} pass{}",
                        MinibatchCut{cut.replicas}.images_of(minibatch, 0), cut.replicas, cut.passes,
                        cut.passes == 1 ? "" : "es");
  if (cut.per_replica > 1) text += fmt::format(", in microbatches of {}", graph.images_of(minibatch, 0));
  if (const int depth = pipeline_depth(graph); depth > 1)
    text += fmt::format(", in a pipeline of {} stages", depth);
  if (std::string reason; options.device == DeviceKind::automatic && cuda_devices(reason) == 0)
    text += "; no GPU: " + reason;
  return text;
}

namespace {

/// Returns "2 min 5 s".
std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole < 60) return fmt::format("{:.1f} s", seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

}  // namespace

std::string divergence_advice(const StepOptions& options, bool updated) {
  if (!updated)
    return "\nno weight has been updated yet: look at the data, whose values may be large (--pixel-std 1 "
           "divides them), at initial weights (initW), and at neurons that are not defined everywhere, like "
           "log";
  return std::string(
             "\ntry lower learning rates (epsW and epsB in the parameter file), a tenth to begin with") +
         (options.clip_norm > 0 ? ", or a lower --clip-norm"
                                : ", or --clip-norm 1, which bounds the gradient");
}

bool out_of_patience(const TrainOptions& options, const BestTest& best) {
  return options.patience > 0 && best.tests_since >= options.patience;
}

std::string summary_text(const TrainingState& state, const TrainOptions& options, const WatchedCost& watched,
                         const Graph& graph, const MatrixInfo& images, double seconds,
                         const std::string& folder, const std::string& checkpoint) {
  const bool whole = state.position.minibatches == 0 && state.position.batch == options.data.train_range.last;
  std::string text = fmt::format("Trained {} epoch {} in {}\n", whole ? "to the end of" : "into",
                                 state.position.epoch, duration_text(seconds));
  const std::string cost = watched.text(graph);
  const auto number = [&](double value) { return value_text(watched.value_name(graph), value); };
  const auto last = std::find_if(state.history.rbegin(), state.history.rend(),
                                 [](const HistoryEntry& entry) { return entry.test_batch >= 0; });
  if (state.best.epoch > 0)
    text += fmt::format("  best test:   {} {}, after batch {}.{}\n", cost, number(state.best.value),
                        state.best.epoch, state.best.batch);
  if (last != state.history.rend())
    text += fmt::format("  last test:   {} {}, after batch {}.{}\n", cost,
                        number(watched.of(last->costs, graph)), last->epoch, last->batch);
  if (checkpoint.empty()) return text;
  text += fmt::format("  checkpoint:  {}\n", checkpoint);
  const std::string run = shell_word(folder);
  // Of a run of several processes the checkpoint has the devices of one, which may be too few for gpu= lines.
  const std::size_t processes = options.devices.devices_of_processes.size();
  const bool lacks_devices = processes > 1 && !options.devices.gpus_of(0).empty() &&
                             graph.gpu_count() > std::ssize(options.devices.gpus_of(0));
  text += fmt::format("  test it:     convnet --load-file {} --test-only 1{}\n", run,
                      lacks_devices ? " --parallel data" : "");
  const std::filesystem::path best = std::filesystem::path(folder) / kBestFile;
  std::error_code none;
  const bool has_best = !options.checkpoints.keep_best.empty() && std::filesystem::exists(best, none);
  const std::string chosen = has_best ? shell_word(best.string()) : run;
  if (has_answer(graph)) {
    text += fmt::format("  use it:      convnet predict {} {}...\n", chosen,
                        images.stores_floats() || images.dims.size() != 3 ? "ARRAY.npy" : "FILE");
    text += fmt::format("  export it:   convnet export {} net.onnx\n", chosen);
  }
  text += fmt::format("  look at it:  convnet show {} --html page.html\n", run);
  const bool over = whole && !state.test_due && state.position.epoch >= options.epochs;
  const int more = over ? 2 * options.epochs : options.epochs;
  text += fmt::format("  train on:    {}convnet --load-file {} --epochs {}",
                      processes > 1 ? fmt::format("mpirun -np {} ", processes) : "", run, more);
  if (options.time_limit > 0) text += " --time-limit " + options.time_limit_text();
  if (!options.data.cache_images.empty()) text += " --cache-images " + shell_word(options.data.cache_images);
  if (!options.tensorboard.empty()) text += " --tensorboard " + shell_word(options.tensorboard);
  if (out_of_patience(options, state.best))
    text += fmt::format(
        " --patience 0\n               --patience {} has ended the run; 0 clears it, and a larger number "
        "allows more tests",
        options.patience);
  return text + "\n";
}

std::string rates_text(const Net& net, const TrainingProgress& progress) {
  const std::vector<Rates> rates = net.rates(progress);
  std::optional<float> least, most;
  for (const WeightBuffers& w : net.plans().weights()) {
    if (!net.graph().weight({w.node, w.index}).learned()) continue;
    const float rate = rates.at(static_cast<std::size_t>(w.rate_index)).epsilon;
    least = std::min(least.value_or(rate), rate);
    most = std::max(most.value_or(rate), rate);
  }
  if (!least) return "none";
  return *least == *most ? fmt::format("{:.3g}", *least) : fmt::format("{:.3g} to {:.3g}", *least, *most);
}

std::string test_table(const CostSums& test, const CostSums* before, const BestTest& best,
                       const WatchedCost& watched, const Graph& graph) {
  std::string text =
      fmt::format("  {:<32} {:>12} {:>12}\n", "", "this test", before == nullptr ? "" : "before");
  const std::vector<CostReport> now = cost_reports(test, graph);
  const std::vector<CostReport> then = before == nullptr ? now : cost_reports(*before, graph);
  constexpr std::size_t kMost = 3;
  for (std::size_t c = 0; c < now.size(); ++c) {
    const std::vector<std::string> names = now[c].node->layer->cost_names();
    for (std::size_t i = 0; i < std::min({names.size(), now[c].values.size(), kMost}); ++i) {
      if (repeats_earlier(names, i)) continue;
      const std::string old = before == nullptr ? "" : value_text(names[i], then.at(c).values.at(i));
      text += fmt::format("  {:<32} {:>12} {:>12}\n", now[c].node->name + " " + names[i],
                          value_text(names[i], now[c].values[i]), old);
    }
  }
  const std::string name = watched.value_name(graph);
  text += fmt::format("  best {} {}: {}, after batch {}.{}\n", watched.layer, name,
                      value_text(name, best.value), best.epoch, best.batch);
  return text;
}

namespace {

nlohmann::json costs_json(const CostSums& costs, const Graph& graph) {
  nlohmann::json layers = nlohmann::json::object();
  for (const CostReport& report : cost_reports(costs, graph)) {
    const std::vector<std::string> names = report.node->layer->cost_names();
    nlohmann::json& values = layers[report.node->name];
    for (std::size_t i = 0; i < names.size(); ++i) values[names[i]] = report.values.at(i);
  }
  return layers;
}

nlohmann::json errors_json(const Classifier& classifier, const Confusion& confusion) {
  nlohmann::json classes = nlohmann::json::array();
  for (const ClassErrors& c : confusion.by_class())
    classes.push_back({{"class", classifier.class_names[c.label]},
                       {"index", c.label},
                       {"images", c.images},
                       {"wrong", c.wrong},
                       {"error", c.error()},
                       {"precision", c.precision()},
                       {"recall", c.recall()},
                       {"f1", c.f1()}});
  const MacroAverages macro = confusion.macro_averages();
  return {{"classes", std::move(classes)},
          {"macro_averages",
           {{"classes", macro.classes},
            {"precision", macro.precision},
            {"recall", macro.recall},
            {"f1", macro.f1}}}};
}

nlohmann::json tags_json(const TagScores& scores) {
  nlohmann::json tags = nlohmann::json::array();
  const auto [by_tag, means] = scores.results();
  for (const TagScore& s : by_tag)
    tags.push_back({{"tag", scores.names()[s.tag]},
                    {"index", s.tag},
                    {"images", s.images},
                    {"average_precision", s.average_precision},
                    {"precision", s.precision()},
                    {"recall", s.recall()},
                    {"f1", s.f1()},
                    {"best_threshold", s.best_threshold},
                    {"best_f1", s.best_f1}});
  return {{"tags", std::move(tags)},
          {"threshold", scores.threshold()},
          {"means",
           {{"tags", means.tags},
            {"average_precision", means.average_precision},
            {"f1", means.f1},
            {"pooled_f1", means.pooled_f1}}}};
}

nlohmann::json number_json(const NumberScore& score) {
  nlohmann::json json = {{"root_mean_squared_error", score.root_mean_squared_error},
                         {"mean_absolute_error", score.mean_absolute_error},
                         {"r2", nullptr}};
  if (score.r2) json["r2"] = *score.r2;
  return json;
}

nlohmann::json numbers_json(const NumberScores& scores) {
  nlohmann::json numbers = nlohmann::json::array();
  const std::vector<NumberScore> by_number = scores.by_number();
  for (std::size_t i = 0; i < by_number.size(); ++i) {
    numbers.push_back(number_json(by_number[i]));
    numbers.back().update({{"number", scores.names()[i]}, {"index", i}});
  }
  return {{"images", scores.images()},
          {"numbers", std::move(numbers)},
          {"means", number_json(NumberScores::means(by_number))}};
}

}  // namespace

std::string test_json(const std::string& checkpoint, const CostSums& test, const Graph& graph,
                      const TestOutputs& outputs) {
  nlohmann::json results = {
      {"checkpoint", checkpoint}, {"images", test.images}, {"costs", costs_json(test, graph)}};
  for (const auto& [classifier, confusion] : outputs.counted())
    results["errors_by_class"][classifier.cost] = errors_json(classifier, confusion);
  for (const auto& [compared, scores] : outputs.targets().tagged())
    results["scores_of_tags"][compared.cost] = tags_json(scores);
  for (const auto& [compared, scores] : outputs.targets().numbered())
    results["scores_of_numbers"][compared.cost] = numbers_json(scores);
  // Names of files and classes may have any encoding.
  return results.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

void print_weights(const Net& net) {
  const std::map<std::string, Magnitudes> sums = magnitudes(net.executor(), net.plans());
  for (const WeightBuffers& w : net.plans().weights()) {
    const Node& node = net.graph().nodes[w.node];
    const WeightSpec& spec = net.graph().weight({w.node, w.index});
    if (!whole_matrix(net.graph(), {w.node, w.index}).is_first()) continue;
    const Magnitudes& sum = sums.at(w.name);
    const double count = std::max(1.0, sum.count);
    const double weights = sum.weights / count, increments = sum.increments / count;
    if (spec.state) {
      fmt::print("Layer '{}' {}: {:e}\n", node.layer_name, spec.name, weights);
    } else if (spec.name == "biases" || spec.name == "shift") {
      fmt::print("Layer '{}' biases: {:e} [{:e}]\n", node.layer_name, weights, increments);
    } else {
      fmt::print("Layer '{}' weights[{}]: {:e} [{:e}] [{:e}]\n", node.layer_name, w.index, weights,
                 increments, weights > 0 ? increments / weights : 0.0);
    }
  }
}

void print_gradients(const std::vector<GradientReport>& reports) {
  constexpr std::array<const char*, 3> kVerdicts = {"right", "unclear", "WRONG"};
  std::array<int, 3> count = {};
  for (const GradientReport& r : reports) {
    fmt::print("{:<40} {:<8} relative error beyond rounding {:.1e}\n", r.name,
               kVerdicts[static_cast<std::size_t>(r.verdict)], r.error);
    ++count[static_cast<std::size_t>(r.verdict)];
  }
  if (reports.empty())
    return fmt::print("No gradient was checked: no layer of this net learns (all rates are 0)\n");
  if (count[2] > 0) throw RunError(fmt::format("{} of {} gradients are wrong", count[2], reports.size()));
  if (count[1] == 0) {
    fmt::print("All {} gradients are right\n", count[0]);
  } else {
    fmt::print(
        "{} of {} gradients are right; the others are unclear, because rounding and kinks hide the "
        "differences of the costs in fp32: larger initial weights help\n",
        count[0], reports.size());
  }
}

}  // namespace convnet
