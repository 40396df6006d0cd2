// `convnet bench`: how fast a training step is, and where its time goes.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "convnet/base/available_memory.h"
#include "convnet/base/clock.h"
#include "convnet/base/error.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/net/net.h"
#include "convnet/plan/simulate.h"
#include "convnet/train/report.h"

namespace convnet {
namespace {

using nlohmann::json;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The contents of a minibatch's matrices.
using Matrices = std::vector<std::vector<std::byte>>;

std::vector<const std::byte*> pointers_to(const Matrices& matrices) {
  std::vector<const std::byte*> pointers;
  for (const auto& matrix : matrices) pointers.push_back(matrix.data());
  return pointers;
}

/// One minibatch of the provider's first batches.
Matrices one_minibatch(const Provider& provider, std::int64_t images) {
  Matrices matrices(provider.matrices().size());
  std::int64_t have = 0;
  for (int batch = 1; have < images; ++batch) {
    provider.check_range({batch, batch}, "--mini " + std::to_string(images));
    const DataBatch data = provider.read({batch, 1, 0, images}, {});
    const std::int64_t take = std::min(images - have, data.images);
    for (std::size_t m = 0; m < matrices.size(); ++m) {
      const auto bytes = static_cast<std::ptrdiff_t>(provider.matrices()[m].image_bytes() * take);
      matrices[m].insert(matrices[m].end(), data.matrices[m].begin(), data.matrices[m].begin() + bytes);
    }
    have += take;
  }
  return matrices;
}

/// Throws DeviceError if the images of a minibatch do not fit into the host's memory beside `reserved` bytes.
void check_images_fit(const Provider& provider, std::int64_t images, std::int64_t reserved) {
  std::int64_t image = 0;
  for (const MatrixInfo& matrix : provider.matrices()) image += matrix.image_bytes();
  // Devices that copy their inputs are fed from two, and a batch is read beside them.
  constexpr std::int64_t kCopies = 2;
  const std::int64_t needed = image * (kCopies * images + provider.images_in(1)) + reserved;
  if (const std::int64_t available = available_memory(); needed > available)
    throw DeviceError(
        fmt::format("minibatches of {} images do not fit in memory: they take {} MiB with all that is "
                    "computed of them, but "
                    "{} MiB are free; use a smaller --mini",
                    images, needed >> 20, available >> 20));
}

constexpr int kWarmUp = 4;  ///< steps; both places of the inputs are recorded then

/// Medians over the measured steps, by task of the plan.
struct Measurement {
  double step = 0;  ///< seconds, wall clock
  int steps = 0;
  double overhead = 0;        ///< of a step: what is left beside the tasks of the busiest device
  std::vector<double> tasks;  ///< seconds
  std::vector<std::vector<TaskTime>> timeline;  ///< of the last steps
};

/// Seconds that the busiest device spends in tasks.
double busiest(const Plan& plan, const std::vector<TaskTime>& times) {
  double most = 0;
  for (const DeviceShare& share : device_shares(plan, times)) most = std::max(most, share.busy);
  return most;
}

Measurement measure(Net& net, const Plan& plan, StepInputs inputs, int steps) {
  std::vector<double> walls, overheads;
  Measurement m;
  std::vector<std::vector<double>> tasks(plan.tasks.size());
  std::vector<TaskTime> times;
  const bool separately = net.executor().times_cost();
  for (int step = 0; step < kWarmUp; ++step, ++inputs.iteration) net.executor().run(plan, inputs);
  const auto start = Clock::now();
  const auto enough = [&](int done) {
    if (steps > 0) return done >= steps;
    return done >= 7 && seconds_since(start) > 10;
  };
  const auto look = [&] {
    overheads.push_back(1 - busiest(plan, times) / (separately ? median(walls) : walls.back()));
    for (std::size_t t = 0; t < times.size(); ++t) tasks[t].push_back(times[t].end - times[t].begin);
    m.timeline.push_back(times);
    if (m.timeline.size() > 3) m.timeline.erase(m.timeline.begin());
  };
  int done = 0;
  for (; !enough(done); ++done, ++inputs.iteration) {
    const auto begin = Clock::now();
    net.executor().run(plan, inputs, separately ? nullptr : &times);
    walls.push_back(seconds_since(begin));
    if (!separately) look();
  }
  for (int extra = 0; separately && extra < 7; ++extra, ++inputs.iteration) {
    net.executor().run(plan, inputs, &times);
    look();
  }
  m.step = median(walls);
  m.overhead = median(overheads);
  m.steps = done;
  for (auto& t : tasks) m.tasks.push_back(median(std::move(t)));
  return m;
}

/// Seconds of a step as in training: `minibatch` and a copy of it take turns, and each is brought to the
/// devices, and its step begun, while the step before computes.
double fed_step(Net& net, const Plan& plan, StepInputs inputs, const Matrices& minibatch, int steps) {
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): other memory with the same contents
  const Matrices copy = minibatch;
  inputs.matrices = pointers_to(minibatch);
  inputs.next = pointers_to(copy);
  std::vector<double> walls;
  for (int step = 0; step < kWarmUp + steps; ++step, ++inputs.iteration) {
    inputs.next_is_certain = step + 1 < kWarmUp + steps;
    const auto begin = Clock::now();
    net.executor().run(plan, inputs);
    if (step >= kWarmUp) walls.push_back(seconds_since(begin));
    std::swap(inputs.matrices, inputs.next);
  }
  return median(std::move(walls));
}

/// Time of the step's library work run one operation at a time, each repeated: what the step would take with
/// nothing between its convolutions, products, poolings, norms and updates. On several devices, their mean.
double primitives_alone(Net& net, const Plan& plan, StepInputs inputs) {
  inputs.next.clear();
  std::vector<std::unique_ptr<Plan>> singles;  // executors want plans to stay
  double sum = 0;
  for (const Task& task : plan.tasks) {
    const std::string op = op_name(task.op);
    const bool primitive = task.flops > 0 || task.kind == TaskKind::update || op.starts_with("pool") ||
                           op.starts_with("cmrnorm");
    if (!primitive) continue;
    Plan& single = *singles.emplace_back(std::make_unique<Plan>(plan));
    single.tasks.assign(5, task);
    for (Task& t : single.tasks) t.after.clear();
    // Every plan has memory of its own for its inputs, and there are many.
    for (int& input : single.inputs) {
      if (std::none_of(task.uses.begin(), task.uses.end(),
                       [&](const BufferUse& use) { return use.buffer == input; }))
        input = -1;
    }
    std::vector<TaskTime> times;
    net.executor().run(single, inputs, &times);
    std::vector<double> seconds;
    for (std::size_t t = 1; t < times.size(); ++t) seconds.push_back(times[t].end - times[t].begin);
    sum += median(std::move(seconds));
  }
  return sum / static_cast<double>(plan.memory.size());
}

/// A row per layer, and one for what belongs to none.
json layer_table(const Graph& graph, const Plan& plan, const Measurement& m) {
  json rows = json::array();
  for (int id = -1; id < static_cast<int>(graph.nodes.size()); ++id) {
    double forward = 0;
    double backward = 0;
    double update = 0;
    double other = 0;
    double flops = 0;
    bool any = false;
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      const Task& task = plan.tasks[t];
      double part = 0;
      for (const LayerShare& share : layer_shares(plan, task)) part += share.node == id ? share.part : 0;
      if (part == 0) continue;
      any = true;
      flops += task.flops;
      double& column = task.kind == TaskKind::forward || task.kind == TaskKind::load ? forward
                       : task.kind == TaskKind::backward                             ? backward
                       : task.kind == TaskKind::update                               ? update
                                                                                     : other;
      column += part * m.tasks[t];
    }
    if (!any) continue;
    const double sum = forward + backward + update + other;
    const bool heavy = flops > 0;
    rows.push_back({{"layer", id < 0 ? "(step)" : graph.nodes[static_cast<std::size_t>(id)].name},
                    {"type", id < 0 ? "" : graph.nodes[static_cast<std::size_t>(id)].type},
                    {"forward_ms", forward * 1e3},
                    {"backward_ms", backward * 1e3},
                    {"update_ms", update * 1e3},
                    {"other_ms", other * 1e3},
                    {"gflops", forward + backward > 0 ? flops / (forward + backward) / 1e9 : 0},
                    {"share", sum / m.step / static_cast<double>(plan.memory.size())},
                    {"weights_layer", heavy}});
  }
  return rows;
}

/// A row per kind of operation, the most expensive first.
json operation_table(const Plan& plan, const Measurement& m, double bandwidth) {
  struct Work {
    double seconds = 0, flops = 0, bytes = 0;
  };
  std::map<std::string, Work> kinds;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    Work& w = kinds[op_name(task.op)];
    w.seconds += m.tasks[t];
    w.flops += task.flops;
    w.bytes += static_cast<double>(task.bytes);
  }
  std::vector<std::pair<std::string, Work>> sorted(kinds.begin(), kinds.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  json rows = json::array();
  for (const auto& [name, w] : sorted) {
    const double seconds = std::max(w.seconds, 1e-12);
    rows.push_back({{"operation", name},
                    {"ms", w.seconds * 1e3},
                    {"share", w.seconds / m.step / static_cast<double>(plan.memory.size())},
                    {"gflops", w.flops / seconds / 1e9},
                    {"gb_per_s", w.bytes / seconds / 1e9},
                    {"copy_fraction", w.bytes / seconds / bandwidth}});
  }
  return rows;
}

std::string text_of(const json& r) {
  std::string text = fmt::format("{:<20} {:<12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7}\n", "layer", "type",
                                 "fwd ms", "bwd ms", "upd ms", "other ms", "GFLOP/s", "share");
  for (const json& row : r["layers"])
    text += fmt::format("{:<20} {:<12} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.1f} {:>6.1f}%\n",
                        row["layer"].get<std::string>(), row["type"].get<std::string>(),
                        row["forward_ms"].get<double>(), row["backward_ms"].get<double>(),
                        row["update_ms"].get<double>(), row["other_ms"].get<double>(),
                        row["gflops"].get<double>(), 100 * row["share"].get<double>());
  text += fmt::format("\n{:<33} {:>9} {:>9} {:>9} {:>13} {:>7}\n", "operation", "ms", "GFLOP/s", "GB/s",
                      "of copy speed", "share");
  for (const json& row : r["operations"])
    text += fmt::format("{:<33} {:>9.3f} {:>9.1f} {:>9.1f} {:>12.0f}% {:>6.1f}%\n",
                        row["operation"].get<std::string>(), row["ms"].get<double>(),
                        row["gflops"].get<double>(), row["gb_per_s"].get<double>(),
                        100 * row["copy_fraction"].get<double>(), 100 * row["share"].get<double>());
  text += fmt::format(
      "\n{:.3f} ms a step of {} images (median of {}): {:.1f} images/s; {:.3f} ms with new images each step\n"
      "outside conv and fc: {:.3f} ms, {:.1f}% of the step; sum of the primitives run alone: {:.3f} ms, "
      "step/sum {:.3f}; executor overhead {:.1f}%\n"
      "{:.1f} GFLOP/s, {:.1f}% of the measured peak of {:.1f} GFLOP/s ({} threads); copy speed {:.1f} "
      "GB/s; peak memory "
      "{:.1f} MiB\n",
      r["ms_per_step"].get<double>(), r["mini"].get<int>(), r["steps"].get<int>(),
      r["images_per_s"].get<double>(), r["ms_per_fed_step"].get<double>(),
      r["outside_conv_fc_ms"].get<double>(),
      100 * r["outside_conv_fc_ms"].get<double>() / r["ms_per_step"].get<double>(),
      r["primitives_ms"].get<double>(), r["step_over_primitives"].get<double>(),
      100 * r["executor_overhead"].get<double>(), r["gflops"].get<double>(),
      100 * r["peak_fraction"].get<double>(), r["peak_gflops"].get<double>(), r["threads"].get<int>(),
      r["copy_gb_per_s"].get<double>(), r["peak_memory_bytes"].get<double>() / (1 << 20));
  return text;
}

/// Bytes of all devices together.
std::int64_t needed_memory(const PlanSet& plans) {
  std::int64_t sum = 0;
  for (int d = 0; d < plans.devices(); ++d) sum += plans.memory_needed(d);
  return sum;
}

/// Of the device that needs most.
std::int64_t largest_memory(const PlanSet& plans) {
  std::int64_t most = 0;
  for (int d = 0; d < plans.devices(); ++d) most = std::max(most, plans.memory_needed(d));
  return most;
}

}  // namespace

void bench_command(const std::vector<std::string>& args) {
  const OptionTexts texts = parse_command_line('b', args);
  require_options(texts, {"layer-def", "layer-params", "data-provider"}, "");
  const Options options = with_devices(parse_options(texts));
  Diagnostics diagnostics;
  const NetFiles files = read_net_files(options, diagnostics);
  const auto provider = open_provider(options);
  Graph graph = checked_graph(files, *provider, options, diagnostics);
  for (const std::string& warning : diagnostics.warnings()) fmt::print(stderr, "{}\n", warning);
  check_images_fit(*provider, options.mini, 0);
  Net net(std::move(graph), *provider, options,
          std::vector<float>(provider->subtracts_mean()
                                 ? static_cast<std::size_t>(element_count(provider->matrices()[0].dims))
                                 : 0),
          true);
  for (const std::string& warning : {slow_precision(net.backend()), too_many_threads(options)})
    if (!warning.empty()) fmt::print(stderr, "{}\n", warning);
  const Plan& plan = net.prepare(Phase::train, options.mini);
  // The devices' memory is reserved, but not yet used.
  if (net.backend().shares_memory()) check_images_fit(*provider, options.mini, needed_memory(net.plans()));
  const Matrices minibatch = one_minibatch(*provider, options.mini);
  net.init_weights(options.seed_value());
  StepInputs inputs;
  inputs.matrices = pointers_to(minibatch);
  inputs.next = inputs.matrices;  // stays on the devices
  inputs.rates = net.rates(0);

  // What the cores of all devices can do together.
  const std::unique_ptr<Backend> machine = make_backend(options, 1);
  std::vector<double> peaks;
  const auto measure_peak = [&] {
    for (int i = 0; i < 10; ++i) peaks.push_back(machine->measure_peak_flops(options.gpus()[0]));
  };
  measure_peak();
  const double copy_before = machine->measure_copy_bandwidth(options.gpus()[0]);
  const Measurement m = measure(net, plan, inputs, options.steps);
  const double fed =
      net.executor().copies_inputs() ? fed_step(net, plan, inputs, minibatch, std::min(m.steps, 30)) : m.step;
  const double alone = primitives_alone(net, plan, inputs);
  measure_peak();
  const double peak = *std::max_element(peaks.begin(), peaks.end());
  const double copy = std::max(copy_before, machine->measure_copy_bandwidth(options.gpus()[0]));

  if (!options.profile.empty()) {
    ChromeTrace trace;
    for (const std::vector<TaskTime>& times : m.timeline) trace.add_step(plan, net.graph(), times);
    trace.write(options.profile);
  }
  double flops = 0;
  for (const Task& task : plan.tasks) flops += task.flops;
  json result = {{"net", options.layer_def},
                 {"device", net.plans().target().name()},
                 {"precision", net.plans().target().precision()},
                 {"threads", thread_count(options)},
                 {"mini", options.mini},
                 {"steps", m.steps},
                 {"ms_per_step", m.step * 1e3},
                 {"ms_per_fed_step", fed * 1e3},
                 {"images_per_s", options.mini / m.step},
                 {"gflops", flops / m.step / 1e9},
                 {"peak_gflops", peak / 1e9},
                 {"peak_fraction", flops / m.step / peak},
                 {"usual_peak_gflops", median(peaks) / 1e9},
                 {"devices", net.plans().devices()},
                 {"executor_overhead", m.overhead},
                 {"peak_memory_bytes", largest_memory(net.plans())},
                 {"copy_gb_per_s", copy / 1e9},
                 {"primitives_ms", alone * 1e3},
                 {"step_over_primitives", m.step / alone},
                 {"layers", layer_table(net.graph(), plan, m)},
                 {"operations", operation_table(plan, m, copy)}};
  double inside = 0;
  for (const json& row : result["layers"]) {
    if (row["weights_layer"].get<bool>())
      inside += row["forward_ms"].get<double>() + row["backward_ms"].get<double>();
  }
  result["outside_conv_fc_ms"] = m.step * 1e3 - inside / net.plans().devices();
  fmt::print("{}",
             options.json ? result.dump(2) + "\n" : devices_text(net, options) + "\n\n" + text_of(result));
}

}  // namespace convnet
